"""Does "met" hold on inputs that nobody gave? python -m benchmarks.promise [--draws N] [--given N ...].

Each model is fixed with a few inputs of a distribution, again and again with others, and every answer is judged on 64
fresh inputs of the same distribution. A promise is broken where more than 5% of them miss the tolerance.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.contest import machine, markdown
from halfwise import fix
from halfwise.core.notes import NoteKind
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import STRICT, WIDE
from halfwise.model.inputs.feed import Feed
from halfwise.precision.assignment import Assignment
from halfwise.search.judge import Judge, Question
from halfwise.verbs.fix.result import FixResult
from tests.models.zoo import SHAPES, detr_head, encoder, norm_log_head, transformer

__all__ = ["main", "parser"]

Arrays = dict[str, NDArray[Any]]
FRESH = 64
SHARE = 0.05  # of fresh inputs that may miss
HEAD = ("model", "inputs", "met", "broken", "said so", "fresh over", "worst", "FP32 nodes", "runs", "seconds")


@dataclass(frozen=True)
class Subject:
    """A model, the tolerance asked for, and inputs from which others of their kind are drawn."""

    model: onnx.ModelProto
    tolerance: tuple[str, ...]
    base: Sequence[Arrays]

    def draw(self, rng: np.random.Generator) -> Arrays:
        """Parts of two inputs, louder or quieter; whole numbers as they were in one of them."""
        one, other = (self.base[index] for index in rng.integers(len(self.base), size=2))
        factor = np.float32(np.exp(rng.normal(0.0, 0.2)))
        made = {}
        for name, array in one.items():
            if array.dtype.kind != "f" or array.ndim == 0:
                made[name] = array
                continue
            from_other = rng.random((array.shape[0], *array.shape[1:2], *(1,) * (array.ndim - 2))) < 0.5
            mixed = np.where(from_other, other[name], array) if other[name].shape == array.shape else array
            made[name] = np.asarray(mixed * factor, array.dtype)
        return made


@dataclass(frozen=True)
class Outcome:
    met: bool
    warned: bool
    over: float  # share of fresh inputs
    worst: float  # ratio
    nodes: int
    runs: float
    seconds: float

    @property
    def broken(self) -> bool:
        return self.met and self.over > SHARE


def _zoo(make: Callable[[], Any]) -> Subject:
    made = make()
    return Subject(made.model, (f"*:rel_l2<={made.tolerance}",), made.inputs)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "encoder": lambda: _zoo(encoder),
    "detr_head": lambda: _zoo(detr_head),
    "norm_log_head": lambda: _zoo(norm_log_head),
    "transformer_379": lambda: _zoo(lambda: transformer(379)),
    **{name: (lambda name=name: _zoo(SHAPES[name])) for name in  # type: ignore[misc]
       ("log_of_energy", "large_phase", "inverse_sigmoid", "gram_matrix", "l2_norm_of_small_vectors",
        "log_of_probability", "variance_by_moments", "large_coordinates")},
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    rows, everything = [], []
    for name in options.models:
        subject = SUBJECTS[name]()
        for given in options.given:
            found = list(_outcomes(subject, given, options.draws, options.repairs))
            everything += found
            rows.append(_row(name, str(given), found))
            print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    rows.append(_row("all", "", everything))
    print(f"{machine()}\n\n{markdown(HEAD, rows)}")
    return 0


def _outcomes(subject: Subject, given: int, draws: int, repairs: str) -> Iterator[Outcome]:
    fresh_rng = np.random.default_rng(99)
    fresh = [Feed(10_000 + index, subject.draw(fresh_rng)) for index in range(FRESH)]
    for number in range(draws):
        rng = np.random.default_rng([number, given])
        inputs = [subject.draw(rng) for _ in range(given)]
        started = time.perf_counter()
        result = fix(subject.model, inputs, tolerance=subject.tolerance, repairs=repairs)
        seconds = time.perf_counter() - started
        ratios = _ratios(result, fresh)
        kinds = {note.kind for note in result.notes}
        yield Outcome(
            result.met,
            NoteKind.UNSEEN_MAY_MISS in kinds,
            float(np.mean(ratios > 1.0)),
            float(ratios.max()),
            len(result.fp32_nodes),
            result.cost.model_runs,
            seconds,
        )


def _ratios(result: FixResult, fresh: Sequence[Feed]) -> NDArray[np.float64]:
    """On each fresh input the worse of strict and wide, by the same tolerance."""
    formats = {result.sites.model.node_by_name[node.name]: node.format for node in result.plan.nodes}
    decision = Assignment.excepting(result.sites, formats, result.plan.io_types)
    tolerance: Tolerance = result.plan.tolerance
    strict = Emulator(STRICT)
    judge = Judge(result.sites, strict, Question(tolerance), fresh, also=(strict.under(WIDE),))
    return np.array(judge.measure(decision).ratios)


def _row(name: str, given: str, found: Sequence[Outcome]) -> tuple[str, ...]:
    met = [each for each in found if each.met]
    broken = [each for each in met if each.broken]
    return (
        name,
        given,
        f"{len(met)} of {len(found)}",
        f"{len(broken)} ({len(broken) / max(1, len(met)):.0%})",
        str(sum(each.warned for each in broken)),
        f"{np.mean([each.over for each in met] or [0.0]):.1%}",
        f"{max((each.worst for each in met), default=0.0):.2f}",
        f"{np.mean([each.nodes for each in found]):.1f}",
        f"{np.median([each.runs for each in found]):.1f}",
        f"{np.median([each.seconds for each in found]):.2f}",
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.promise", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--draws", type=int, default=20, help="sets of inputs for each model and number of inputs")
    made.add_argument("--given", type=int, nargs="+", default=[4, 8, 16], help="how many inputs are given")
    made.add_argument("--models", nargs="+", choices=tuple(SUBJECTS), default=tuple(SUBJECTS), metavar="NAME",
                      help=", ".join(SUBJECTS))  # fmt: skip
    made.add_argument("--repairs", default="all", help="as of fix; none leaves more for FP32 to hold")
    return made


if __name__ == "__main__":
    sys.exit(main())
