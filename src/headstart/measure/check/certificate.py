"""The outcome of a check as a document: what was tested, with which settings, and a digest over all of it."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy

import headstart
from headstart.errors import CheckpointError
from headstart.measure.check.faults import Fault, root_faults
from headstart.measure.check.findings import Finding

Verdict = Literal["exact", "unproven", "broken"]

SCHEMA = "headstart.check/2"
_DIGEST = "digest"


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """What a check came to.

    Attributes:
        subject: what was checked: the model's name or the server's address.
        findings: all tests.
        context: model, prompts, settings: what one needs to do the same again.
        made_at: date and time, as text.
    """

    subject: str
    findings: tuple[Finding, ...]
    context: Mapping[str, Any]
    made_at: str

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What is wrong; consequences of other faults are left out."""
        return root_faults(fault for finding in self.findings for fault in finding.faults)

    @property
    def undrafted(self) -> tuple[str, ...]:
        """Tests that are to show what drafting does, in which nothing was drafted by the server's own count."""
        return tuple(
            finding.test for finding in self.findings if finding.guesses is not None and not finding.guesses.drafted
        )

    @property
    def verdict(self) -> Verdict:
        """In a word; unproven is what has nothing wrong, and nothing drafted where that was to be seen."""
        return "broken" if self.faults else "unproven" if self.undrafted else "exact"

    @property
    def exact(self) -> bool:
        """Whether nothing was found wrong, where drafts had a part in it."""
        return self.verdict == "exact"

    @property
    def sentence(self) -> str:
        """The verdict, with its reason."""
        if self.faults:
            others = "" if len(self.faults) == 1 else f", and {', '.join(fault.kind for fault in self.faults[1:])}"
            return f"BROKEN: {self.faults[0].kind}{others}. {self.faults[0].evidence}"
        untested = [finding.test for finding in self.findings if finding.outcome == "not tested"]
        not_all = f" Not tested: {', '.join(untested)}." if untested else ""
        if self.undrafted:
            return (
                f"unproven: nothing was found wrong, but the server drafted nothing in {' and '.join(self.undrafted)}, "
                f"so there is no telling what drafting does. Is it switched on, and does it find these texts?{not_all}"
            )
        told = "".join(
            f" In {finding.test}, {finding.guesses.accepted} of {finding.guesses.drafted} guesses were kept."
            for finding in self.findings
            if finding.guesses is not None
        )
        if untested:
            return f"exact, as far as could be tested.{not_all}{told}"
        return f"exact: {len(self.findings)} tests found nothing wrong.{told}"

    def to_json(self) -> dict[str, Any]:
        """The document, with its digest.

        The digest is the SHA-256 of the document without it, written as JSON with sorted keys and without spaces.
        It shows that nothing was changed since, not who made it.
        """
        document = {
            "schema": SCHEMA,
            "subject": self.subject,
            "made_at": self.made_at,
            "verdict": self.verdict,
            "fault": self.faults[0].kind if self.faults else None,
            "faults": [fault.to_json() for fault in self.faults],
            "sentence": self.sentence,
            "tests": [finding.to_json() for finding in self.findings],
            **self.context,
            "versions": {
                "headstart": headstart.__version__,
                "python": platform.python_version(),
                "numpy": numpy.__version__,
            },
        }
        return {**document, _DIGEST: _digest(document)}


def verify_document(document: Mapping[str, Any]) -> None:
    """See whether a certificate is as it was made.

    Raises:
        CheckpointError: it is none, or was changed.
    """
    if document.get("schema") != SCHEMA or not isinstance(document.get(_DIGEST), str):
        raise CheckpointError(f"This is no certificate of the form {SCHEMA}. Give a file that `headstart check` wrote.")
    content = {name: value for name, value in document.items() if name != _DIGEST}
    if _digest(content) != document[_DIGEST]:
        raise CheckpointError("The certificate was changed after it was made: its digest is another. Check again.")


def prompts_document(prompts: Sequence[str] | Sequence[Sequence[int]]) -> dict[str, Any]:
    """How many prompts, and a fingerprint of them."""
    listed = [prompt if isinstance(prompt, str) else list(prompt) for prompt in prompts]
    return {"num": len(listed), "sha256": hashlib.sha256(json.dumps(listed).encode()).hexdigest()}


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
