"""Sums and means of ONNX Runtime's CUDA provider: what its kernels store on the way, and which sums they split."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx

from halfwise.emulation.profiles.profile import Kernel
from halfwise.emulation.profiles.rows import perhaps_first, stored_sums, sum_like, sum_of_rows, where_first
from halfwise.emulation.profiles.steps import Steps, attribute

__all__ = ["REDUCTIONS", "axes_of"]


def axes_of(proto: onnx.NodeProto, steps: Steps) -> tuple[int, ...] | None:
    """The axes of a reduction, counted from the front where the rank is known; None where they are not known."""
    rank = steps.rank(0)
    axes = attribute(proto, "axes", None)
    if axes is None and len(proto.input) > 1 and proto.input[1]:
        known = steps.known(1)
        if known is None:
            return None
        axes = known.tolist()
    if not axes and int(attribute(proto, "noop_with_empty_axes", 0)):
        return None
    if rank is None:
        return tuple(sorted(axes)) if axes else None
    return tuple(sorted(axis % rank for axis in axes)) if axes else tuple(range(rank))


def _mean(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """Over the last or the first axes the sum is stored, and so is the count, before one is divided by the other."""
    axes, dims, x = axes_of(proto, steps), steps.dims(0), proto.input[0]
    if dims is None and axes is not None and perhaps_first(steps.node, axes):

        def finish(inner: Steps, total: str, terms: str) -> str:
            return inner.op("Div", total, inner.round(inner.op("Cast", terms, to=onnx.TensorProto.FLOAT)))

        return where_first(proto, steps, x, axes, finish, lambda inner: inner.keep(proto))
    rank = steps.rank(0)
    if axes is None or rank is None:
        return None
    long = [axis for axis in range(rank) if dims is None or dims[axis] != 1]
    reduced = [axis for axis in long if axis in axes]
    if not reduced or (long[-len(reduced) :] != reduced and long[: len(reduced)] != reduced):
        return None
    total = _stored_sum(proto, steps, x, axes)
    if dims is not None:
        return steps.op("Div", total, steps.rounded_constant(math.prod(dims[axis] for axis in axes)))
    counts = [steps.op("Cast", steps.op("Size", name), to=onnx.TensorProto.FLOAT) for name in (x, total)]
    return steps.op("Div", total, steps.round(steps.op("Div", *counts)))


def _stored_sum(proto: onnx.NodeProto, steps: Steps, x: str, axes: tuple[int, ...]) -> str:
    """A sum as it is stored, in blocks of rows where it is over the first axes."""
    dims = steps.dims(0)
    if dims is not None:
        return sum_of_rows(proto, steps, x, dims, axes) or steps.round(sum_like(proto, steps, x, axes))
    if not perhaps_first(steps.node, axes):
        return steps.round(sum_like(proto, steps, x, axes))
    return where_first(
        proto,
        steps,
        x,
        axes,
        lambda inner, total, terms: total,
        lambda inner: inner.round(sum_like(proto, inner, x, axes)),
    )


def _plain_sum(proto: onnx.NodeProto, steps: Steps) -> str | None:
    axes = axes_of(proto, steps)
    return None if axes is None else _stored_sum(proto, steps, proto.input[0], axes)


def _sum_of_squares(proto: onnx.NodeProto, steps: Steps) -> str | None:
    axes, x = axes_of(proto, steps), proto.input[0]
    return None if axes is None else _stored_sum(proto, steps, steps.rop("Mul", x, x), axes)


def _log_sum(proto: onnx.NodeProto, steps: Steps) -> str | None:
    axes = axes_of(proto, steps)
    return None if axes is None else steps.op("Log", _stored_sum(proto, steps, proto.input[0], axes))


def _log_sum_exp(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """Every step is stored; only the sum is wide."""
    axes, x = axes_of(proto, steps), proto.input[0]
    if axes is None:
        return None
    keep = int(attribute(proto, "keepdims", 1))
    largest = _largest(steps, x, axes, 1)
    powers = steps.rop("Exp", steps.rop("Sub", x, largest))
    total = steps.rop("Log", steps.round(sum_like(proto, steps, powers, axes)))
    return steps.op("Add", total, largest if keep else _largest(steps, x, axes, 0))


def _largest(steps: Steps, x: str, axes: tuple[int, ...], keep: int) -> str:
    if steps.opset < 18:
        return steps.op("ReduceMax", x, axes=list(axes), keepdims=keep)
    return steps.op("ReduceMax", x, steps.constant(axes, np.int64), keepdims=keep)


def _sum(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """One by one, each sum stored."""
    total = proto.input[0]
    for name in proto.input[1:]:
        total = steps.op("Add", steps.round(total) if total != proto.input[0] else total, name)
    return total if len(proto.input) > 2 else None


def _running_sum(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """One by one along the axis, each sum stored."""
    axis, rank = steps.known(1), steps.rank(0)
    if axis is None or rank is None or int(attribute(proto, "exclusive", 0)):
        return None
    along = int(axis.reshape(-1)[0]) % rank
    first = steps.op("Gather", proto.input[0], steps.constant(0, np.int64), axis=along)
    start = steps.op("ConstantOfShape", steps.op("Shape", first))
    return stored_sums(steps, proto.input[0], start, rank - 1, along, int(attribute(proto, "reverse", 0)))[1]


REDUCTIONS: Mapping[str, Kernel] = {
    "CumSum": _running_sum,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMean": _mean,
    "ReduceSum": _plain_sum,
    "ReduceSumSquare": _sum_of_squares,
    "Sum": _sum,
}
