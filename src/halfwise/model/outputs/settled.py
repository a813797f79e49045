"""Whether inputs of a model can change that its outputs are empty or hold no finite value."""

from __future__ import annotations

from halfwise.core.metrics import is_float
from halfwise.model.model import Model

__all__ = ["settled"]


def settled(model: Model) -> bool:
    """Whether every float input is empty by its declared shape, so that there are no other values to give."""
    floats = [given for given in model.inputs if is_float(given.dtype)]
    return bool(floats) and all(given.shape is not None and 0 in given.shape for given in floats)
