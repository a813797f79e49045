"""What of one job idle cores can answer: python -m benchmarks.fleet_split [--nodes N] [--inputs N ...].

One `fix` with helpers in its own process that are always idle. Executions of the model: all, those of evaluations (the
FP32 reference, trial sets, repairs, the verdict), and those that helpers answered; the rest are walks from node to
node. The plan is compared with that of a job without helpers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import onnx

import halfwise
from benchmarks.contest import markdown
from benchmarks.fleet_models import model_of
from halfwise.emulation import shared
from halfwise.emulation.ort import Answer
from halfwise.search.run_counter import RunCounter

__all__ = ["main", "parser"]

HEAD = ("inputs", "executions", "of evaluations", "answered elsewhere", "same plan")
IDLE = 64


@dataclass(frozen=True)
class _Answered:
    found: Sequence[Answer]

    def answers(self, wait_s: float) -> Sequence[Answer]:
        return self.found


@dataclass(frozen=True)
class _Helpers:
    counts: Counter[str]

    def saved(self, seconds: float) -> None:
        pass

    def idle(self) -> int:
        return IDLE

    def ask(self, recipe: shared.Recipe, feeds: Sequence[Mapping[str, Any]]) -> _Answered:
        self.counts["elsewhere"] += len(feeds)
        return _Answered(list(recipe.session().answers(feeds)))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    model, feeds = model_of(options.nodes, 0)
    rows = []
    for count in options.inputs:
        with tempfile.TemporaryDirectory(prefix="halfwise-split-") as folder:
            path = Path(folder) / "model.onnx"
            onnx.save(model, path)
            alone = _plan(path, feeds[:count], path.with_name("alone"))
            counts, plan = _counted(path, feeds[:count])
        told = (counts["all"], counts["evaluations"], counts["elsewhere"])
        rows.append((str(count), *(f"{each:.0f}" for each in told), "yes" if plan == alone else "NO"))
    print(markdown(HEAD, rows))
    return 0


def _counted(path: Path, feeds: Sequence[Any]) -> tuple[Counter[str], Any]:
    counts: Counter[str] = Counter()
    add, answers = RunCounter.add, shared.SharedSession.answers

    def counted(self: RunCounter, samples: float) -> None:
        counts["all"] += samples  # type: ignore[assignment]
        add(self, samples)

    def answered(self: shared.SharedSession, given: Sequence[Any]) -> Any:
        counts["evaluations"] += len(given)
        return answers(self, given)

    with (
        mock.patch.object(shared, "_WORTH_S", 0.0),
        mock.patch.object(shared, "_state", []),
        mock.patch.object(RunCounter, "add", counted),
        mock.patch.object(shared.SharedSession, "answers", answered),
    ):
        shared.attach(_Helpers(counts))
        return counts, _plan(path, feeds, path.with_name("split"))


def _plan(path: Path, feeds: Sequence[Any], out: Path) -> Any:
    document = halfwise.fix(path, inputs=feeds, out=out).to_json()
    return document["nodes"], document["repairs"], document["error"]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.fleet_split", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--nodes", type=int, default=318, help="of the model")
    made.add_argument("--inputs", type=int, nargs="*", default=[4, 10], help="how many inputs it has")
    return made


if __name__ == "__main__":
    sys.exit(main())
