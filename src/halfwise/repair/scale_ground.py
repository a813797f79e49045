"""What handlers of single operators need of the walk that follows powers of two."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.repair.scale_atoms import Atoms, Floats, Ints, Weights
from halfwise.repair.scale_layout import Layout

__all__ = ["Flow"]


class Flow(Protocol):
    """What the handlers need of the walk."""

    atoms: Atoms
    layouts: dict[ir.Value, Layout]
    weights: list[Weights]
    epsilons: list[tuple[ir.Node, Ints]]

    def high(self, value: ir.Value) -> float: ...

    def rank(self, value: ir.Value | None) -> int | None: ...

    def _data(self, node: ir.Node) -> ir.Value | None: ...

    def _uniform(self, value: ir.Value) -> Layout: ...

    def _along(self, value: ir.Value, axis: int, size: int) -> Layout: ...

    def _write(self, node: ir.Node, axis: int | None, atoms: Ints, cap: Floats | None = None) -> bool: ...

    def _elementwise(self, node: ir.Node, skip: int = 0, slots: Collection[int] | None = None) -> bool: ...

    def _offset(self, node: ir.Node, slot: int, array: NDArray[Any], layout: Layout, rank: int) -> Floats: ...

    def _matmul(self, node: ir.Node) -> bool: ...

    def _linear(
        self, node: ir.Node, slot: int, array: NDArray[Any], source: ir.Value, axes: tuple[int, int, int]
    ) -> bool: ...
