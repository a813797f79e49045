"""What a model declares of an input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["InputSpec"]


@dataclass(frozen=True)
class InputSpec:
    """What the model declares of an input. In the shape a str is a symbol, None unknown; None as shape: no rank."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str | None, ...] | None
