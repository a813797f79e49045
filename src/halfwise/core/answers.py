"""What the FP32 model answers: whether there is anything in it to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import tensors_in
from halfwise.core.errors import InputError
from halfwise.core.metrics import is_float

__all__ = ["check_answers"]


def check_answers(answers: Sequence[Mapping[str, NDArray[Any]]]) -> None:
    """Refuse inputs for which FP32 itself has no answer, or no finite one."""
    arrays = [array for answer in answers for array in tensors_in(answer.values())]
    if not any(np.size(array) for array in arrays):
        raise InputError("the FP32 model's own outputs are empty for every input: nothing can be compared; give others")
    floats = [array for array in arrays if is_float(array.dtype) and array.size]
    if floats and not any(np.isfinite(array.astype(np.float64)).any() for array in floats):
        raise InputError("the FP32 model's own outputs hold no finite value for any input: check the inputs")
