"""An engine over the toy trunk, and plain decoding without any engine to compare it with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.decoding.cost_curve import CostCurve
from headstart.decoding.drafter import Drafter
from headstart.engine import Engine
from headstart.engine.cache import num_pages_for
from headstart.engine.heads_drafter import HeadsDraftConfig, HeadsDrafter
from headstart.engine.model_drafter import ModelDraftConfig, ModelDrafter
from headstart.records import SamplingParams
from headstart.runtime.protocol import Choice
from headstart.testing.byte_tokenizer import ByteTokenizer
from headstart.testing.drafters import OracleDrafter
from headstart.testing.passes import rows_of_one
from headstart.testing.toy_heads import ToyHeads
from headstart.testing.toy_trunk import ToyTrunk

# 38 letters and marks and the bytes of "é" and "€", so that characters can be split between tokens
ALPHABET = b"abcdefghijklmnopqrstuvwxyz .,;:!?-()'\n" + bytes(sorted({*"é€".encode()}))
VOCAB_SIZE = len(ALPHABET) + 1


def make_toy_engine(drafter: Drafter | None = None, *, trunk: ToyTrunk | None = None, **settings: Any) -> Engine:
    """An engine that needs no files; its rows are declared to be cheap, so that drafts get some.

    Args:
        drafter: who guesses.
        trunk: another toy than the usual one.
        **settings: those of `Engine`.
    """
    settings.setdefault("cost_curve", CostCurve({1: 1.0, 16: 1.5, 512: 40.0}))
    return Engine(trunk or ToyTrunk(VOCAB_SIZE), ByteTokenizer(ALPHABET), drafter=drafter, **settings)


def make_toy_oracle(prompt: Sequence[int], num_tokens: int = 40) -> OracleDrafter:
    """Drafts what the usual toy goes on with if nothing stops it, so many tokens far."""
    params = SamplingParams(max_tokens=num_tokens, ignore_eos=True)
    return OracleDrafter({tuple(prompt): make_toy_engine().generate(prompt, params).token_ids})


def make_similar_trunk(vocab_size: int = VOCAB_SIZE, **options: Any) -> ToyTrunk:
    """A toy that mostly, but not always, agrees with the usual one; `options` are those of `ToyTrunk`."""
    return ToyTrunk(vocab_size, context_weight=0.7, **options)


def make_toy_heads(heads: ToyHeads, trunk: ToyTrunk, **config: Any) -> HeadsDrafter:
    """A drafter for `make_toy_engine(..., trunk=trunk)`.

    Args:
        heads: that sit on it.
        trunk: whose rows they read.
        **config: that of `HeadsDraftConfig`.
    """
    return HeadsDrafter(heads, trunk.make_chooser, end_ids=(VOCAB_SIZE - 1,), config=HeadsDraftConfig(**config))


def make_toy_drafter(trunk: ToyTrunk | None = None, **config: Any) -> ModelDrafter:
    """A drafter for `make_toy_engine` that is a toy itself, by default a similar one.

    Args:
        trunk: the drafting model.
        **config: that of `ModelDraftConfig`; chains are never cut short unless it says so.
    """
    config.setdefault("min_path_probability", 0.0)
    return ModelDrafter(
        trunk or make_similar_trunk(),
        vocab_size=VOCAB_SIZE,
        end_ids=(VOCAB_SIZE - 1,),
        config=ModelDraftConfig(**config),
    )


def decode_without_engine(
    trunk: ToyTrunk, prompt: Sequence[int], params: SamplingParams, seed: int, num_tokens: int
) -> list[int]:
    """Write tokens by running the whole text anew for each: no cache, no rounds, no drafts.

    Args:
        trunk: its cache is made anew.
        prompt: token ids.
        params: the law; nothing in it ends the text here.
        seed: of the noise.
        num_tokens: how many to write.
    """
    text = list(prompt)
    chooser = trunk.make_chooser(params, seed, prompt, ())
    for _ in range(num_tokens):
        trunk.make_cache(num_pages_for(len(text)))
        trunk.forward(rows_of_one(text, wanted=[len(text) - 1]))
        (token,), _ = trunk.choose([Choice(0, chooser, len(text), ())])
        chooser.extend([token])
        text.append(token)
    return text[len(prompt) :]
