"""This version beside an older one, on one machine: python -m benchmarks.versions CHECKOUT [--models NAME ...].

CHECKOUT is a folder with another commit (`git worktree add CHECKOUT COMMIT`). Calls of both take turns, so that a
machine that others use slows both alike; the least CPU seconds of each count, for others only ever add to them.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnx

from benchmarks.cases import Case, load_case, models_folder
from benchmarks.contest import ROOT, ask, machine, markdown
from benchmarks.main_job import MODELS
from benchmarks.peers.task import Answer
from benchmarks.strict import census, judge

__all__ = ["main", "parser"]

GROWING = ("transformer_6", "transformer_24", "transformer_48")
HEAD = ("model", "nodes", "version", "error over allowed", "FP32 nodes", "runs", "CPU s", "seconds")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    checkouts = {"older": options.checkout.resolve(), "this": ROOT}
    rows = []
    for name in options.models:
        case = load_case(name, options.models_folder)
        if case is None:
            print(f"{name}: left out, it is not in {options.models_folder}", file=sys.stderr)
            continue
        answers: dict[str, list[Answer]] = {version: [] for version in checkouts}
        told: dict[str, tuple[str, str]] = {}
        for turn in range(options.repeats):
            for version, checkout in checkouts.items():
                print(f"{name}: {version}, call {turn + 1} ...", file=sys.stderr, flush=True)
                with tempfile.TemporaryDirectory() as folder:
                    answers[version].append(
                        ask("halfwise", case, sys.executable, options.limit, Path(folder), checkout)
                    )
                    told[version] = _judged(case, Path(folder))
        rows += [_row(case, version, answers[version], told[version]) for version in checkouts]
    print(f"{machine()}\n\n{markdown(HEAD, rows)}\n\nLeast of {options.repeats} calls each, in turns.")
    return 0


def _judged(case: Case, folder: Path) -> tuple[str, str]:
    """The worst error on held-out inputs over the allowed one, and the FP32 nodes."""
    if not (folder / "out.onnx").exists():
        return "no model", ""
    typed = onnx.load(folder / "out.onnx")
    return f"{judge(case.model, typed, case.held_out).rel_l2 / case.tolerance:.2f}", str(census(typed).fp32)


def _row(case: Case, version: str, answers: Sequence[Answer], told: tuple[str, str]) -> tuple[str, ...]:
    done = [answer for answer in answers if not answer.problem]
    cpu, seconds = (min((getattr(each, of) for each in done), default=math.nan) for of in ("cpu", "seconds"))
    runs = f"{done[-1].model_runs:.1f}" if done else ""
    return (case.name, str(len(case.model.graph.node)), version, *told, runs, f"{cpu:.2f}", f"{seconds:.2f}")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=(__doc__ or "").splitlines()[0])
    made.add_argument("checkout", type=Path, help="folder with the older version")
    made.add_argument("--models", nargs="+", default=(*MODELS, *GROWING), metavar="NAME", help="as benchmarks.cases")
    made.add_argument("--models-folder", type=Path, default=models_folder(), help="where the real models lie")
    made.add_argument("--repeats", type=int, default=3, help="calls of each version")
    made.add_argument("--limit", type=float, default=300.0, help="seconds a call may take")
    return made


if __name__ == "__main__":
    sys.exit(main())
