"""Inputs of a model as the tests of samples declare, write and refuse them."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest

from halfwise.core.errors import InputError
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.samples import load_samples

F32, I64, TEXT = np.dtype(np.float32), np.dtype(np.int64), np.dtype(object)
X = InputSpec("x", F32, ("N", 3))
IDS = InputSpec("ids", I64, ("N",))
IMAGE = InputSpec("image", F32, (1, 2))


def x(value: float, rows: int = 1) -> np.ndarray:
    return np.full((rows, 3), value, np.float32)


def refused(specs: list[InputSpec], sources: Any, **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_samples(specs, sources, **settings)
    return str(caught.value)


def encoded(array: np.ndarray) -> dict[str, str]:
    stream = io.BytesIO()
    np.save(stream, array)
    return {"array": base64.b64encode(stream.getvalue()).decode(), "polygraphy_class": "ndarray"}
