"""How long a decision is predicted to run: its kernels, and what each takes."""

from halfwise.emulation.latency.kernels import Kernel, Shapes, kernels_of
from halfwise.emulation.latency.latency import Latency, latency_of

__all__ = ["Kernel", "Latency", "Shapes", "kernels_of", "latency_of"]
