"""What inputs of transformers hold, by their names: masks that leave out padding, and positions in a row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.metrics import is_float
from halfwise.model.input_spec import InputSpec

__all__ = ["is_mask", "usual_values"]

_OF = "attention|attn|input|pixel|observed|token|text|source|src|target|tgt|encoder|decoder"
_MASK = re.compile(rf"(?i)(?!.*pad)(.*[^a-z])?(({_OF})_?)?masks?")
_POSITIONS = re.compile(r"(?i)(.*[^a-z])?(cache_)?(position|pos)s?(_?ids?)?")
_PADDED = 4  # one value of so many is padding, in every other input

Shapes = Mapping[str, tuple[int, ...]]


def usual_values(specs: Sequence[InputSpec], shapes: Shapes, index: int) -> dict[str, NDArray[Any]]:
    """Nothing of the inputs whose names say nothing. Masks of fractions are ones, too: whether they are multiplied with
    scores or added to all of them, nothing is hidden."""
    masks = [spec for spec in specs if is_mask(spec)]
    places = [spec for spec in specs if _is_called(spec, _POSITIONS) and spec.dtype.kind in "iu"]
    longest = max((shapes[spec.name][-1] for spec in masks if len(shapes[spec.name]) == 2), default=0)
    found = {spec.name: _mask(shapes[spec.name], index).astype(spec.dtype) for spec in masks}
    return found | {spec.name: _positions(spec, shapes[spec.name], longest) for spec in places}


def is_mask(spec: InputSpec) -> bool:
    """Whether it says what is seen."""
    return _is_called(spec, _MASK) and spec.most == 1


def _is_called(spec: InputSpec, name: re.Pattern[str]) -> bool:
    kind = (spec.dtype.kind in "iub" or is_float(spec.dtype)) and not spec.sequence and bool(spec.shape)
    return kind and name.fullmatch(spec.plain_name) is not None


def _mask(shape: tuple[int, ...], index: int) -> NDArray[Any]:
    """What is seen is 1; every other input ends in padding."""
    mask = np.ones(shape, np.int64)
    if index % 2 and shape[-1] >= _PADDED:
        mask[..., -(shape[-1] // _PADDED) :] = 0
    return mask


def _positions(spec: InputSpec, shape: tuple[int, ...], longest: int) -> NDArray[Any]:
    """The last ones of as many as a mask is long, as behind what a cache holds; within the table that they choose
    from."""
    ends = max(longest, shape[-1])
    places = np.arange(ends - shape[-1], ends)
    return np.broadcast_to(np.minimum(places, spec.most) if spec.most > 1 else places, shape).astype(spec.dtype)
