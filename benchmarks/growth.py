"""How the time grows with the graph: python -m benchmarks.growth [--peer-python PYTHON].

The same decomposed transformer at 379, 1,477 and 2,941 nodes; with `--chain` a chain of so many small residual branches
in its place, a large part of which has to stay in FP32: 125, 250, 500, 1,000 and 3,000 make 504 to 12,004 nodes.
halfwise's time is split into running models, loading them into the runtime, and everything outside it. An exponent is
the slope between two neighbouring sizes on logarithmic axes: 1 is linear, 2 quadratic. CPU: seconds of processor time,
all threads together.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import load_case
from benchmarks.contest import Entry, enter, machine, markdown
from benchmarks.peers.task import Answer

__all__ = ["Measurement", "main", "parser", "table"]

LAYERS = (6, 24, 48)
TOOLS = ("halfwise", "AutoCast")
HEAD = (
    *("nodes", "tool", "held out", "FP32", "runs", "seconds", "CPU", "running", "loading", "outside"),
    *("exponent", "exponent outside"),
)


@dataclass(frozen=True)
class Measurement:
    """One tool at one size."""

    nodes: int
    tolerance: float
    entry: Entry

    @property
    def tool(self) -> str:
        return self.entry.tool

    @property
    def answer(self) -> Answer:
        return self.entry.answer

    @property
    def outside(self) -> float | None:
        """Seconds outside the runtime, where the tool splits its time."""
        split = self.answer.split
        return self.answer.seconds - split["running"] - split["loading"] if split else None


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    found = []
    names = [f"chain_{count}" for count in options.chain] or [f"transformer_{count}" for count in options.layers]
    for name in names:
        case = load_case(name, Path())
        assert case is not None
        for tool in options.tools:
            nodes = len(case.model.graph.node)
            print(f"{nodes} nodes: {tool} ...", file=sys.stderr, flush=True)
            python = sys.executable if tool == "halfwise" else options.peer_python
            entry = enter(tool, case, python, options.limit, options.repeats)
            found.append(Measurement(nodes, case.tolerance, entry))
    print(f"{machine()}\n")
    print(table(found))
    print("\nHeld out: the worst error on inputs that the tool was not given, over the allowed one.")
    print(f"Seconds: median of {options.repeats} fresh processes, without imports (*: of one).")
    return 0


def table(found: Sequence[Measurement]) -> str:
    rows = []
    last: dict[str, Measurement] = {}
    for each in sorted(found, key=lambda m: (m.tool != "halfwise", m.nodes)):
        rows.append(_row(each, last.get(each.tool)))
        last[each.tool] = each
    return markdown(HEAD, rows)


def _row(each: Measurement, smaller: Measurement | None) -> tuple[str, ...]:
    answer = each.answer
    if answer.problem:
        return (str(each.nodes), each.tool, answer.problem, *[""] * (len(HEAD) - 3))
    split = [answer.split.get("running"), answer.split.get("loading"), each.outside]
    exponents = ["", ""]
    if smaller is not None and not smaller.answer.problem:
        exponents[0] = _exponent(smaller.nodes, smaller.answer.seconds, each.nodes, answer.seconds)
        if smaller.outside and each.outside:
            exponents[1] = _exponent(smaller.nodes, smaller.outside, each.nodes, each.outside)
    return (
        str(each.nodes),
        each.tool,
        *_judged(each),
        f"{answer.seconds:.2f}{'*' if each.entry.calls == 1 else ''}",
        f"{answer.cpu:.2f}",
        *("" if part is None else f"{part:.2f}" for part in split),
        *exponents,
    )


def _judged(each: Measurement) -> tuple[str, str, str]:
    """The worst error on inputs that the tool was not given, over the allowed one; FP32 nodes; runs."""
    errors, census, runs = each.entry.errors, each.entry.census, each.answer.model_runs
    ratio = "" if errors is None else f"{errors.rel_l2 / each.tolerance:.2f}"
    return ratio, "" if census is None else str(census.fp32), f"{runs:.1f}" if runs else ""


def _exponent(nodes: int, seconds: float, more_nodes: int, more_seconds: float) -> str:
    return f"{math.log(more_seconds / seconds) / math.log(more_nodes / nodes):.2f}"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peer installed")
    made.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS, metavar="TOOL", help=" or ".join(TOOLS))
    made.add_argument("--layers", nargs="+", type=int, default=LAYERS, help="sizes to measure")
    made.add_argument("--chain", nargs="+", type=int, default=(), help="branches of a deep chain, in place of layers")
    made.add_argument("--repeats", type=int, default=3, help="calls whose median counts")
    made.add_argument("--limit", type=float, default=300.0, help="seconds a call may take")
    return made


if __name__ == "__main__":
    sys.exit(main())
