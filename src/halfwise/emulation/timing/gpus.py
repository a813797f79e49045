"""What NVIDIA states of its GPUs: dense peaks with FP32 accumulation, and the bandwidth of their memory.

From the data sheets of T4, A10, A100 80GB SXM, L4, H100 SXM, H200 and Jetson AGX Orin 64GB, and the white paper of the
Ada architecture for the RTX 4090. Where a sheet states sparse rates only, half of them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PEAKS", "Peak"]


@dataclass(frozen=True)
class Peak:
    """TFLOP/s in FP16 on tensor cores, in TF32, and in FP32; GB/s. No TF32: `tf32` is that of FP32."""

    title: str
    fp16: float
    tf32: float
    fp32: float
    bandwidth: float


PEAKS = {
    "t4": Peak("T4", 65.0, 8.1, 8.1, 320.0),
    "a10": Peak("A10", 125.0, 62.5, 31.2, 600.0),
    "a100": Peak("A100 80GB", 312.0, 156.0, 19.5, 2039.0),
    "l4": Peak("L4", 121.0, 60.0, 30.3, 300.0),
    "h100": Peak("H100", 989.0, 494.0, 67.0, 3350.0),
    "h200": Peak("H200", 989.0, 494.0, 67.0, 4800.0),
    "orin": Peak("Jetson AGX Orin", 42.5, 21.2, 5.3, 204.8),
    "rtx4090": Peak("RTX 4090", 165.2, 82.6, 82.6, 1008.0),
}
