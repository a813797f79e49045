"""Decides which groups of nodes to try next, until every node is either cleared or proven to be a culprit.

The nodes are cleared from the least suspicious on: a group joins those that are narrow already, everything else being
FP32. A good answer clears the group; a bad one is halved until one node is left, which breaks the result together with
what was cleared before it. So every culprit is proven by two builds that differ in that node alone, and whatever the
backend does - culprits that only break something together, or small errors that add up - the nodes named are enough,
and none of them can be spared: putting any one back breaks the result. All this asks of a backend is that more FP32
does not make a good result bad.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from halfwise.verbs.bisect.belief import Belief

__all__ = ["Answer", "Ending", "Found", "find_culprits"]

Ending = Literal["none", "control", "found", "budget"]

SUSPECTED_SUM = 10  # culprits from which it is asked whether they break anything by themselves
PROBED = 3  # of them, the least suspicious


class Answer(Enum):
    """What a build said. The third answer says nothing about the result."""

    GOOD = "good"
    BAD = "bad"
    FAILED = "failed"


Narrow = frozenset[int]  # a question: is the result good with just these nodes narrow?
Reply = Answer | None  # None: no more builds are allowed


@dataclass(frozen=True)
class Found:
    """The outcome. With `culprits`, `unbuildable` and `unproven` in FP32 the result is good, if it ever was.

    `ending`: "none" (nothing is wrong), "control" (wrong in FP32, too), "found", "budget" (builds ran out).
    """

    ending: Ending
    culprits: tuple[int, ...] = ()
    unbuildable: tuple[int, ...] = ()  # what cannot be judged: every build with the node narrow failed
    unproven: tuple[int, ...] = ()  # not looked at before the builds ran out
    sum: bool = False  # many culprits, and a few of them alone break nothing: small errors add up
    measured: bool = True  # a build with just this set in FP32 was made, and was good


class _OutOfBuilds(Exception):
    pass


def find_culprits(count: int) -> Generator[Narrow, Reply, Found]:
    """Yields what to build, takes the answer, and returns what it found.

    Nodes 0 to count - 1 are in the order of suspicion, the most suspicious first.
    """
    search = _Search(count)
    try:
        return (yield from search.run())
    except _OutOfBuilds:
        return search.found("budget")


class _Search:
    def __init__(self, count: int) -> None:
        self._belief = Belief.before(max(count, 1))  # of no nodes nothing is asked
        self._pool = list(range(count))[::-1]  # not decided, the least suspicious first
        self._tainted = 0  # so many at the front of the pool are known to hold a culprit, beside what is cleared
        self._cleared: list[int] = []
        self._culprits: list[int] = []
        self._aside: list[int] = []  # their builds failed
        self._sum: bool | None = None
        self._controlled = False

    def run(self) -> Generator[Narrow, Reply, Found]:
        whole = yield from _answer(self._pool)
        if whole is Answer.GOOD:
            return Found("none")
        control = yield from _answer([])
        if control is not Answer.GOOD:
            return Found("control", measured=control is Answer.BAD)
        self._controlled = True
        if whole is Answer.BAD:
            self._tainted = len(self._pool)
        while self._pool:
            yield from self._step()
            if self._sum is None and len(self._culprits) >= SUSPECTED_SUM:
                yield from self._ask_for_sum()
        for node in self._aside[:]:  # once more, now that what stands around them has changed
            yield from self._settle(node)
        return self.found("found")

    def found(self, ending: Ending) -> Found:
        return Found(
            ending,
            tuple(sorted(self._culprits)),
            tuple(sorted(self._aside)),
            tuple(sorted(self._pool)),
            bool(self._sum),
            self._controlled,
        )

    # -- one step ---------------------------------------------------------------------------------------------------

    def _step(self) -> Generator[Narrow, Reply, None]:
        """Clear a beginning of the pool, or learn that it holds a culprit."""
        if self._tainted == 1:
            self._convict()
            return
        for length in self._lengths():
            answer = yield from _answer([*self._cleared, *self._pool[:length]])
            if answer is Answer.GOOD:
                self._clear(length)
                return
            if answer is Answer.BAD:
                self._tainted = length
                return
        # Not even the first node alone comes out, and whatever is known of the group may rest on it.
        self._aside.append(self._pool.pop(0))
        self._tainted = 0

    def _lengths(self) -> Iterator[int]:
        """The beginning to try, and others in case that its build fails: ever shorter ones, the last of them twice."""
        length = self._length()
        yield length
        while length > 1:
            length = (length + 1) // 2 if length > 2 else 1
            yield length
        yield 1

    def _length(self) -> int:
        """The beginning whose answer says most: as likely clean as not."""
        if self._tainted:
            chances = self._belief.clean(self._pool[: self._tainted], True)[:-1]
        else:
            chances = self._belief.clean(self._pool, False)
        return int(abs(chances - 0.5).argmin()) + 1

    def _clear(self, length: int) -> None:
        self._belief = self._belief.clearing(self._pool[:length])
        self._cleared += self._pool[:length]
        del self._pool[:length]
        self._tainted = max(self._tainted - length, 0)

    def _convict(self) -> None:
        node = self._pool.pop(0)
        self._belief = self._belief.convicting(node)
        self._culprits.append(node)
        self._tainted = 0

    def _settle(self, node: int) -> Generator[Narrow, Reply, None]:
        answer = yield from _answer([*self._cleared, node])
        if answer is not Answer.FAILED:
            self._aside.remove(node)
            (self._cleared if answer is Answer.GOOD else self._culprits).append(node)

    def _ask_for_sum(self) -> Generator[Narrow, Reply, None]:
        """Do the first culprits break anything with everything else in FP32? If not, it is errors adding up."""
        answer = yield from _answer(self._culprits[:PROBED])
        self._sum = answer is Answer.GOOD


def _answer(narrow: list[int]) -> Generator[Narrow, Reply, Answer]:
    answer = yield frozenset(narrow)
    if answer is None:
        raise _OutOfBuilds
    return answer
