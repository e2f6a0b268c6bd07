from __future__ import annotations

from headstart.engine.cache import PageAccounts
from headstart.engine.scheduler import Scheduler, SchedulerConfig
from headstart.engine.sequence import Sequence
from headstart.engine.stopping import StopRules
from headstart.records import SamplingParams, Tree
from headstart.testing.byte_tokenizer import ByteTokenizer


def sequence(number: int, num_tokens: int) -> Sequence:
    params, tokenizer = SamplingParams(), ByteTokenizer()
    return Sequence(
        id=number,
        params=params,
        seed=0,
        tokens=[number] * num_tokens,
        num_prompt=num_tokens,
        chooser=None,  # type: ignore[arg-type]  # no scheduler asks it
        stop_rules=StopRules(params, (), tokenizer.stream(), 99),
    )


class Play:
    """A scheduler whose passes are played without a trunk: every round reaching its root writes one token."""

    def __init__(self, num_pages: int, **config: int) -> None:
        self.accounts = PageAccounts(num_pages)
        self.scheduler = Scheduler(self.accounts, SchedulerConfig(**config))

    def step(self) -> dict[int, int]:
        """Rows of each sequence in one pass."""
        rounds = self.scheduler.plan(0.0)
        for round_ in rounds:
            reaches_root = round_.reaches_root
            self.accounts.commit(round_.sequence.pages, round_.num_tokens, round_.sequence.tokens)
            if reaches_root:
                round_.sequence.tokens.append(0)
        self.accounts.check_integrity()
        self.scheduler.check_integrity()
        return {round_.sequence.id: round_.num_tokens for round_ in rounds}


def test_prompts_share_the_chunk_in_order_and_decoding_rows_come_first():
    play = Play(100, max_batch=3, max_rows=10, prefill_chunk=8)
    for number, size in ((1, 5), (2, 20), (3, 2), (4, 1)):
        play.scheduler.add(sequence(number, size))
    assert play.step() == {1: 5, 2: 3}
    assert play.step() == {1: 1, 2: 8}
    assert play.step() == {1: 1, 2: 8}
    assert play.step() == {1: 1, 2: 1, 3: 2}  # the fourth waits for a place
    assert play.step() == {1: 1, 2: 1, 3: 1}


def test_rows_never_exceed_the_bound():
    play = Play(100, max_batch=4, max_rows=4, prefill_chunk=256)
    for number in range(4):
        play.scheduler.add(sequence(number, 6))
    for _ in range(20):
        assert 0 < sum(play.step().values()) <= 4


def test_the_youngest_gives_way_and_comes_back_before_those_who_came_later():
    play = Play(4, max_batch=2)
    old, young, late = sequence(1, 30), sequence(2, 10), sequence(3, 10)
    for one in (old, young, late):
        play.scheduler.add(one)
    while not play.scheduler.num_preemptions:
        before = len(old.tokens)
        play.step()
        assert len(old.tokens) == before + 1  # the oldest goes on in every pass
        assert before < 99
    assert (play.scheduler.num_running, play.scheduler.num_waiting) == (1, 2)
    assert young.pages is None
    play.scheduler.remove(old)
    assert play.step().keys() == {2, 3}
    assert play.scheduler.num_preemptions == 1


def test_a_newcomer_waits_for_pages_and_those_behind_it_wait_too():
    play = Play(4, max_batch=4)
    for number, size in ((1, 20), (2, 40), (3, 1)):
        play.scheduler.add(sequence(number, size))
    assert play.step() == {1: 20}
    assert play.scheduler.num_waiting == 2


def test_who_found_no_room_is_not_looked_up_again_before_there_is_more():
    play = Play(4, max_batch=4)
    play.scheduler.add(sequence(1, 17))
    play.scheduler.add(sequence(2, 40))
    for _ in range(2):
        play.step()
    opened = []
    original = play.accounts.open
    play.accounts.open = lambda tokens: opened.append(len(tokens)) or original(tokens)
    for _ in range(10):  # within a page of the first
        play.step()
    assert opened == []
    first = play.scheduler._running[0]
    play.scheduler.remove(first)
    assert play.step() == {2: 40}
    assert opened == [40]


def test_a_draft_drives_no_one_out():
    play = Play(2, max_batch=4)
    first, second = sequence(1, 16), sequence(2, 1)
    play.scheduler.add(first)
    play.scheduler.add(second)
    rounds = play.scheduler.plan(0.0)
    assert len(rounds) == 1  # a page of growth is kept for the first
    play.accounts.commit(first.pages, 16, first.tokens)
    first.tokens.append(0)
    (round_, *_) = play.scheduler.plan(0.0)
    play.scheduler.reserve_tree(round_, Tree((1,) * 15, tuple(range(-1, 14)), (0.5,) * 15))
    assert len(round_.tree) == 15
    play.accounts.rollback(first.pages)
    (round_, *_) = play.scheduler.plan(0.0)
    play.scheduler.reserve_tree(round_, Tree((1,) * 16, tuple(range(-1, 15)), (0.5,) * 16))
    assert len(round_.tree) == 0
    assert play.scheduler.num_preemptions == 0
