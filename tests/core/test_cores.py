"""Work in blocks: every block once and in order, also from within a block, in a fork, and where a block fails."""

from __future__ import annotations

import os
import threading

import pytest

from halfwise.core.cores import in_blocks


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")


def test_each_block_is_done_once_and_told_in_order() -> None:
    assert in_blocks(lambda start, stop: (start, stop), 10, 4) == [(0, 4), (4, 8), (8, 10)]
    assert in_blocks(lambda start, stop: stop - start, 0, 4) == []


def test_threads_are_started_once() -> None:
    seen = {each for _ in range(20) for each in in_blocks(lambda *_: threading.get_ident(), 8, 1)}
    assert len(seen) <= 3  # whoever asks works, too


def test_a_block_may_ask_for_blocks() -> None:
    def inner(start: int, stop: int) -> int:
        return sum(in_blocks(lambda first, last: last - first, 10, 1))

    assert in_blocks(inner, 8, 1) == [10] * 8


def test_an_error_of_another_thread_comes_too() -> None:
    asking, met = threading.get_ident(), threading.Barrier(2)

    def work(start: int, stop: int) -> None:
        met.wait(10)
        if threading.get_ident() != asking:
            raise ValueError("beside")

    with pytest.raises(ValueError, match="beside"):
        in_blocks(work, 2, 1)


def test_an_error_comes_when_no_block_works_any_more() -> None:
    working = set[int]()

    def work(start: int, stop: int) -> None:
        working.add(start)
        if start == 0:
            raise ValueError("the first")
        threading.Event().wait(0.05)
        working.discard(start)

    with pytest.raises(ValueError, match="the first"):
        in_blocks(work, 3, 1)
    assert working <= {0}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_starts_threads_of_its_own() -> None:
    in_blocks(lambda *_: None, 4, 1)
    child = os.fork()
    if not child:
        os._exit(sum(in_blocks(lambda start, stop: stop - start, 4, 1)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
