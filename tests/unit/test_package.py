"""The names that users import, and that none of them is paid for before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import headstart


@pytest.mark.parametrize("name", headstart.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(headstart, name) is not None
    assert name in dir(headstart)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'headstart' has no attribute 'Engin'"):
        headstart.Engin  # noqa: B018 - the look-up is the test


def test_the_package_alone_imports_nothing_heavy() -> None:
    script = "import sys, headstart; print([name for name in ('numpy', 'headstart.engine') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout == "[]\n"
