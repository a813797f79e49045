"""An engine's cost as its compiler sees it: kernels, bytes in and out of them, casts, reformats. No clock needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from halfwise.compiler.kernel_names import cast_count, is_bookkeeping, is_copy
from halfwise.compiler.layers_fields import Layer, LayerTensor
from halfwise.core.document import Count, Record, about

__all__ = ["EngineCost", "cost_of", "is_reformat"]


class EngineCost(Record, frozen=True):
    """Two plans for one model compare by these. Kernels that only synchronise or alias are not counted."""

    kernels: Count
    bytes_moved: Annotated[Count, about("Read and written by the kernels, without weights.")]
    weight_bytes: Annotated[Count, about("Constants that the kernels read, where the list states them.")]
    casts: Annotated[Count, about("Changes of type: steps inside kernels, and layers of their own.")]
    reformats: Annotated[Count, about("Layers that only change a layout or copy.")]
    unsized: Annotated[Count, about("Tensors left out of the bytes: a dimension or a type is not known.")]


def cost_of(layers: Iterable[Layer]) -> EngineCost:
    working = [layer for layer in layers if not is_bookkeeping(layer.type, layer.name)]
    ends = [tensor for layer in working for tensor in (*layer.inputs, *layer.outputs)]
    constants = [tensor for layer in working for tensor in layer.constants]
    return EngineCost(
        kernels=len(working),
        bytes_moved=_bytes(ends),
        weight_bytes=_bytes(constants),
        casts=sum(_casts(layer) for layer in working),
        reformats=sum(is_reformat(layer) or is_copy(layer.name) for layer in working),
        unsized=sum(tensor.bytes is None for tensor in (*ends, *constants)),
    )


def is_reformat(layer: Layer) -> bool:
    """A layer that TensorRT added to change a layout or a type."""
    return layer.type == "Reformat" or layer.name.startswith(("Reformatting CopyNode", "Reformatted "))


def _casts(layer: Layer) -> int:
    if layer.type == "Cast" or is_reformat(layer):
        return int({t.dtype for t in layer.inputs} != {t.dtype for t in layer.outputs})
    return cast_count(layer.name)


def _bytes(tensors: Iterable[LayerTensor]) -> int:
    return int(sum(tensor.bytes or 0 for tensor in tensors))
