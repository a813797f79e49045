"""Exact repairs against what else there is: python -m benchmarks.repairs [--peer-python PYTHON].

First table: models that overflow, underflow or divide by zero in FP16, made usable by each tool; all get the same
inputs, in a fresh process each, and are judged on inputs that they never saw. Second table: models for which plain FP16
is fine already, where repairs must not cost accuracy.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import onnx

from benchmarks.cases import REAL, Case, load_case, models_folder
from benchmarks.contest import OURS, PEERS, TOOLS, Entry, enter, machine, markdown
from benchmarks.main_job import HEAD, row
from benchmarks.strict import Errors, judge
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.repair import Ranges, repaired, rules_named
from halfwise.search.tensor_statistics import ranges_of, tensor_statistics
from halfwise.verbs.fix.fix import fix
from tests.models.zoo import SHAPES, ZooModel, cnn_tiny_weights, detr_head, encoder, norm_log_head, transformer

__all__ = ["main", "parser"]

FOLDS = 4
REACH: dict[str, tuple[Callable[[], ZooModel], int]] = {
    "encoder, 13 overflowing LayerNorms": (encoder, 0),
    "CNN, whole weights of 1e-8 to 1e-6": (partial(cnn_tiny_weights, "tensors"), 0),
    "CNN, channels of 1e-8 to 1e-6": (partial(cnn_tiny_weights, "channels"), 0),
    "L2-norm, sum, exp and log head": (norm_log_head, 2),
}
WORSE = 1.05  # times plain FP16's error


@dataclass(frozen=True)
class Harmless:
    """Errors of one model for which plain FP16 is fine: plain, as `fix` leaves it, and with every repair that fits."""

    name: str
    plain: Errors
    fixed: Errors
    places: int
    every: Errors | None

    @property
    def ratio(self) -> float:
        return _ratio(self.fixed, self.plain)

    def cells(self) -> tuple[str, ...]:
        every = "" if self.every is None else f"{_ratio(self.every, self.plain):.3f}"
        return (
            self.name,
            f"{self.plain.rel_l2:.2e}",
            f"{self.fixed.rel_l2:.2e}",
            f"{self.ratio:.3f}",
            str(self.places),
            every,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    print(f"{machine()}\n")
    if "reach" in options.tables:
        _reach(options)
    if "harmless" in options.tables:
        _harmless(options.models_folder)
    return 0


# -- the models that fail ----------------------------------------------------------------------------------------------


def _reach(options: argparse.Namespace) -> None:
    lines, summary = [], []
    for name, (build, wanted) in REACH.items():
        case = _case(name, build())
        entries: dict[str, Entry] = {}
        for tool in TOOLS:
            print(f"{name}: {tool} ...", file=sys.stderr, flush=True)
            python = sys.executable if tool in OURS else options.peer_python
            entries[tool] = enter(tool, case, python, options.limit, options.repeats)
            lines.append(row(case, entries[tool]))
        ours = entries["halfwise"]
        reached = _met(ours, case) and ours.census is not None and ours.census.fp32_compute <= wanted
        summary.append((
            name,
            "; ".join(f"{tool} {_said(entries[tool], case)}" for tool in PEERS),
            _said(entries["halfwise, no repairs"], case),
            _said(ours, case),
            f"<= {wanted}",
            "yes" if reached else "NO",
        ))  # fmt: skip
    print(markdown(HEAD, lines))
    print(f"\nSeconds: median of {options.repeats} fresh processes, without imports (*: of one).\n")
    head = ("model", "peers: FP32 nodes that compute", "halfwise, no repairs", "halfwise", "to reach", "reached")
    print(markdown(head, summary))
    print()


def _case(name: str, built: ZooModel) -> Case:
    given = tuple(feed for index, feed in enumerate(built.inputs) if index % FOLDS != FOLDS - 1)
    return Case(name, built.model, given, tuple(built.inputs[FOLDS - 1 :: FOLDS]), built.tolerance)


def _met(entry: Entry, case: Case) -> bool:
    return entry.errors is not None and entry.errors.met(case.tolerance)


def _said(entry: Entry, case: Case) -> str:
    """How many FP32 nodes a tool left, and by how much it missed where it did."""
    if entry.errors is None or entry.census is None:
        return f"no model ({entry.answer.problem[:40]})"
    count, times = entry.census.fp32_compute, entry.errors.rel_l2 / case.tolerance
    if _met(entry, case):
        return str(count)
    return f"{count}, missed {'(not finite)' if not math.isfinite(times) else f'{times:.3g} times'}"


# -- the models that do not --------------------------------------------------------------------------------------------


def _harmless(folder: Path) -> None:
    found = []
    for case in _every_case(folder):
        print(f"{case.name} ...", file=sys.stderr, flush=True)
        one = _compare(case)
        if one is not None:
            found.append(one)
    head = ("fine in FP16", "plain error", "after fix", "ratio", "places where a rule fits", "ratio, all repaired")
    print(markdown(head, [one.cells() for one in found]))
    ratios = [one.ratio for one in found]
    forced = [_ratio(one.every, one.plain) for one in found if one.every is not None]
    print(
        f"\n{len(found)} models: ratio at most {max(ratios):.3f}, median {statistics.median(ratios):.3f} "
        f"(to reach: never over {WORSE}); with every repair that fits, wanted or not: at most {max(forced):.3f}, "
        f"median {statistics.median(forced):.3f}"
    )


def _every_case(folder: Path) -> Iterator[Case]:
    built = [build() for build in SHAPES.values()]
    built += [encoder(), detr_head(), norm_log_head(), cnn_tiny_weights("tensors"), transformer(24)]
    for each in built:
        yield _case(each.name, each)
    for name in REAL:
        case = load_case(name, folder)
        if case is not None:
            yield case


def _compare(case: Case) -> Harmless | None:
    """None where plain FP16 is not fine."""
    model = load(case.model)
    with tempfile.TemporaryDirectory() as scratch:
        plain = _judged(case, model, Path(scratch))
        if not plain.met(case.tolerance):
            return None
        result = fix(model, case.given, out=scratch, tolerance=[f"*:rel_l2<={case.tolerance!r}"])
        assert result.typed is not None
        fixed = judge(case.model, onnx.load(result.typed.path), case.held_out)
        ranges = _ranges(model, case)
        found = [(rule, repair) for rule in rules_named(["all"]) for repair in rule.find(model, ranges)]
        every = _judged(case, repaired(model, found)[0], Path(scratch)) if found else None
    return Harmless(case.name, plain, fixed, len(found), every)


def _judged(case: Case, model: Model, scratch: Path) -> Errors:
    typed = write_typed(Assignment.all_narrow(Sites(model)), scratch / "typed.onnx")
    return judge(case.model, onnx.load(typed.path), case.held_out)


def _ranges(model: Model, case: Case) -> Ranges:
    stepper, sites = Stepper(Emulator()), Sites(model)
    return ranges_of([tensor_statistics(stepper, sites, widen_feeds(feed)) for feed in case.given])


def _ratio(one: Errors, other: Errors) -> float:
    if other.rel_l2 == 0.0:
        return 1.0 if one.rel_l2 == 0.0 else math.inf
    return one.rel_l2 / other.rel_l2


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.repairs", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peers installed")
    made.add_argument("--tables", nargs="+", choices=("reach", "harmless"), default=("reach", "harmless"))
    made.add_argument("--models-folder", type=Path, default=models_folder(), help="where the real models lie")
    made.add_argument("--repeats", type=int, default=3, help="calls whose median counts")
    made.add_argument("--limit", type=float, default=300.0, help="seconds a call may take")
    return made


if __name__ == "__main__":
    sys.exit(main())
