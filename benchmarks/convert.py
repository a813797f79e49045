"""`halfwise.convert` beside AutoCast, in processor time, which a busy machine does not stretch by waiting:

    python -m benchmarks.convert [--peer-python PYTHON]

Each call is a fresh process with the same model and inputs; the answer is judged on inputs that neither saw.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import REAL, load_case, models_folder
from benchmarks.contest import OURS, Entry, enter, machine, markdown

__all__ = ["main"]

TOOLS = ("halfwise.convert", "AutoCast")
HEAD = ("model", "tool", "CPU s", "seconds", "FP32 nodes", "error", "allowed", "remark")


def main(arguments: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(prog="python -m benchmarks.convert", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--peer-python", default=sys.executable, help="interpreter that has ModelOpt installed")
    made.add_argument(
        "--models", nargs="+", choices=REAL, default=("yolox_nano",), metavar="NAME", help=", ".join(REAL)
    )
    made.add_argument("--models-folder", type=Path, default=models_folder(), help="where the real models lie")
    made.add_argument("--repeats", type=int, default=3, help="calls whose median counts")
    options = made.parse_args(arguments)
    rows = []
    for name in options.models:
        case = load_case(name, options.models_folder)
        if case is None:
            print(f"{name}: left out, {options.models_folder / name} is not there", file=sys.stderr)
            continue
        for tool in TOOLS:
            python = sys.executable if tool in OURS else options.peer_python
            rows.append(_row(name, enter(tool, case, python, 300.0, options.repeats), case.tolerance))
    print(f"{machine()}\n\n{markdown(HEAD, rows)}\n\nWithout imports; median of {options.repeats} calls.")
    return 0


def _row(name: str, entry: Entry, allowed: float) -> tuple[str, ...]:
    answer = entry.answer
    found = entry.errors.rel_l2 if entry.errors is not None else math.nan
    nodes = "" if entry.census is None else str(entry.census.fp32)
    cost = f"{answer.cpu:.2f}", f"{answer.seconds:.2f}"
    return (name, entry.tool, *cost, nodes, f"{found:.2e}", f"{allowed:.0e}", answer.problem[:80])


if __name__ == "__main__":
    sys.exit(main())
