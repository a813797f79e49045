"""Masks and maps of classes: the overlap of each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from halfwise.core.errors import InputError
from halfwise.core.measures.measure import Array, Measure, Outputs, named_output
from halfwise.core.wording import counted

__all__ = ["Mask"]

_AREA = 4  # places of a class, on average: fewer are no area


@dataclass(frozen=True)
class Mask(Measure):
    """Error: `overlap`, 1 - mean IoU over the classes that the reference has.

    Whole numbers and truth values are classes as they are. Floats are scores: the largest along `axis` is the class;
    an axis of length 1 is compared with `threshold`. `output` names the output where there are several.
    """

    name: ClassVar[str] = "mask"
    finer: ClassVar[str] = "threshold=0.3"
    output: str = ""
    axis: int = 1
    threshold: float = 0.5

    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        name = self.output or self._found(reference)
        a, b = (self._classes(named_output(self, side, name)) for side in (reference, other))
        if a.shape != b.shape:
            return {"overlap": float("inf")}
        classes = np.unique(a)
        if a.ndim < 2 or a.size < _AREA * classes.size:
            raise InputError(
                f"--metric {self.spec}: output {name!r} has {counted(classes.size, 'class', 'classes')} in "
                f"{counted(a.size, 'place')}, and a mask's classes cover areas; for tokens or codes, --metric text"
            )
        return {"overlap": 1.0 - float(np.mean([np.sum((a == c) & (b == c)) / np.sum((a == c) | (b == c))
                                                for c in classes])) if a.size else 0.0}  # fmt: skip

    def _found(self, outputs: Outputs) -> str:
        exact = [name for name, array in outputs.items() if np.asarray(array).dtype.kind in "iub"]
        return max(exact or list(outputs), key=lambda name: np.size(outputs[name]))

    def _classes(self, array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        if array.ndim <= self.axis:
            raise InputError(f"--metric {self.spec}: the output has no axis {self.axis}; give axis=NUMBER")
        if array.shape[self.axis] == 1:
            return array >= self.threshold
        return np.asarray(array.argmax(self.axis))
