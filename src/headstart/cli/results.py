"""What a verb reports: one JSON document for programs, one line for people."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys

import numpy
import tokenizers

import headstart
from headstart.cli.opening import OpenedModel
from headstart.engine import token_hash
from headstart.records import Completion, SamplingParams
from headstart.runtime.open_heads import FittedHeads


def print_json(document: dict[str, object]) -> None:
    """Print a document as one line of ASCII, whatever the terminal's encoding."""
    print(json.dumps(document, allow_nan=False), flush=True)


def completion_document(completion: Completion, params: SamplingParams, opened: OpenedModel) -> dict[str, object]:
    """All that is known of a completion, with the settings that led to it.

    Args:
        completion: the result.
        params: what was asked for.
        opened: who wrote it.
    """
    return {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "token_hash": token_hash(completion.token_ids),
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "seed": completion.seed,
        **draft_account(completion),
        "tokens_per_s": completion.tokens_per_s,
        "first_round_tokens": completion.first_round_tokens,
        "generation_s": completion.generation_s,
        "prefill_s": completion.prefill_s,
        "load_s": opened.load_s,
        "sampling": sampling_document(params),
        **machine_document(opened),
    }


def draft_account(completion: Completion) -> dict[str, object]:
    """What drafting came to."""
    return {
        "drafter": completion.drafter,
        "rounds": completion.rounds,
        "drafted": completion.drafted,
        "accepted": completion.accepted,
        "mean_acceptance_length": completion.mean_acceptance_length,
        "drafted_by_depth": completion.drafted_by_depth,
        "reached_by_depth": completion.reached_by_depth,
        "accepted_by_depth": completion.accepted_by_depth,
        "drafted_by_drafter": completion.drafted_by_drafter,
        "accepted_by_drafter": completion.accepted_by_drafter,
    }


def sampling_document(params: SamplingParams) -> dict[str, object]:
    """The sampling parameters in effect; the seed stands with the result."""
    values = {field.name: getattr(params, field.name) for field in dataclasses.fields(params) if field.name != "seed"}
    return values | {"logit_bias": {str(token): bias for token, bias in params.logit_bias.items()}}


def machine_document(opened: OpenedModel) -> dict[str, object]:
    """Model, settings, machine and versions: what one needs to get the same again."""
    trunk = opened.parts.trunk
    return {
        "model": {
            "name": opened.name,
            "path": str(opened.parts.checkpoint.path),
            "digest": opened.parts.checkpoint.digest(),
        },
        "settings": {
            "draft": opened.flags.draft,
            "weights": opened.flags.weights,
            "context": opened.flags.context,
        },
        "heads": _heads_document(opened.parts.heads),
        "threads": trunk.num_threads,
        "instruction_set": trunk.instruction_set,
        "versions": {
            "headstart": headstart.__version__,
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "tokenizers": tokenizers.__version__,
        },
    }


def _heads_document(heads: FittedHeads | None) -> dict[str, object] | None:
    if heads is None:
        return None
    return {
        "path": str(heads.file.path),
        "digest": heads.file.digest(),
        "kind": heads.config.kind,
        "notes": heads.notes,
    }


def print_summary(completion: Completion, params: SamplingParams) -> None:
    """Say on stderr, in one line, how a completion went.

    Example:
        128 tokens, 83.1 tokens/s, 2.41 tokens a round (lookup: 75 of 131 drafts kept), ended by length, seed 7
    """
    parts = [f"{len(completion.token_ids)} tokens", f"{completion.tokens_per_s:.1f} tokens/s"]
    if completion.drafter != "none":
        parts.append(
            f"{completion.mean_acceptance_length:.2f} tokens a round "
            f"({completion.drafter}: {completion.accepted} of {completion.drafted} drafts kept)"
        )
    parts.append(f"ended by {completion.finish_reason}")
    if params.temperature > 0:
        parts.append(f"seed {completion.seed}")
    print(", ".join(parts), file=sys.stderr, flush=True)
