"""How far off each profile was seen to be, from the committed data: `python -m benchmarks.gpu.spread` writes it down.

A model's *excess* is by how much the error measured on the GPU exceeded the predicted one, on the worst of its outputs
and versions (`gaps.ratios`: root mean squares over the inputs). The spread is what the excess of one more model stays
below at nineteen in twenty, if models are drawn alike: of n models the one in place 0.95 (n + 1), counted from the
smallest, and the largest where that is beyond the last. Models that hold a loose operator count by themselves.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.fidelity import MODES
from benchmarks.gpu.gaps import DATA, ratios

__all__ = ["MODULE", "bound", "excesses", "left_out", "module", "spreads"]

MODULE = Path(__file__).resolve().parents[2] / "src" / "halfwise" / "emulation" / "profiles" / "spreads.py"
COVERED = 0.95
FLOOR = 1e-4  # of the measured error: below it FP32 kernels themselves differ by as much, fused and unfused

_HEAD = '''"""How far measured errors exceeded predicted ones; from data, by `python -m benchmarks.gpu.spread`."""

from __future__ import annotations

__all__ = ["LOOSE_SPREADS", "SPREADS"]
'''


def excesses(models: Mapping[str, Any], mode: str, *, loose: bool) -> dict[str, float]:
    """By model, the largest measured over predicted error of its outputs and versions, less one; 0 where none is."""
    found = {}
    for name, entry in models.items():
        if bool(entry["loose"]) is not loose:
            continue
        seen = [1 / ratio for row in entry["versions"].values() for ratio in ratios(row, mode, FLOOR).values()]
        if seen:
            found[name] = max(0.0, max(seen) - 1.0)
    return found


def bound(values: Iterable[float]) -> float:
    """What one more value of the same kind stays below, in whole percent, rounded up; 0 without values."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    place = min(math.ceil(COVERED * (len(ordered) + 1)), len(ordered))
    return math.ceil(round(100 * ordered[place - 1], 6)) / 100


def spreads(models: Mapping[str, Any], *, loose: bool) -> dict[str, float]:
    """By profile."""
    return {profile: bound(excesses(models, mode, loose=loose).values()) for mode, profile in MODES.items()}


def left_out(models: Mapping[str, Any], mode: str) -> tuple[int, int]:
    """How many models stay within the spread that the others give, and of how many."""
    found = excesses(models, mode, loose=False)
    within = sum(value <= bound(other for key, other in found.items() if key != name) for name, value in found.items())
    return within, len(found)


def module(models: Mapping[str, Any]) -> str:
    """The text of the module that the profiles read."""
    plain = spreads(models, loose=False)
    loose = {profile: max(found, plain[profile]) for profile, found in spreads(models, loose=True).items()}
    rows = [f"{name} = {json.dumps(values)}" for name, values in (("SPREADS", plain), ("LOOSE_SPREADS", loose))]
    return "\n".join([_HEAD, *rows]) + "\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    models = json.loads((DATA / "fidelity.json").read_text(encoding="utf-8"))["models"]
    MODULE.write_text(module(models), encoding="utf-8")
    for mode, profile in MODES.items():
        for loose in (False, True):
            found = excesses(models, mode, loose=loose)
            worst = sorted(found, key=lambda name: -found[name])[:3]
            told = ", ".join(f"{name} {found[name]:.1%}" for name in worst)
            kind = "with loose operators" if loose else "others"
            print(f"{profile}, {len(found)} models {kind}: {spreads(models, loose=loose)[profile]:.0%} (worst: {told})")
        within, count = left_out(models, mode)
        print(f"{profile}: {within} of {count} within the spread of the others")


if __name__ == "__main__":
    main()
