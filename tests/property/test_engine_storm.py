"""Requests, cancellations and steps in any order: the accounts hold after each, and every text is the plain one."""

from __future__ import annotations

from functools import cache

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headstart.decoding.lookup import LookupDrafter
from headstart.engine.model_drafter import ModelDrafter
from headstart.records import SamplingParams
from headstart.testing.drafters import BranchingDrafter, RandomTreeDrafter
from headstart.testing.toy_engine import VOCAB_SIZE, make_toy_drafter, make_toy_engine, make_toy_heads
from headstart.testing.toy_heads import ToyHeads
from headstart.testing.toy_trunk import ToyTrunk

# some begin alike over a page, one is longer than half of the cache
PROMPTS = ((1,), (1, 2, 3) * 6, (*(1, 2, 3) * 6, 4), (*(1, 2, 3) * 5, 1, 9, 9), tuple(range(30)), tuple(range(17)))
LAWS = (
    SamplingParams(max_tokens=1),
    SamplingParams(max_tokens=20),
    SamplingParams(max_tokens=34, temperature=1.0, seed=4, frequency_penalty=0.5, stop=("a", "zz")),
    SamplingParams(max_tokens=25, temperature=0.7, seed=5, min_tokens=10, ignore_eos=True),
)


@cache
def plain(prompt: tuple[int, ...], law: int) -> tuple[tuple[int, ...], str, str]:
    completion = make_toy_engine(max_batch=1, share_prefixes=False).generate(prompt, LAWS[law])
    return completion.token_ids, completion.text, completion.finish_reason


def make_drafter(kind: str, law_seed: int, trunk: ToyTrunk):
    if kind == "branching":
        return BranchingDrafter({prompt: plain(prompt, 1)[0] for prompt in PROMPTS}, VOCAB_SIZE)
    if kind == "model":
        return make_toy_drafter(cache_tokens=64, catch_up_rows=20, branches=1 + law_seed)
    if kind == "heads":  # they raise if a row of theirs is missing
        return [LookupDrafter(), make_toy_heads(ToyHeads(trunk), trunk, catch_up_rows=20)]
    return {"lookup": LookupDrafter, "random": lambda: RandomTreeDrafter(VOCAB_SIZE, law_seed), "none": lambda: None}[
        kind
    ]()


class Storm(RuleBasedStateMachine):
    """An engine with a small cache under arbitrary traffic."""

    @initialize(
        kind=st.sampled_from(["branching", "lookup", "random", "model", "heads", "none"]),
        cache_tokens=st.sampled_from([64, 100, 400]),
        max_batch=st.sampled_from([1, 3, 8]),
        prefill_chunk=st.sampled_from([1, 6, 100]),
        policy=st.sampled_from(["always", "measured"]),
        share_prefixes=st.booleans(),
    )
    def begin(self, kind, **settings):
        trunk = ToyTrunk(VOCAB_SIZE)
        self.drafter = make_drafter(kind, 1, trunk)
        self.engine = make_toy_engine(self.drafter, trunk=trunk, max_rows=40, **settings)
        self.requests: dict[int, tuple[tuple[int, ...], int]] = {}
        self.texts: dict[int, str] = {}
        self.cancelled: set[int] = set()

    @rule(prompt=st.sampled_from(PROMPTS), law=st.sampled_from(range(len(LAWS))))
    def submit(self, prompt, law):
        sequence_id = self.engine.submit(prompt, LAWS[law])
        self.requests[sequence_id] = (prompt, law)
        self.texts[sequence_id] = ""

    @rule(times=st.integers(1, 12))
    def step(self, times):
        for _ in range(times):
            self.take(self.engine.step())

    @precondition(lambda self: getattr(self, "requests", None))
    @rule(data=st.data())
    def cancel(self, data):
        sequence_id = data.draw(st.sampled_from(sorted(self.requests)))
        if self.engine.cancel(sequence_id):
            self.cancelled.add(sequence_id)

    @rule(prompt=st.sampled_from(PROMPTS), events=st.integers(0, 3))
    def stream_and_walk_away(self, prompt, events):
        stream = self.engine.stream(prompt, LAWS[1])
        for _ in zip(range(events), stream, strict=False):
            pass
        stream.close()

    @invariant()
    def accounts_hold(self):
        if hasattr(self, "engine"):
            self.engine.check_integrity()
            if isinstance(self.drafter, ModelDrafter):
                self.drafter.check_integrity()

    def take(self, events):
        for event in events:
            if event.sequence_id not in self.requests:
                continue  # the end of a stream that ran to its end
            self.texts[event.sequence_id] += event.text
            if event.finish_reason is not None:
                self.judge(event.sequence_id, event.finish_reason)

    def judge(self, sequence_id, reason):
        prompt, law = self.requests.pop(sequence_id)
        completion = self.engine.completion(sequence_id)
        tokens, text, plain_reason = plain(prompt, law)
        assert completion.text == self.texts.pop(sequence_id)
        if sequence_id in self.cancelled:
            assert reason == "cancelled"
            assert completion.token_ids == tokens[: len(completion.token_ids)]
        else:
            assert (completion.token_ids, completion.text, reason) == (tokens, text, plain_reason)

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        for _ in range(2000):
            if self.engine.idle:
                break
            self.take(self.engine.step())
        assert self.engine.idle, "a sequence waits for ever"
        assert not self.requests
        self.engine.check_integrity()
        assert self.engine.num_running == 0
        assert self.engine.statistics.drafter_faults == 0
        assert not isinstance(self.drafter, ModelDrafter) or self.drafter.num_holding == 0


Storm.TestCase.settings = settings(
    max_examples=100, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TestStorm = Storm.TestCase
