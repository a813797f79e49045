"""A module's inputs as people give them: a tensor, a tuple of arguments, a dictionary of keywords, or a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from halfwise.core.errors import InputError

__all__ = ["Call", "calls_of"]


@dataclass(frozen=True)
class Call:
    """One sample: what a module is called with."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def calls_of(inputs: Any) -> tuple[Call, ...]:
    """Every sample as a call. A list holds samples; a module that takes a list takes it in a tuple: `([a, b],)`."""
    if isinstance(inputs, list):
        if not inputs:
            raise InputError("there are no inputs in the list; give at least one sample")
        return tuple(_call(sample) for sample in inputs)
    return (_call(inputs),)


def _call(sample: Any) -> Call:
    if isinstance(sample, Call):
        return sample
    if isinstance(sample, tuple):
        if len(sample) == 2 and isinstance(sample[0], tuple) and _is_keywords(sample[1]):
            return Call(sample[0], dict(sample[1]))
        return Call(sample)
    if _is_keywords(sample):
        return Call((), dict(sample))
    if isinstance(sample, Sequence) and not isinstance(sample, (str, bytes)):
        raise InputError("a sample is a tensor, a tuple of arguments or a dictionary of keywords, not a list in a list")
    return Call((sample,))


def _is_keywords(sample: Any) -> bool:
    return isinstance(sample, Mapping) and all(isinstance(key, str) for key in sample)
