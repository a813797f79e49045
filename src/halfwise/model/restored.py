"""Puts a typed model's weights back to what they were rounded from, where its FP32 original is at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.formats import Format, format_of_type
from halfwise.core.wording import listed
from halfwise.model.elements import WINDOW, Elements
from halfwise.model.model import Model
from halfwise.model.scales import is_scale
from halfwise.model.weights import stored_type

__all__ = ["Restored", "check_interface", "restored"]

_TOLD_APART = 16  # elements from which on a weight is known by what it holds
_LEAST_CLAMP = 9999.0  # converters clamp at 1e4 or at the format's largest value
_MOST_RAISED = 2.0**-22  # and raise what is tiny to 1e-7 or to the least value


@dataclass
class Restored:
    """The model with the original's weights, and which of its float weights those are, by name."""

    model: Model
    taken: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)  # of the same name or place, and off by more than a rounding
    unknown: list[str] = field(default_factory=list)  # that the original does not have

    @property
    def weights(self) -> int:
        return len(self.taken) + len(self.differing) + len(self.unknown)


def check_interface(model: Model, original: Model) -> None:
    """Refuse an original that takes other inputs, or lacks an output."""
    label = f"the reference {original.path or ''}".rstrip()
    for what, ours, theirs in (
        ("input", {spec.name for spec in original.inputs}, {spec.name for spec in model.inputs}),
        ("output", set(model.output_names), set(original.output_names)),
    ):
        if lost := sorted(ours - theirs):
            whose = ("the model", label) if what == "input" else (label, "the model")
            raise InputError(f"{whose[0]} has no {what} {lost[0]!r}, which {whose[1]} has (it has {listed(theirs)})")


def restored(model: Model, original: Model) -> Restored:
    """Of an FP32 model as `fp32_model` gives it; a weight is taken where the stored one is its rounding."""
    copy = model.ir.clone()
    result = Restored(replace(model, ir=copy))
    known, used = _Known(original), set[ir.TensorProtocol]()
    for value, ours in zip(result.model.initializers(), model.initializers(), strict=True):
        tensor = ours.const_value
        if tensor is None or not tensor.size or format_of_type(tensor.dtype) is not Format.FP32 or not ours.uses():
            continue
        name, fmt = ours.name or "", format_of_type(stored_type(tensor))
        assert fmt is not None
        candidates = list(known.same_place(ours))
        found = next((each for each in candidates if _is_rounding(tensor, each, fmt)), None)
        if found is None and tensor.size >= _TOLD_APART:
            others = (each for each in known.same_shape(tensor) if each not in used)
            found = next((each for each in others if _is_rounding(tensor, each, fmt)), None)
        if found is not None:
            used.add(found)
            value.const_value = found
            result.taken.append(name)
        elif not is_scale(value):  # a quantised model has scales that no original has
            (result.differing if candidates else result.unknown).append(name)
    return result


class _Known:
    """The original's FP32 weights, found by name, by the node that reads them, and by shape."""

    def __init__(self, original: Model) -> None:
        self._nodes = original.node_by_name
        self._named: dict[str, ir.TensorProtocol] = {}
        self._shaped: dict[tuple[int, ...], list[ir.TensorProtocol]] = {}
        self._turned: dict[tuple[int, ...], list[ir.TensorProtocol]] = {}
        for value in original.initializers():
            tensor = value.const_value
            if tensor is not None and format_of_type(tensor.dtype) is Format.FP32:
                self._named.setdefault(value.name or "", tensor)
                self._shaped.setdefault(_shape(tensor), []).append(tensor)
        for shape in [shape for shape in self._shaped if len(shape) == 2]:  # matrices may lie the other way round
            self._turned.setdefault(shape[::-1], []).extend(_turned(each) for each in self._shaped[shape])

    def same_place(self, value: ir.Value) -> Iterator[ir.TensorProtocol]:
        """Of the same name, or read in the same slot of a node of the same name and operator."""
        assert value.const_value is not None
        found = [self._named.get(value.name or "")]
        for node, slot in value.uses():
            other = self._nodes.get(node.name or "")
            if other is not None and other.op_type == node.op_type and slot < len(other.inputs):
                read = other.inputs[slot]
                found.append(read.const_value if read is not None else None)
        for tensor in found:
            if tensor is not None and _shape(tensor) == _shape(value.const_value) and tensor.dtype == ir.DataType.FLOAT:
                yield tensor

    def same_shape(self, tensor: ir.TensorProtocol) -> Iterator[ir.TensorProtocol]:
        shape = _shape(tensor)
        yield from self._shaped.get(shape, ())
        yield from self._turned.get(shape, ())


def _turned(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    shape = ir.Shape(_shape(tensor)[::-1])
    return ir.LazyTensor(lambda: ir.tensor(np.asarray(tensor.numpy()).T.copy()), ir.DataType.FLOAT, shape)


def _shape(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    return tuple(int(dim) for dim in tensor.shape.numpy())


def _is_rounding(tensor: ir.TensorProtocol, original: ir.TensorProtocol, fmt: Format) -> bool:
    ours, theirs = Elements(tensor), Elements(original)
    first = min(64, ours.size)
    if not _rounds(theirs.read(0, first), ours.read(0, first), fmt):
        return False
    spans = [(at, min(at + WINDOW, ours.size)) for at in range(0, ours.size, WINDOW)]
    return all(_rounds(theirs.read(*span), ours.read(*span), fmt) for span in spans)


def _rounds(wide: NDArray[np.float32], stored: NDArray[np.float32], fmt: Format) -> bool:
    """Whether each stored value is a neighbour of the wide one in its format, or what a converter puts in its place."""
    if not fmt.narrow:
        return bool(np.array_equal(wide, stored, equal_nan=True))
    with np.errstate(all="ignore"):
        size = np.abs(wide)
        near = np.abs(stored - wide) <= 2.0 * fmt.unit_roundoff * size + fmt.smallest_subnormal
        clamped = (size >= _LEAST_CLAMP) & (np.abs(stored) >= _LEAST_CLAMP) & (np.abs(stored) <= size)
        clamped |= (size > fmt.max) & np.isinf(stored)
        clamped &= np.signbit(stored) == np.signbit(wide)
        raised = (size < _MOST_RAISED) & (np.abs(stored) <= _MOST_RAISED)
        return bool((near | clamped | raised | (np.isnan(wide) & np.isnan(stored)) | (wide == stored)).all())
