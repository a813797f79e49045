"""Does "met" hold on inputs that nobody gave? python -m benchmarks.promise [--jobs N] [--rows FILE] [--before FILE].

Each model is fixed with a few inputs of a distribution, again and again with others, and every answer is judged on 64
fresh inputs of the same distribution. A promise is broken where more than 5% of them miss the tolerance. Each trial is
a line of FILE at once, and is not made again: the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.contest import machine, markdown
from benchmarks.promise.models import SUBJECTS
from benchmarks.promise.trial import Outcome, Trial, outcome_of

__all__ = ["main", "parser"]

GIVEN = (4, 8, 16)
HEAD = ("model", "inputs", "met", "warned", "broken", "unsaid", "fresh over", "worst", "FP32 nodes", "before", "runs",
        "most")  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    draws = product(range(options.draws), options.models, options.given)
    trials = [Trial(name, given, draw, options.repairs) for draw, name, given in draws]
    found = _known(options.rows)
    for trial, outcome in _outcomes([trial for trial in trials if trial.key not in found], options.jobs):
        found[trial.key] = outcome
        print(f"{trial.key}: {'BROKEN ' if outcome.broken else ''}{outcome}", file=sys.stderr, flush=True)
        if options.rows is not None:
            with options.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"trial": trial.key, **asdict(outcome)}) + "\n")
    before = _known(options.before)
    rows = [
        _row(name, str(given), [t for t in trials if (t.model, t.given) == (name, given)], found, before)
        for name, given in product(options.models, options.given)
    ]
    rows.append(_row("all", "", trials, found, before))
    print(f"{machine()}\n\n{markdown(HEAD, rows)}")
    return 0


def _known(path: Path | None) -> dict[str, Outcome]:
    """The trials of an earlier run, by their keys; a line that was cut off is made anew."""
    found: dict[str, Outcome] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else ():
        try:
            entry = json.loads(line)
            key = entry.pop("trial")
            found[key] = Outcome(**entry)
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _outcomes(trials: Sequence[Trial], jobs: int) -> Iterator[tuple[Trial, Outcome]]:
    if jobs <= 1:
        yield from ((trial, outcome_of(trial)) for trial in trials)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running = {pool.submit(outcome_of, trial): trial for trial in trials}
        for done in as_completed(running):
            yield running[done], done.result()


def _row(
    name: str, given: str, trials: Sequence[Trial], outcomes: Mapping[str, Outcome], before: Mapping[str, Outcome]
) -> tuple[str, ...]:
    found = [outcomes[trial.key] for trial in trials]
    met = [each for each in found if each.met]
    broken = [each for each in met if each.broken]
    earlier = [before[trial.key].nodes for trial in trials if trial.key in before]
    return (
        name,
        given,
        f"{len(met)} of {len(found)}",
        str(sum(each.warned for each in met)),
        f"{len(broken)} ({len(broken) / max(1, len(met)):.0%})",
        str(sum(not each.warned for each in broken)),
        f"{np.mean([each.over for each in met] or [0.0]):.1%}",
        f"{max((each.worst for each in met), default=0.0):.2f}",
        f"{np.mean([each.nodes for each in found]):.1f}",
        f"{np.mean(earlier):.1f}" if earlier else "",
        f"{np.median([each.runs for each in found]):.1f}",
        f"{max(each.runs for each in found):.1f}",
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.promise", description=(__doc__ or "").splitlines()[0])
    made.add_argument("--draws", type=int, default=20, help="sets of inputs for each model and number of inputs")
    made.add_argument("--given", type=int, nargs="+", default=GIVEN, help="how many inputs are given")
    made.add_argument("--models", nargs="+", choices=tuple(SUBJECTS), default=tuple(SUBJECTS), metavar="NAME",
                      help=", ".join(SUBJECTS))  # fmt: skip
    made.add_argument("--repairs", default="all", help="as of fix; none leaves more for FP32 to hold")
    made.add_argument("--jobs", type=int, default=1, help="processes at a time; set OMP_NUM_THREADS=1 with several")
    made.add_argument("--rows", type=Path, help="file in which every trial is kept")
    made.add_argument("--before", type=Path, help="such a file of another version: its FP32 nodes stand beside")
    return made


if __name__ == "__main__":
    sys.exit(main())
