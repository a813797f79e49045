"""How long the HTML report takes and how large it is: python -m benchmarks.report_speed.

The decomposed transformer at 379, 1,477 and 2,941 nodes, its plan given so that nothing is searched; each node's share
of the error is measured as a search would. The page must be made in under 2 s and hold less than 1.5 MB at 3,000 nodes.
Seconds are the median of the repeats, imports not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.contest import machine, markdown
from tests.models.zoo import transformer

__all__ = ["main", "parser"]

LAYERS = (6, 24, 48)
HEAD = ("nodes", "tensors", "seconds", "MB")


def main(arguments: Sequence[str] | None = None) -> int:
    from halfwise.core.formats import Format
    from halfwise.core.notes import Note, NoteKind
    from halfwise.core.reasons import Reason
    from halfwise.core.tolerance import Tolerance
    from halfwise.emulation.emulate import Emulator
    from halfwise.emulation.profiles import STRICT
    from halfwise.emulation.stepper import Stepper
    from halfwise.precision.plan import Plan, PlannedNode
    from halfwise.report.html import write_report
    from halfwise.search.diagnosis import diagnose
    from halfwise.search.noise import noise_pieces
    from halfwise.search.sensitivity import Sensitivity, measure_sensitivity
    from halfwise.verbs.fix.fix import fix

    options = parser().parse_args(arguments)
    rows = []
    for layers in options.layers:
        zoo = transformer(layers=layers)
        operators = {node.name: node.op_type for node in zoo.model.graph.node}
        kept = tuple(
            PlannedNode(n, operators[n], Format.FP32, Reason.WANTED, (Note.of(NoteKind.IN_PLAN),))
            for n in zoo.known_good
        )
        plan = Plan("", "", 0, "onnx", "strict", Tolerance.default(), Format.FP32, "", kept)
        result = fix(zoo.model, zoo.inputs[:2], plan=plan)
        seen = Sensitivity()
        measure_sensitivity(Stepper(Emulator(STRICT)), result.sites, result.samples.search[0], seen)
        found = diagnose(result.sites, noise_pieces(result.sites, seen), {})
        result = replace(result, measured=replace(result.measured, diagnosis=found))
        with tempfile.TemporaryDirectory() as folder:
            times = []
            for _ in range(options.repeats):
                started = time.perf_counter()
                path = write_report(result, Path(folder) / "report.html")
                times.append(time.perf_counter() - started)
            size = path.stat().st_size / 1e6
        seconds = f"{statistics.median(times):.2f}"
        rows.append((f"{len(result.sites.all):,}", f"{len(result.measured.ranges):,}", seconds, f"{size:.2f}"))
    print(f"{machine()}\n")
    print(markdown(HEAD, rows))
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.report_speed", description=(__doc__ or "").splitlines()[0]
    )
    made.add_argument("--layers", nargs="+", type=int, default=LAYERS, help="sizes to measure")
    made.add_argument("--repeats", type=int, default=3, help="reports whose median counts")
    return made


if __name__ == "__main__":
    sys.exit(main())
