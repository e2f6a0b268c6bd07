"""Checks a server over HTTP: greedy tokens, endings, seeds and the distribution of what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from headstart.engine.text import Tokenizer
from headstart.errors import ConfigError, UnsupportedError
from headstart.measure.check.answers import Answer, Asker
from headstart.measure.check.drafted import DraftMeter
from headstart.measure.check.endings import check_accounts, check_stops
from headstart.measure.check.findings import Finding
from headstart.measure.check.greedy import compare_fresh, judge_greedy
from headstart.measure.check.law_reference import LawReference
from headstart.measure.check.plain_reference import PlainReference
from headstart.measure.check.reference import Prompt, Reference
from headstart.measure.check.sampling import check_distribution
from headstart.measure.check.seeds import check_seeds
from headstart.measure.check.tolerance import ActivationBits
from headstart.measure.check.trunk_law import TrunkLaw
from headstart.measure.openai_client import OpenAIClient
from headstart.runtime.protocol import Trunk

# Rounding, many ties, copies, distribution: each may raise a fourth of the false alarms.
_NUM_RANDOM_TESTS = 4
# Few, so that many drawn texts begin alike and what follows can be compared.
_SAMPLED_PROMPTS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerCheckConfig:
    """How thorough a check is.

    Attributes:
        max_tokens: of a greedy answer.
        num_sampled: texts drawn for the test of the distribution, at most.
        sampled_tokens: of each.
        false_alarm: probability that a right server is called broken, over the whole run.
        num_layers: of the model, for the bound on rounding.
        activation_bits: with which the coarser of the two engines computes: 8 for quantised weights, or 16.
        seed: of the seeds that are sent.
    """

    max_tokens: int = 48
    num_sampled: int = 400
    sampled_tokens: int = 16
    false_alarm: float = 1e-3
    num_layers: int = 32
    activation_bits: ActivationBits = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_tokens", "num_sampled", "sampled_tokens", "num_layers"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: it must be at least 1.")
        if self.activation_bits not in (8, 16):
            raise ConfigError(f"activation_bits = {self.activation_bits}: it must be 8 or 16.")
        if not 0 < self.false_alarm < 1:
            raise ConfigError(f"false_alarm = {self.false_alarm}: it is a probability, above 0 and below 1.")

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def check_against_model(
    client: OpenAIClient,
    trunk: Trunk,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    config: ServerCheckConfig,
    progress: Callable[[float], None] = lambda share: None,
    *,
    probes: Sequence[Sequence[int]] = (),
) -> tuple[Finding, ...]:
    """Hold a server to a model that is run here.

    Args:
        client: the server.
        trunk: the same model. No engine may use it meanwhile.
        tokenizer: its vocabulary.
        prompts: token ids.
        config: how thoroughly.
        progress: called with the share that is done.
        probes: token ids of texts after which drafters guess and the model is uncertain (`probes.chance_texts`): most
            of what is drawn goes on from these.

    Raises:
        HeadstartError: the server fails.
        CapacityError: prompts and answers do not fit into the model's context.
    """
    asker = Asker(client, tokenizer, trunk.vocab_size)
    longest = max(map(len, (*prompts, *probes)), default=0)
    # an answer may lack tokens, which are put in again where they seem to be missing
    law = TrunkLaw(trunk, longest + 2 * max(config.max_tokens, config.sampled_tokens, 16) + 2)
    reference = LawReference(law, tokenizer.end_ids, lambda: asker.unreadable_ids)
    asked, probed = ([tuple(prompt) for prompt in some] for some in (prompts, probes))
    return _check(asker, reference, asked, probed, config, progress)


def check_against_server(
    client: OpenAIClient,
    plain: OpenAIClient,
    prompts: Sequence[str],
    config: ServerCheckConfig,
    progress: Callable[[float], None] = lambda share: None,
    *,
    probes: Sequence[str] = (),
    plain_fields: Mapping[str, Any] | None = None,
) -> tuple[Finding, ...]:
    """Hold a server to another that decodes plainly, or to itself with drafting switched off.

    Args:
        client: the server.
        plain: the other.
        prompts: plain texts.
        config: how thoroughly.
        progress: called with the share that is done.
        probes: see `check_against_model`.
        plain_fields: of requests to `plain`, which switch its drafting off.

    Raises:
        HeadstartError: a server fails.
    """
    reference = PlainReference(Asker(plain, fields=plain_fields), config.max_tokens)
    return _check(Asker(client), reference, prompts, probes, config, progress)


def _check(
    asker: Asker,
    reference: Reference,
    questions: Sequence[Prompt],
    probes: Sequence[Prompt],
    config: ServerCheckConfig,
    progress: Callable[[float], None],
) -> tuple[Finding, ...]:
    if not questions:
        raise ConfigError("There are no prompts; at least one is needed.")
    false_alarm = config.false_alarm / _NUM_RANDOM_TESTS
    prompts = [*questions, *probes]
    answers: list[Answer] = []
    meter = DraftMeter(asker)
    for prompt in prompts:
        answers.append(asker.ask(prompt, config.max_tokens))
        progress(0.3 * len(answers) / len(prompts))
    if all(answer.tokens is None for answer in answers):
        raise UnsupportedError(
            f"{asker.url} tells neither token ids nor log-probabilities, so its tokens are not known and cannot be "
            "checked. Switch them on (vLLM: return_token_ids; others: logprobs)."
        )
    guesses = meter.lap()
    tolerance, fresh = compare_fresh(
        asker,
        reference,
        prompts,
        answers,
        num_layers=config.num_layers,
        activation_bits=config.activation_bits,
        false_alarm=false_alarm,
    )
    greedy = judge_greedy(reference, prompts, answers, tolerance, false_alarm)
    greedy = replace(greedy, guesses=guesses)
    progress(0.4)
    accounts = check_accounts(asker, prompts, answers, config.max_tokens)
    stops = check_stops(asker, prompts, answers, config.max_tokens)
    progress(0.6)
    uncertain = _by_uncertainty(reference, questions, answers[: len(questions)])
    seeds = check_seeds(asker, reference, uncertain[0], seed=config.seed, tolerance=tolerance, false_alarm=false_alarm)
    progress(0.7)
    if seeds.faults:
        distribution = Finding(
            test="distribution", untested="Draws that are copies of each other tell no distribution."
        )
    else:
        sampled = [*probes, *uncertain[: max(_SAMPLED_PROMPTS - len(probes), 1)]]
        meter.lap()
        distribution = check_distribution(
            asker,
            reference,
            sampled,
            num_texts=config.num_sampled,
            num_tokens=config.sampled_tokens,
            seed=config.seed,
            tolerance=tolerance,
            false_alarm=false_alarm,
            progress=lambda share: progress(0.7 + 0.3 * share),
        )
        distribution = replace(distribution, guesses=meter.lap())
    return fresh, greedy, accounts, stops, seeds, distribution


def _by_uncertainty(reference: Reference, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> list[Prompt]:
    """Prompts, those first whose greedy answers are least likely a token: there most can be drawn."""

    def certainty(pair: tuple[Prompt, Answer]) -> float:
        prompt, answer = pair
        log_probability = reference.log_probability(prompt, answer)
        return 0.0 if not log_probability else log_probability / len(answer.tokens or (0,))

    return [prompt for prompt, _ in sorted(zip(prompts, answers, strict=True), key=certainty)]
