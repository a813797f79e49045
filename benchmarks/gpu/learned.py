"""What `prove` learned beside the built-in rules: `python -m benchmarks.gpu.learned FIDELITY.json`.

FIDELITY.json is of `benchmarks.fidelity --machine FILE`. Ratios are predicted over measured errors of plain FP16, with
ONNX Runtime's fusions, rms over the inputs, on the output where the built-in rules are furthest off.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

__all__ = ["main"]

_LEAST = 1e-5  # measured: less is not told
_NEAR = 1.1
_OF = {"built-in": "ort-cuda", "learned": "learned", "least rounding": "learned, least",
       "narrow convolutions": "narrow convolutions"}  # fmt: skip


def main() -> None:
    content = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(f"{content['machine']}\n\n| model | measured | " + " | ".join(_OF) + " |")
    print("|---|---:|" + "---:|" * len(_OF))
    near: dict[str, int] = dict.fromkeys(_OF, 0)
    inside = better = worse = told = 0
    for name, entry in sorted(content["models"].items()):
        row = entry["versions"].get("fp16")
        if row is None or "learned" not in row["predicted"]:
            continue
        found = _ratios(row)
        if found is None:
            print(f"| {name} | not finite or under {_LEAST:g} |" + " |" * len(_OF))
            continue
        measured, ratios = found
        told += 1
        for title, ratio in ratios.items():
            near[title] += 1 / _NEAR <= ratio <= _NEAR
        off = {title: abs(math.log(max(ratio, 1e-9))) for title, ratio in ratios.items()}
        better += off["learned"] < off["built-in"] - 0.02
        worse += off["learned"] > off["built-in"] + 0.02
        low, high = sorted((ratios["least rounding"], ratios["learned"]))
        inside += low / _NEAR <= 1 <= high * _NEAR
        print(f"| {name} | {measured:.1e} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios.values()) + " |")
    print("\nwithin 0.91 to 1.1: " + ", ".join(f"{title} {count} of {told}" for title, count in near.items()))
    print(f"learned nearer by more than 2%: {better}, further by more than 2%: {worse}; "
          f"measured within the learned ends: {inside}")  # fmt: skip


def _ratios(row: dict[str, Any]) -> tuple[float, dict[str, float]] | None:
    """Of the output on which the built-in rules are furthest off."""
    best: tuple[float, float, dict[str, float]] | None = None
    for output in row["measured"]["fused"][0]:
        measured = _rms(row["measured"]["fused"], output)
        predicted = {title: _rms(row["predicted"][key], output) for title, key in _OF.items()}
        if not _LEAST <= measured < math.inf or not all(map(math.isfinite, predicted.values())):
            continue
        ratios = {title: each / measured for title, each in predicted.items()}
        off = abs(math.log(max(ratios["built-in"], 1e-9)))
        if best is None or off > best[0]:
            best = off, measured, ratios
    return None if best is None else best[1:]


def _rms(errors: list[dict[str, dict[str, float]]], output: str) -> float:
    values = [each[output].get("rel_l2", math.nan) for each in errors if output in each]
    return math.sqrt(sum(value**2 for value in values) / len(values)) if values else math.nan


if __name__ == "__main__":
    main()
