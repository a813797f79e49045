"""Counts what FP16 holds badly in each initializer of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.counting import Counts
from halfwise.core.formats import format_of_type
from halfwise.model.elements import Elements, merged
from halfwise.model.model import Model
from halfwise.model.weight_counts import counts_of_weights
from halfwise.model.weights import stored_tensor, stored_type
from halfwise.verbs.scan.rounding import Rounding
from halfwise.verbs.scan.values_done import values_done

__all__ = ["Elements", "InitializerCounts", "count_initializers", "merged"]


@dataclass(frozen=True)
class InitializerCounts:
    """One stored weight and how its values lie in FP16; what rounding does to it, where that was asked or matters."""

    name: str
    counts: Counts
    dtype: str = "fp32"
    rounding: Rounding | None = None

    @property
    def affected(self) -> bool:
        """Whether FP16 holds any of its values badly."""
        return bool(self.counts.subnormal or self.counts.underflow or self.counts.overflow or self.counts.nonfinite)


def count_initializers(
    model: Model, notify: Callable[[int, int], None] = lambda done, total: None
) -> list[tuple[ir.Value, InitializerCounts]]:
    """The counts of each float initializer, those of subgraphs included; a shared one counts once.

    `notify` gets the values counted and their total.
    """
    found: dict[ir.Value, tuple[str, ir.TensorProtocol]] = {}
    for value in model.initializers():
        tensor = value.const_value
        dtype = None if tensor is None else _float_name(stored_type(tensor))
        if tensor is not None and dtype is not None and value not in found:
            found[value] = dtype, stored_tensor(tensor)
    tensors = [tensor for _, tensor in found.values()]
    done = values_done(sum(int(tensor.size) for tensor in tensors), notify)
    counts = counts_of_weights(tensors, done)
    return [
        (value, InitializerCounts(value.name or "", of, dtype))
        for (value, (dtype, _)), of in zip(found.items(), counts, strict=True)
    ]


def _float_name(dtype: ir.DataType) -> str | None:
    if dtype is ir.DataType.DOUBLE:
        return "fp64"
    fmt = format_of_type(dtype)
    return fmt.value if fmt is not None else None
