"""halfwise: finds why a network goes wrong in FP16, repairs it with the fewest FP32 layers, and proves it."""

from __future__ import annotations

__version__ = "0.1.0"
