"""The main job against its peers, on one table: python -m benchmarks.main_job [--peer-python PYTHON].

Every tool gets the same model and the same inputs, in a fresh process; its answer is judged by benchmarks.strict on
inputs that it never saw. Peers run in the interpreter given, so that what they need does not mix with the project's.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cases import BUILT, FOLDS, REAL, Case, load_case, models_folder
from benchmarks.contest import OURS, TOOLS, Entry, enter, machine, markdown
from benchmarks.peers.task import NOT_INSTALLED

__all__ = ["main", "parser", "row"]

HEAD = ("model", "tool", "held out", "error", "FP32 nodes", "that compute", "model runs", "seconds", "CPU s", "remark")
REMARK = 100  # letters of a message that stand in the table
MODELS = (*BUILT, *REAL)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    versions: dict[str, str] = {}
    rows = []
    for case in _cases(options.models, options.models_folder, options.every_fold):
        for tool in options.tools:
            print(f"{case.name}: {tool} ...", file=sys.stderr, flush=True)
            python = sys.executable if tool in OURS else options.peer_python
            entry = enter(tool, case, python, options.limit, options.repeats)
            versions.update((name, version) for name, version in _versions(entry) if version)
            rows.append(row(case, entry))
    print(f"{machine()}; {', '.join(f'{name} {version}' for name, version in versions.items())}\n")
    print(markdown(HEAD, rows))
    print(
        f"\nEvery {FOLDS}th input is held out, and judged with a pair of Casts behind every FP16 tensor."
        f" Error: the worst rel_l2."
        f"\nSeconds: median of {options.repeats} fresh processes, without imports (*: of one); CPU: of the"
        f" tool's own process."
    )
    return 0


def row(case: Case, entry: Entry) -> tuple[str, ...]:
    """One line of the table."""
    answer = entry.answer
    if answer.problem == NOT_INSTALLED:
        return (case.name, entry.tool, "", "", "", "", "", "", "", NOT_INSTALLED)
    times = f"{answer.seconds:.2f}{'*' if entry.calls == 1 else ''}", f"{answer.cpu:.2f}" if answer.cpu else ""
    runs = f"{answer.model_runs:.1f}" if answer.model_runs else "0"
    if entry.errors is None or entry.census is None:
        return (case.name, entry.tool, "no model", "", "", "", runs, *times, _shortened(answer.problem))
    met = entry.errors.met(case.tolerance)
    remark = f"says {answer.says}" if answer.says and (answer.says == "met") != met else ""
    error = f"{entry.errors.rel_l2:.2e}" if math.isfinite(entry.errors.rel_l2) else "not finite"
    count = entry.census
    verdict = f"{'met' if met else 'missed'} ({case.tolerance:.1%})"
    return (case.name, entry.tool, verdict, error, str(count.fp32), str(count.fp32_compute), runs, *times, remark)


def _shortened(text: str) -> str:
    return text if len(text) <= REMARK else f"{text[: REMARK - 4].rstrip()} ..."


def _cases(names: Sequence[str], folder: Path, every_fold: bool) -> Iterator[Case]:
    for name in names:
        for fold in range(FOLDS) if every_fold else (FOLDS - 1,):
            case = load_case(name, folder, fold)
            if case is None:
                print(f"{name}: left out, {folder / name} is not there", file=sys.stderr)
                break
            yield replace(case, name=f"{name}, part {fold + 1}") if every_fold else case


def _versions(entry: Entry) -> Iterator[tuple[str, str]]:
    side = "" if entry.tool in OURS else " (peers)"
    for name, version in entry.answer.versions.items():
        shared = name in ("onnx", "onnxruntime")
        yield (f"{name}{side}" if shared else name), version


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.main_job", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peers installed")
    made.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="NAME", help=", ".join(MODELS))
    made.add_argument("--tools", nargs="+", choices=tuple(TOOLS), default=tuple(TOOLS), metavar="TOOL",
                        help="; ".join(TOOLS))  # fmt: skip
    made.add_argument("--models-folder", type=Path, default=models_folder(), help="where the real models lie")
    made.add_argument("--repeats", type=int, default=3, help="calls whose median counts")
    made.add_argument("--limit", type=float, default=300.0, help="seconds a call may take")
    made.add_argument("--every-fold", action="store_true", help="hold each input out once, a line per part held out")
    return made


if __name__ == "__main__":
    sys.exit(main())
