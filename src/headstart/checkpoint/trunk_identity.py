"""Which trunk something was made for, and whether another file holds the same one.

The same model comes in many files: as bf16, quantised in a dozen ways, in two
formats. Heads that were trained with one of them work with all, so the digest of
the stored weights alone would refuse too much. What all of them share is the
*vocabulary*, the *sizes*, and the *vectors of the norms*, which no quantisation
touches. docs/reference/heads-file.md has the reasons at length.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headstart.checkpoint.bfloat16 import round_to_bfloat16
from headstart.checkpoint.json_files import check_keys
from headstart.checkpoint.tokenizer import Tokenizer
from headstart.errors import CheckpointError

_DIGEST_BYTES = 16
_DECIDING = (
    ("vocab_size", "vocabulary size"),
    ("hidden_size", "hidden size"),
    ("num_layers", "number of layers"),
    ("vocabulary_digest", "tokenizer (digest)"),
    ("norms_digest", "weights (digest of the norms)"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrunkIdentity:
    """What a trunk is known by. Digests are 32 hexadecimal digits.

    Attributes:
        name: what it is called, for messages only.
        weights_digest: `Checkpoint.digest` of its file: another for each quantisation.
        norms_digest: `norms_digest`: the same for every quantisation.
        vocabulary_digest: `vocabulary_digest`: what its token ids stand for.
        template_digest: of its chat template; `None` if it has none.
        vocab_size: rows of its embedding.
        hidden_size: width of its residual stream.
        num_layers: its blocks.
    """

    name: str
    weights_digest: str
    norms_digest: str
    vocabulary_digest: str
    template_digest: str | None
    vocab_size: int
    hidden_size: int
    num_layers: int

    def mismatches(self, opened: TrunkIdentity) -> tuple[str, ...]:
        """Why `opened` is not this trunk: both values of each thing that decides; empty if it is."""
        return tuple(
            f"{words} {getattr(self, name)} (this model: {getattr(opened, name)})"
            for name, words in _DECIDING
            if getattr(self, name) != getattr(opened, name)
        )

    def notes(self, opened: TrunkIdentity) -> tuple[str, ...]:
        """What a user should know of `opened`, if it is this trunk: sentences, mostly none."""
        found: list[str] = []
        if self.weights_digest != opened.weights_digest:
            found.append(
                f"The heads were trained with other stored weights (digest {self.weights_digest}; this file: "
                f"{opened.weights_digest}): another quantisation, or a light fine-tuning. Guesses may be right less "
                "often; the text is unchanged."
            )
        if self.template_digest != opened.template_digest:
            found.append(
                f"The heads were trained with another chat template (digest {self.template_digest}; this file: "
                f"{opened.template_digest}). In chats, guesses may be right less often; the text is unchanged."
            )
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> TrunkIdentity:
        """From plain data, of which nothing may be missing or unknown.

        Args:
            data: what `to_json` gave.
            where: whence, for errors.

        Raises:
            CheckpointError: the data is not that of a trunk.
        """
        check_keys(data, {field.name for field in fields(cls)}, where)
        for field in fields(cls):
            value = data[field.name]
            if field.name.endswith("_size") or field.name == "num_layers":
                holds, allowed = type(value) is int and value > 0, "a positive whole number"
            else:
                holds, allowed = isinstance(value, str), "a string"
                holds |= field.name == "template_digest" and value is None
            if not holds:
                raise CheckpointError(
                    f"{where}: {field.name} = {str(value)[:80]!r}: it must be {allowed}. The file was altered; fetch "
                    "or make it again."
                )
        return cls(**data)


def norms_digest(norms: Mapping[str, NDArray[np.float32]]) -> str:
    """A fingerprint of a trunk's norms, the same for every quantisation of it.

    Args:
        norms: the vectors by this project's names, which do not depend on the file format.
    """
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name in sorted(norms):
        # files of one model hold them as f32 or as bf16, according to the format
        state.update(f"{name}:{norms[name].size};".encode() + round_to_bfloat16(norms[name]).tobytes())
    return state.hexdigest()


def vocabulary_digest(tokenizer: Tokenizer) -> str:
    """A fingerprint of what token ids stand for, the same for every file format.

    Which tokens end a text, which are hidden in it, and what is put before it
    does not count: files of one model disagree about that, and a draft is right
    or wrong without it.
    """
    spelled = [_meaning(tokenizer, token_id) for token_id in range(tokenizer.vocab_size)]
    while spelled and not spelled[-1]:
        spelled.pop()  # padding to a round size, which some files list and some do not
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for meaning in spelled:
        state.update(len(meaning).to_bytes(4, "little") + meaning)
    return state.hexdigest()


def _meaning(tokenizer: Tokenizer, token_id: int) -> bytes:
    meaning = tokenizer.token_bytes(token_id)
    # the name that converters to GGUF give to a row of the embedding without a token
    return b"" if meaning == f"[PAD{token_id}]".encode() else meaning
