"""Are as many FP32 nodes needed as `fix` keeps of a network without inputs?

    python -m benchmarks.optimum.needed MODEL TOLERANCE SECONDS

Inputs are made up, repairs are off. For so many seconds nodes go one by one, in an order drawn again and again, from
what `fix` keeps and from all nodes: as long as the ratio to expect of other inputs stays within the tolerance, which is
what `fix` asks, and as long as the inputs themselves do, which is less; held-out inputs count as they do in `fix`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from halfwise.precision.assignment import Assignment
from halfwise.search.held_inputs import HELD_OUT_TARGET
from halfwise.search.held_out import Decided, HeldOutSearch
from halfwise.search.judge import Measured
from halfwise.verbs.fix.fix import fix

__all__ = ["main"]

Nodes = frozenset[ir.Node]


def main() -> None:
    model, tolerance, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    os.environ["HALFWISE_CONTAIN"] = "0"  # the search is looked at: it runs in this process
    seen = list[tuple[HeldOutSearch, Decided]]()
    run = HeldOutSearch.run

    def watched(search: HeldOutSearch) -> Decided:
        seen.append((search, run(search)))
        return seen[-1][1]

    HeldOutSearch.run = watched  # type: ignore[assignment, method-assign]
    found = fix(model, tolerance=(f"rel_l2<={tolerance}",), repairs=("none",))
    search, decided = seen[0]
    free = frozenset(site.node for site in decided.sites.free)
    start = frozenset(decided.formats)
    print(f"fix keeps {len(start)} of {len(free)} nodes; met: {found.met}; {found.cost.model_runs:.1f} runs")
    asks: dict[str, Callable[[Measured], bool]] = {
        "other inputs": lambda measured: measured.unseen_bound <= 1.0,
        "these inputs": lambda measured: measured.ratio <= 1.0,
    }
    for name, holds in asks.items():
        fewest, tries = _fewest(search, decided, start, free, holds, seconds / len(asks))
        print(f"within the tolerance on {name}: {fewest} nodes at least in {tries} orders")


def _fewest(
    search: HeldOutSearch,
    decided: Decided,
    start: Nodes,
    free: Nodes,
    holds: Callable[[Measured], bool],
    seconds: float,
) -> tuple[int, int]:
    """The smallest set that was seen to hold, and the number of orders that were tried to the end."""
    judge = search.context.judge(decided.sites, decided.samples.search)
    held_out = search.context.judge(decided.sites, decided.samples.validation)

    def bears(keep: Nodes) -> bool:
        trial = Assignment.all_narrow(decided.sites, keep)
        return holds(judge.measure(trial)) and held_out.measure(trial).ratio <= HELD_OUT_TARGET

    rng, until, best, tries = np.random.default_rng(0), time.monotonic() + seconds, start, 0
    while time.monotonic() < until:
        keep = start if tries % 2 == 0 else free
        order = sorted(keep, key=lambda node: node.name or "")
        for place in rng.permutation(len(order)):
            fewer = keep - {order[place]}
            if time.monotonic() < until and bears(fewer):
                keep = fewer
        tries += 1
        best = min(best, keep, key=len)
    return len(best), tries


if __name__ == "__main__":
    main()
