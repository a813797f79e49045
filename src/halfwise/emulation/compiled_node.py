"""A node ready to run by itself."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.emulation.ort import AnySession, Device
from halfwise.precision.rewrite import Weight

__all__ = ["Compiled", "Read"]

Read = tuple[str, ir.Value, Format | None]


@dataclass(frozen=True)
class Compiled:
    """Its session, and which tensors of the model its inputs and outputs are."""

    session: AnySession
    reads: tuple[Read, ...]
    outputs: tuple[ir.Value, ...]
    names: tuple[str, ...]
    device: Device

    @property
    def weights(self) -> dict[str, Weight]:
        read = ((name, value.const_value, fmt) for name, value, fmt in self.reads if value.is_initializer())
        return {name: Weight(name, tensor, fmt) for name, tensor, fmt in read if tensor is not None}
