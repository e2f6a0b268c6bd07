"""Ids that are no token of the vocabulary are the sender's fault, and told so."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.engine.requests import check_params
from headstart.errors import ConfigError
from headstart.records import SamplingParams


@pytest.mark.parametrize("token", [2.5, "2", None, -1, 8])
@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_tokens", "logit_bias"])
def test_ids_outside_the_vocabulary(name: str, token: Any) -> None:
    value = {token: 1.0} if name == "logit_bias" else (token,)
    with pytest.raises(ConfigError, match=f"{name}: token id {token!r} is not in the vocabulary; ids are 0 to 7"):
        check_params(SamplingParams(**{name: value}), (), 8)  # type: ignore[arg-type]
