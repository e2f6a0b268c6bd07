"""Beginnings of text that a training held out, as a file of prompts for `headstart bench`.

    python benchmarks/held_out_prompts.py byte-model held-out.jsonl

They come out of the middle of held-out documents, spread over all of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import cyclopts

from headstart.errors import HeadstartError
from headstart.train.corpus import open_corpus
from headstart.train.corpus.vocabulary import read_tokenizer
from headstart.train.pretrain.acceptance import prompts_of

app = cyclopts.App(help=__doc__)


@app.default
def write_prompts(
    run: Annotated[Path, cyclopts.Parameter(help="Folder of a `headstart train`.")],
    out: Annotated[Path, cyclopts.Parameter(help="The file to write.")],
    *,
    count: Annotated[int, cyclopts.Parameter(help="Prompts at most.")] = 32,
    tokens: Annotated[int, cyclopts.Parameter(help="Of a prompt.")] = 64,
) -> None:
    """Write the prompts, one a line."""
    corpus = open_corpus(run / "data")
    tokenizer = read_tokenizer(corpus.tokenizer_folder)
    prompts = [tokenizer.decode(prompt) for prompt in prompts_of(corpus.validation, count, tokens)]
    out.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts), encoding="utf-8")
    held_out = len(corpus.validation.lengths)
    print(f"{len(prompts)} prompts of {tokens} tokens from {held_out} held-out documents in {out}.")


if __name__ == "__main__":
    try:
        app()
    except HeadstartError as error:
        sys.exit(str(error))
