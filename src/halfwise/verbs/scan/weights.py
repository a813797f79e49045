"""Counts what FP16 holds badly in each initializer of a model."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.counting import Counts
from halfwise.model.elements import Elements, count_all, merged
from halfwise.model.model import Model
from halfwise.verbs.scan.rounding import Rounding

__all__ = ["Elements", "InitializerCounts", "count_initializers", "merged"]

_FLOATS = {
    ir.DataType.FLOAT: "fp32",
    ir.DataType.DOUBLE: "fp64",
    ir.DataType.FLOAT16: "fp16",
    ir.DataType.BFLOAT16: "bf16",
}


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


def count_initializers(model: Model) -> list[tuple[ir.Value, InitializerCounts]]:
    """The counts of each float initializer, those of subgraphs included; a shared one counts once."""
    found: dict[ir.Value, Elements] = {}
    for value in model.initializers():
        tensor = value.const_value
        if tensor is not None and tensor.dtype in _FLOATS and value not in found:
            found[value] = Elements(tensor)
    counts = count_all(list(found.values()))
    return [
        (value, InitializerCounts(value.name or "", of, _FLOATS[value.const_value.dtype]))  # type: ignore[union-attr]
        for value, of in zip(found, counts, strict=True)
    ]
