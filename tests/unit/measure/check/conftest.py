from __future__ import annotations

from collections.abc import Callable

import pytest

from headstart.measure.check import Certificate, ServerCheckConfig, check_against_model, check_against_server
from headstart.measure.openai_client import OpenAIClient
from headstart.testing.byte_tokenizer import ByteTokenizer
from headstart.testing.toy_engine import ALPHABET, VOCAB_SIZE
from headstart.testing.toy_server import ToyServerConfig, serve_toy
from headstart.testing.toy_trunk import ToyTrunk

PROMPTS = ("once upon a time", "the quick brown fox", "hello, world!", "a b c d e f", "what is it?", "to be or not")

CheckToy = Callable[..., Certificate]


@pytest.fixture
def check_toy() -> CheckToy:
    """Runs a toy server and checks it against the toy model, or against an honest server."""

    def check(
        served: ToyServerConfig, *, by_plain: ToyServerConfig | None = None, num_sampled: int = 60, max_tokens: int = 32
    ) -> Certificate:
        config = ServerCheckConfig(
            max_tokens=max_tokens, num_sampled=num_sampled, sampled_tokens=6, num_layers=8, seed=served.seed
        )
        with serve_toy(served) as url:
            client = OpenAIClient(url)
            if by_plain is None:
                tokenizer = ByteTokenizer(ALPHABET)
                ids = [tokenizer.encode(prompt) for prompt in PROMPTS]
                findings = check_against_model(client, ToyTrunk(VOCAB_SIZE), tokenizer, ids, config)
            else:
                with serve_toy(by_plain) as plain_url:
                    findings = check_against_server(client, OpenAIClient(plain_url), PROMPTS, config)
        return Certificate(subject=url, findings=findings, context={"settings": config.to_json()}, made_at="now")

    return check
