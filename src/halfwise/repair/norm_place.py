"""Reads one norm for HW402: what exactly it computes, and which operators could say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.model.model import Model
from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.roots import clip_bounds
from halfwise.model.patterns.view import View, attribute
from halfwise.repair.place import value_named, wiring

__all__ = ["NormPlace", "as_parameter", "effective", "norm_place"]

Array = NDArray[Any]

_COUNTED = ("ReduceSum", "ReduceSumSquare", "Mul", "Div")


@dataclass(frozen=True)
class NormPlace:
    """A norm of which every number is known. `guard` says where its epsilon stands: "add" or "max", inside or outside
    of the root. `x` is what is normalised, already in groups where there are groups."""

    view: View
    pattern: Pattern
    nodes: tuple[ir.Node, ...]
    x: ir.Value
    output: ir.Value
    guard: str
    regroup: ir.Node | None

    @property
    def model(self) -> Model:
        return self.view.model

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(self.pattern.details["axes"])

    @property
    def epsilon(self) -> float:
        return float(self.pattern.details["epsilon"])

    @property
    def factor(self) -> float:
        return float(self.pattern.details["variance_factor"])

    @property
    def centred(self) -> bool:
        return self.pattern.kind != "rmsnorm"

    @property
    def square(self) -> str:
        """The tensor that overflows first."""
        return next(node.outputs[0].name or "" for node in self.nodes if node.name == self.pattern.anchor)

    @cached_property
    def batch_normalization(self) -> ir.Node | None:
        node = self.output.producer()
        return node if node is not None and node.op_type == "BatchNormalization" else None

    @cached_property
    def scale(self) -> ir.Value | None:
        if self.batch_normalization is not None:
            return self.batch_normalization.inputs[1]
        return self._operand(("Mul",), self.pattern.details["scale"])

    @cached_property
    def bias(self) -> ir.Value | None:
        if self.batch_normalization is not None:
            return self.batch_normalization.inputs[2]
        return self._operand(("Add", "Sub"), self.pattern.details["bias"])

    def operators(self) -> list[dict[str, Any]]:
        """The ways to say it in one operator, the best first."""
        if self.guard != "add" or self.x.shape is None:
            return []
        if self.batch_normalization is not None:
            return self._by_batch_normalization()
        last, channels = self._last_axes(), self._channels()
        if not self.centred:
            return last
        first = channels if self.pattern.kind in ("instancenorm", "groupnorm") else last
        return [*self._groups(), *first, *(last if first is channels else channels)]

    def parameters(self) -> dict[str, Any]:
        """All that is needed to write it anew."""
        return {
            "input": self.x.name,
            "output": self.output.name,
            "axes": list(self.axes),
            "epsilon": self.epsilon,
            "guard": self.guard,
            "factor": self.factor,
            "centred": self.centred,
            "scale": None if self.scale is None else self.scale.name,
            "bias": None if self.bias is None else self.bias.name,
            "shape": None if self.regroup is None else self.regroup.inputs[1].name,  # type: ignore[union-attr]
            "allowzero": 0 if self.regroup is None else attribute(self.regroup, "allowzero", 0),
            "fold": [],
            "wiring": wiring(self.nodes),
        }

    # -- the operators ----------------------------------------------------------------------------------------------

    def _last_axes(self) -> list[dict[str, Any]]:
        shape = self.x.shape
        assert shape is not None
        rank, count = len(shape), len(self.axes)
        dims = list(shape)[rank - count :]
        if self.axes != tuple(range(rank - count, rank)) or not _static(dims):
            return []
        way = "LayerNormalization" if self.centred else "RMSNormalization"
        fold = [word for word in self._foldable(rank, self.axes, dims) if self.centred or word == "scale"]
        return [{"way": way, "dims": dims, "fold": fold}]

    def _channels(self) -> list[dict[str, Any]]:
        shape = self.x.shape
        assert shape is not None
        rank = len(shape)
        if rank < 3 or self.axes != tuple(range(2, rank)) or not _static([shape[1]]):
            return []
        dims = [shape[1]]
        return [{"way": "InstanceNormalization", "dims": dims, "fold": self._foldable(rank, (1,), dims)}]

    def _groups(self) -> list[dict[str, Any]]:
        """GroupNormalization of what was reshaped into groups, if the shapes prove that these are of channels.

        Not where there is one group: TensorRT 10.16 is reported to normalise each channel alone then.
        """
        maker = self.view.maker(self.x, "Reshape")
        source = maker.inputs[0] if maker is not None else None
        whole, parts = (None if v is None else v.shape for v in (source, self.x))
        made = self.regroup.outputs[0].shape if self.regroup is not None else None
        if source is None or whole is None or parts is None or made is None or len(whole) < 3 or len(parts) < 3:
            return []
        if self.axes != tuple(range(2, len(parts))) or not _static([*list(whole)[1:], *list(parts)[1:]]):
            return []
        if list(made) != list(whole) or parts[0] != whole[0] or parts[1] == 1 or whole[1] % parts[1]:  # type: ignore[operator]
            return []
        dims = [whole[1]]
        fold = self._foldable(len(whole), (1,), dims, regrouped=True)
        told = {"way": "GroupNormalization", "dims": dims, "groups": parts[1], "fold": fold, "shape": None}
        return [{**told, "input": source.name}]

    def _by_batch_normalization(self) -> list[dict[str, Any]]:
        shape = self.x.shape
        assert shape is not None
        rest = tuple(range(2, len(shape)))
        if len(shape) < 3 or self.axes not in ((0, *rest), rest) or shape[0] != 1:
            return []
        return [{"way": "InstanceNormalization", "dims": None, "fold": ["scale", "bias"]}]

    def _foldable(self, rank: int, kept: Sequence[int], dims: Sequence[Any], *, regrouped: bool = False) -> list[str]:
        """Which of scale and bias the operator itself can take; a bias only with the scale before it."""
        if self.regroup is not None and not regrouped:
            return []
        folded = []
        for word, operand in (("scale", self.scale), ("bias", self.bias)):
            if operand is None:
                continue
            array = effective(operand)
            if array is None or as_parameter(array, rank, kept, dims) is None:
                break
            folded.append(word)
        return folded

    def _operand(self, ops: Sequence[str], weight: str | None) -> ir.Value | None:
        """The value that reads a weight behind the statistics, as it is broadcast there."""
        if weight is None:
            return None
        statistics = self.pattern.details["statistics"]
        for node in self.nodes:
            if node.op_type in ops and node.name not in statistics:
                for value in node.inputs:
                    behind = self.view.weight(value)
                    if behind is not None and behind.name == weight:
                        return value
        return None


def norm_place(view: View, pattern: Pattern) -> NormPlace | None:
    """The place; None where something about it is not sure."""
    by_name, details = view.model.node_by_name, pattern.details
    nodes = tuple(by_name[name] for name in pattern.nodes)
    statistics = [node for node in nodes if node.name in details["statistics"]]
    rest = [node for node in nodes if node.name not in details["statistics"]]
    regroup = next((node for node in rest if node.op_type == "Reshape"), None)
    output = value_named(nodes, details["output"])
    x = _grouped(view, statistics, details["input"]) if regroup is not None else value_named(nodes, details["input"])
    guard = _guard(view, statistics, details["epsilon_outside"], details["epsilon"])
    if x is None or output is None or guard is None or not details["axes"]:
        return None
    if len({node.graph for node in nodes}) != 1 or any(node.outputs[0].dtype != ir.DataType.FLOAT for node in nodes):
        return None
    counted = [node for node in statistics if node.op_type in _COUNTED and _is_counted(view, node)]
    if x.dtype != ir.DataType.FLOAT or (counted and view.extent(x, details["axes"]) is None):
        return None
    place = NormPlace(view, pattern, nodes, x, output, guard, regroup)
    lost = any(details[word] is not None and getattr(place, word) is None for word in ("scale", "bias"))
    if lost or (place.batch_normalization is not None and guard != "add"):
        return None
    return place


def effective(value: ir.Value) -> Array | None:
    """A constant as it stands behind casts and changes of shape."""
    if value.is_initializer():
        return None if value.const_value is None else np.asarray(value.const_value.numpy())
    node = value.producer()
    inner = effective(node.inputs[0]) if node is not None and node.inputs[0] is not None else None
    if node is None or inner is None or value.dtype is None:
        return None
    if node.op_type == "Cast":
        return inner.astype(value.dtype.numpy())
    if value.shape is None or not _static(list(value.shape)):
        return None
    dims = [int(dim) for dim in value.shape]  # type: ignore[arg-type]
    if node.op_type == "Expand":
        return np.broadcast_to(inner, dims)
    return inner.reshape(dims) if int(np.prod(dims)) == inner.size else None


def as_parameter(array: Array, rank: int, kept: Sequence[int], dims: Sequence[int]) -> Array | None:
    """A scale or bias as an operator wants it, of shape `dims`, which are the axes `kept` of a tensor of `rank`."""
    if array.ndim > rank:
        return None
    whole: Array = array.reshape((1,) * (rank - array.ndim) + array.shape)
    if any(dim != 1 for axis, dim in enumerate(whole.shape) if axis not in kept):
        return None
    own: Array = whole.reshape([whole.shape[axis] for axis in kept])
    if any(dim not in (1, size) for dim, size in zip(own.shape, dims, strict=True)):
        return None
    return np.ascontiguousarray(np.broadcast_to(own, dims))


def _grouped(view: View, statistics: Sequence[ir.Node], source: str) -> ir.Value | None:
    for node in statistics:
        for value in node.inputs:
            maker = view.maker(value, "Reshape")
            if maker is not None and maker.inputs[0] is not None and maker.inputs[0].name == source:
                return value
    return None


def _guard(view: View, statistics: Sequence[ir.Node], outside: bool, epsilon: float) -> str | None:
    """How the one epsilon guards; None where there are two, or where the variance is limited from above."""
    kinds = []
    for node in statistics:
        if node.op_type == "Clip":
            low, high = clip_bounds(view, node)
            if high is not None or (low is None):
                return None
            kinds += ["max"] if low else []
        elif node.op_type in ("Add", "Max"):
            found = view.with_number(node)
            if found is None or len(node.inputs) != 2:
                return None
            kinds += [node.op_type.lower()] if found[1] else []
    if len(kinds) > 1 or bool(kinds) != bool(epsilon):
        return None if kinds else "add"
    return (kinds[0] if kinds else "add") + (" outside" if outside else "")


def _is_counted(view: View, node: ir.Node) -> bool:
    return node.op_type.startswith("Reduce") or view.with_number(node) is not None


def _static(dims: Sequence[Any]) -> bool:
    return all(isinstance(dim, int) and dim > 0 for dim in dims)
