"""The team of threads: the same results with any number of them, no stall, and no work when there is none."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from headstart.checkpoint import Checkpoint
from headstart.runtime.native import NativeTrunk, load_trunk
from headstart.testing.passes import prefill_logits, rows_of_one, wanted_logits
from headstart.testing.small_trunks import make_logits_trunk

GetCheckpoint = Callable[..., Checkpoint]
TOKENS = np.random.default_rng(0).integers(0, 300, 60).tolist()
# generous: such a pass takes milliseconds; a lost wake-up takes for ever
STALL_S = 60.0


def run_with_deadline(work: Callable[[], None]) -> None:
    """Fail, rather than hang, if the work never ends."""
    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(STALL_S)
    assert not worker.is_alive(), "the threads wait for each other"


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 16])
def test_many_passes_end_and_agree(threads: int, tiny_checkpoint: GetCheckpoint) -> None:
    expected = prefill_logits(load_trunk(tiny_checkpoint(), threads=1), TOKENS)
    trunk = load_trunk(tiny_checkpoint(), threads=threads)
    found: list[np.ndarray] = []

    def work() -> None:
        trunk.make_cache(4)
        found.append(wanted_logits(trunk, rows_of_one(TOKENS[:40])))
        # one row a pass: little work between many barriers
        found.extend(wanted_logits(trunk, rows_of_one([TOKENS[at]], committed=at)) for at in range(40, 60))

    run_with_deadline(work)
    np.testing.assert_array_equal(np.concatenate(found), expected)


@pytest.mark.parametrize("threads", [2, 4])
def test_no_thread_reads_what_another_has_yet_to_write(threads: int) -> None:
    """Rows pass from thread to thread with no work between; other rows each time, so that stale ones show."""
    random = np.random.default_rng(1)
    logits = random.normal(size=(64, 512)).astype(np.float32)
    trunk = make_logits_trunk(logits, threads=threads)
    for _ in range(100):
        tokens = random.permutation(64)
        # the first row is not wanted, so that every thread selects rows of another
        found = wanted_logits(trunk, rows_of_one(tokens, wanted=range(1, 64)))
        np.testing.assert_array_equal(found, logits[tokens[1:]])


def test_passes_may_come_from_different_python_threads(tiny_checkpoint: GetCheckpoint) -> None:
    trunk = load_trunk(tiny_checkpoint(), threads=2)
    expected = prefill_logits(trunk, TOKENS)
    trunk.make_cache(4)
    for begin in range(0, 60, 20):
        found: list[np.ndarray] = []
        rows = rows_of_one(TOKENS[begin : begin + 20], committed=begin)
        run_with_deadline(lambda rows=rows, found=found: found.append(wanted_logits(trunk, rows)))
        np.testing.assert_array_equal(found[0], expected[begin : begin + 20])


def test_teams_come_and_go(tiny_checkpoint: GetCheckpoint) -> None:
    def count_threads() -> int:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))

    gc.collect()
    before = count_threads()

    def work() -> None:
        for _ in range(10):
            prefill_logits(load_trunk(tiny_checkpoint(), threads=4), TOKENS)
            load_trunk(tiny_checkpoint(), threads=4)  # a team that never ran must end as well

    run_with_deadline(work)
    gc.collect()
    assert count_threads() <= before


@pytest.mark.parametrize("threads", [2, 4])
def test_an_idle_team_takes_no_time(threads: int, tiny_checkpoint: GetCheckpoint) -> None:
    trunk = load_trunk(tiny_checkpoint(), threads=threads)
    prefill_logits(trunk, TOKENS)
    begin, idle = time.process_time(), threading.Event()
    wall = time.monotonic()
    idle.wait(0.2)
    assert time.process_time() - begin < 0.5 * (time.monotonic() - wall)
    del trunk


def test_the_interpreter_runs_on_during_a_pass(tiny_checkpoint: GetCheckpoint) -> None:
    """A pass gives up the interpreter's lock: another Python thread makes headway meanwhile."""
    trunk: NativeTrunk = load_trunk(tiny_checkpoint(kind="Q4_K", num_layers=2), threads=1, instruction_set="portable")
    trunk.make_cache(10)
    rows = rows_of_one((TOKENS * 3)[:160])
    ticks, done = [0], threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks[0] += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        before = ticks[0]
        trunk.forward(rows)
        during = ticks[0] - before
    finally:
        done.set()
        ticker.join()
    assert during > 1000


def test_a_fork_is_told_to_load_the_model_itself(tiny_checkpoint: GetCheckpoint) -> None:
    """It has the memory of the model but not its threads: without a word it would wait for them for ever."""
    trunk = load_trunk(tiny_checkpoint(), threads=2)
    trunk.make_cache(4)
    child = os.fork()
    if child == 0:
        try:
            trunk.forward(rows_of_one(TOKENS[:4]))
        except RuntimeError as error:
            os._exit(3 if "after forking" in str(error) else 4)
        os._exit(5)
    deadline = time.monotonic() + STALL_S
    done = 0
    while not done and time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert done, "it waits for threads that it does not have"
    assert os.waitstatus_to_exitcode(status) == 3
    trunk.forward(rows_of_one(TOKENS[:4]))  # here they are


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer itself needs more addresses")
def test_threads_that_the_system_does_not_give_are_an_error() -> None:
    """In a process of its own, whose memory has no room for the stacks of so many."""
    script = """
import resource
from headstart import _native
_native.Program(1, "portable")
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
try:
    _native.Program(1000, "portable")
except RuntimeError:
    raise SystemExit(7)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=STALL_S)
    assert done.returncode == 7, done.stderr
