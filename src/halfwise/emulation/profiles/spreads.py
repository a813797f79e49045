"""How far measured errors exceeded predicted ones; from data, by `python -m benchmarks.gpu.spread`."""

from __future__ import annotations

__all__ = ["LOOSE_SPREADS", "SPREADS"]

SPREADS = {"ort-cuda-unfused": 0.08, "ort-cuda": 0.11}
LOOSE_SPREADS = {"ort-cuda-unfused": 0.14, "ort-cuda": 0.94}
