"""One node at work in the backward pass: what it took and gave, and the gradients of what it gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["Array", "Local", "NoRule", "Rule", "let_through"]

Array = NDArray[Any]


class NoRule(Exception):  # control flow between rooms, never shown to a user
    """The operator, or this variant of it, has no rule."""


@dataclass(frozen=True)
class Local:
    """`inputs`, `outputs` and `gradients` go by slot; a gradient of None is zero. `run` gives the outputs for other
    inputs (by slot) than those it took."""

    node: ir.Node
    opset: int
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array | None, ...]
    gradients: tuple[Array | None, ...]
    run: Callable[[Mapping[int, Array]], tuple[Array, ...]]
    shared: dict[int, Array] = field(default_factory=dict)  # gradients that one pass gave for several slots
    inside: list[tuple[Array, Array]] = field(default_factory=list)  # what it stores on its way, with the gradients

    def input(self, slot: int) -> Array:
        array = self.inputs[slot] if slot < len(self.inputs) else None
        if array is None:
            raise NoRule
        return array

    def output(self, slot: int = 0) -> Array:
        array = self.outputs[slot]
        if array is None:
            raise NoRule
        return array

    def has(self, slot: int) -> bool:
        return slot < len(self.inputs) and self.inputs[slot] is not None

    def gradient(self) -> Array:
        """The gradient of the first output; a rule for one output cannot speak of others."""
        if any(g is not None for g in self.gradients[1:]):
            raise NoRule
        if self.gradients[0] is None:
            raise NoRule
        return self.gradients[0]

    @property
    def probes(self) -> int:
        return next(len(g) for g in self.gradients if g is not None)

    def integer(self, name: str, default: int) -> int:
        return self.node.attributes[name].as_int() if name in self.node.attributes else default

    def number(self, name: str, default: float) -> float:
        return self.node.attributes[name].as_float() if name in self.node.attributes else default

    def integers(self, name: str) -> tuple[int, ...] | None:
        return tuple(self.node.attributes[name].as_ints()) if name in self.node.attributes else None

    def text(self, name: str, default: str) -> str:
        return self.node.attributes[name].as_string() if name in self.node.attributes else default

    def flat(self, gradient: Array) -> Array:
        return np.ascontiguousarray(gradient).reshape(len(gradient), -1)


def let_through(x: Array, y: Array) -> Array:
    """1 where an input is the output itself, 0 where another value or a limit took its place."""
    return np.asarray(x == y, dtype=np.float32)


Rule = Callable[[Local, int], Array | None]
