"""What the ready measures have in common: a name, options, named numbers, and one error of which 0 is perfect."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError

__all__ = ["Array", "Measure", "Outputs", "greatest", "named_output", "only_output", "scores_of"]

Array = NDArray[Any]
Outputs = Mapping[str, Array]


@dataclass(frozen=True)
class Measure(ABC):
    """A function of reference outputs and other outputs; its fields are its options, in --metric NAME:KEY=VALUE,..."""

    name: ClassVar[str] = ""
    finer: ClassVar[str] = ""  # an option with which it may see what it does not see without

    def __call__(self, reference: Outputs, other: Outputs) -> float:
        try:
            return greatest(self.details(reference, other))
        except (ValueError, IndexError, TypeError) as error:
            told = str(error).partition("\n")[0]
            raise InputError(f"--metric {self.spec} does not fit these outputs: {told}") from error

    def finds_any(self, reference: Outputs) -> bool:
        """Whether there is something that it counts: where there is none, any answer without new ones is perfect."""
        return True

    @abstractmethod
    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        """Errors by name, 0 is perfect; the largest counts."""

    @property
    def spec(self) -> str:
        """As it is written after --metric."""
        options = ",".join(f"{key}={_written(value)}" for key, value in self._set())
        return f"{self.name}:{options}" if options else self.name

    def _set(self) -> Iterator[tuple[str, Any]]:
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                yield field.name, value


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def greatest(details: Mapping[str, float]) -> float:
    values = [float(value) for value in details.values()]
    return float("inf") if any(np.isnan(values)) else max(values, default=0.0)


def named_output(measure: Measure, outputs: Outputs, name: str) -> Array:
    if name not in outputs:
        raise InputError(f"--metric {measure.spec}: there is no output {name!r}; there are {', '.join(outputs)}")
    return np.asarray(outputs[name])


def scores_of(measure: Measure, outputs: Outputs, name: str) -> Array:
    """The output of that name, which holds numbers of any size: none that only name a class."""
    array = named_output(measure, outputs, name)
    if array.dtype in (np.int64, np.bool_):
        raise InputError(
            f"--metric {measure.spec}: output {name!r} holds classes ({array.dtype}), no numbers to compare; "
            f"for tokens or codes, --metric text; for a map of classes, --metric mask"
        )
    return array


def only_output(measure: Measure, outputs: Outputs, name: str = "") -> str:
    """The output that is meant: the one named, or the only one that holds real numbers; else the largest of them."""
    if name:
        named_output(measure, outputs, name)
        return name
    floats = [each for each, array in outputs.items() if np.asarray(array).dtype.kind == "f"] or list(outputs)
    if not floats:
        raise InputError(f"--metric {measure.spec}: the model has no output")
    return max(floats, key=lambda each: np.asarray(outputs[each]).size)
