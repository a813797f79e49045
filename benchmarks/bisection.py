"""How many builds `bisect` takes to name hidden culprits, on a backend that is a set of names: needs no GPU.

    python -m benchmarks.bisection [--seeds 200] [--json]

Each row hides culprits in so many nodes, in so many random ways; the answer counts only if it is exact. "Useful": the
emulator's ranking puts all 8 among its first 16; "half useful": 6 of them, and 2 anywhere; "useless": anywhere.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import cast

from halfwise.verbs.bisect.culprits import Answer, Found, find_culprits

__all__ = ["CASES", "Case", "Row", "builds_of", "measure"]

Hide = Callable[[random.Random], frozenset[int]]  # the ranks of the culprits
_NODES = 1000


@dataclass(frozen=True)
class Case:
    """A way of hiding culprits, by their places in the ranking."""

    name: str
    nodes: int
    hide: Hide


@dataclass(frozen=True)
class Row:
    case: str
    nodes: int
    seeds: int
    median: float
    worst: int
    exact: int


def _anywhere(count: int, nodes: int = _NODES) -> Hide:
    return lambda rng: frozenset(rng.sample(range(nodes), count))


def _half_useful(rng: random.Random) -> frozenset[int]:
    return frozenset(rng.sample(range(16), 6)) | frozenset(rng.sample(range(16, _NODES), 2))


def _beside_each_other(rng: random.Random) -> frozenset[int]:
    first = rng.randrange(_NODES - 8)
    return frozenset(range(first, first + 8))


CASES = (
    Case("none", _NODES, lambda rng: frozenset()),
    Case("1, ranking useless", _NODES, _anywhere(1)),
    Case("2, ranking useless", _NODES, _anywhere(2)),
    Case("8, ranking useless", _NODES, _anywhere(8)),
    Case("8 beside each other, ranking useless", _NODES, _beside_each_other),
    Case("8, ranking half useful", _NODES, _half_useful),
    Case("8, ranking useful", _NODES, lambda rng: frozenset(rng.sample(range(16), 8))),
    Case("8, ranking right", _NODES, lambda rng: frozenset(range(8))),
    Case("1, ranking right", _NODES, lambda rng: frozenset([0])),
    Case("30, ranking useless", _NODES, _anywhere(30)),
    Case("8 of 4,000, ranking useless", 4000, _anywhere(8, 4000)),
)


def builds_of(nodes: int, culprits: frozenset[int]) -> tuple[int, Found]:
    """Builds until the answer, and the answer, where the result is good only with all of them in FP32."""
    builds = 0

    def ask(narrow: frozenset[int]) -> Answer:
        nonlocal builds
        builds += 1
        return Answer.BAD if narrow & culprits else Answer.GOOD

    return builds, found_by(ask, nodes)


def found_by(ask: Callable[[frozenset[int]], Answer | None], nodes: int) -> Found:
    """What the search finds where `ask` answers."""
    search = find_culprits(nodes)
    narrow = next(search)
    while True:
        try:
            narrow = search.send(ask(narrow))
        except StopIteration as end:
            return cast(Found, end.value)


def measure(case: Case, seeds: int) -> Row:
    counts, exact = [], 0
    for seed in range(seeds):
        culprits = case.hide(random.Random(seed))
        builds, found = builds_of(case.nodes, culprits)
        counts.append(builds)
        exact += found.culprits == tuple(sorted(culprits))
    return Row(case.name, case.nodes, seeds, statistics.median(counts), max(counts), exact)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    arguments = parser.parse_args()
    rows = [measure(case, arguments.seeds) for case in CASES]
    if arguments.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    print("| culprits | nodes | builds, median | builds, worst | exact |")
    print("|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.case} | {row.nodes:,} | {row.median:g} | {row.worst} | {row.exact} of {row.seeds} |")


if __name__ == "__main__":
    main()
