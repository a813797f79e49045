"""Judges what the GPU made of every operator form: `python -m benchmarks.gpu.operators RAW.npz RAW.json OUT.json`.

`collect_operators` made the raw results. Each is compared with the emulation under `strict` and under the profile of
the provider: the share of equal numbers, the largest distance in units of the last place, and the difference.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.probes import FORMS, Form
from halfwise.emulation.probes.judge import EQUAL, distance
from halfwise.emulation.profiles import ORT_CUDA, ORT_CUDA_UNFUSED, STRICT, Profile
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["EQUAL", "is_proven"]

Array = NDArray[Any]


def is_proven(row: Mapping[str, Any]) -> bool:
    """Bit-equal in nearly all places, or never more than one unit of the last place away."""
    return bool(row["equal"] >= EQUAL or row["largest_ulp"] <= 1)


def main() -> None:
    raw, about = np.load(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    forms: list[dict[str, Any]] = []
    for form in FORMS:
        seen = about["forms"][form.name]
        if "error" in seen:
            continue
        feed = form.feed()
        narrow = {k: a.astype(np.float16) if a.dtype == np.float32 else a for k, a in feed.items()}
        if zlib.crc32(b"".join(narrow[name].tobytes() for name in sorted(narrow))) != seen["inputs"]:
            raise SystemExit(f"{form.name}: the inputs drawn here are not those that the GPU saw")
        profile = ORT_CUDA if form.fused else ORT_CUDA_UNFUSED
        forms.append(
            {
                "name": form.name,
                "operator": form.op,
                "length": form.length,
                "fused": form.fused,
                "provider": "+".join(sorted({each for text in seen["placement"].values() for each in text.split("+")})),
                "repeats": not any(key.startswith(f"{form.name}|") and key.endswith("heuristic") for key in raw.files),
                "strict": _judged(form, STRICT, raw),
                "profile": _judged(form, profile, raw),
            }
        )
    document = {"schema": "halfwise.operators/1", "machine": about["machine"], "forms": forms}
    Path(sys.argv[3]).write_text(json.dumps(document, indent=1), encoding="utf-8")
    proven = [sum(is_proven(form[key]) for form in forms) for key in ("strict", "profile")]
    print(f"{len(forms)} forms; proven: {proven[0]} under strict, {proven[1]} under the provider's profile")


def _judged(form: Form, profile: Profile, raw: Mapping[str, Array]) -> dict[str, float]:
    """The worst of a form's outputs."""
    assignment = Assignment.all_narrow(Sites(load(form.model())), io=Format.FP16)
    outputs = list(Emulator(profile).session(assignment).run(form.feed()).values())
    equal, largest, difference = 1.0, 0, 0.0
    for index, output in enumerate(outputs):
        seen = raw[f"{form.name}|{index}"]
        if seen.dtype.kind != "f":
            equal = min(equal, float(np.mean(seen == output)))
            continue
        with np.errstate(all="ignore"):
            narrow = output.astype(np.float16)
        apart = distance(seen, narrow)
        equal, largest = min(equal, float(np.mean(apart == 0))), max(largest, int(apart.max()))
        fine = np.isfinite(seen) & np.isfinite(narrow)
        wide, other = seen[fine].astype(np.float64), narrow[fine].astype(np.float64)
        size = float(np.sqrt(np.mean(wide**2))) if wide.size else 0.0
        difference = max(difference, float(np.sqrt(np.mean((wide - other) ** 2))) / size if size else 0.0)
    return {"equal": round(equal, 5), "largest_ulp": largest, "difference": float(f"{difference:.2e}")}


if __name__ == "__main__":
    main()
