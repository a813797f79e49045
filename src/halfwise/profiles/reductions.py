"""Sums and means of ONNX Runtime's CUDA provider: what its kernels store on the way, and which sums they split."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from halfwise.profiles.profile import Kernel
from halfwise.profiles.steps import Steps, attribute, cast
from halfwise.weights import ONNX_TYPE

__all__ = ["REDUCTIONS", "adds_in_no_order", "blocks_of_rows"]


def _reduced_axes(proto: onnx.NodeProto, steps: Steps) -> tuple[tuple[int, ...], int] | None:
    """The axes of a reduction, counted from the front, and the rank; None where they are not known."""
    rank = steps.rank(0)
    if rank is None:
        return None
    axes = attribute(proto, "axes", None)
    if axes is None and len(proto.input) > 1 and proto.input[1]:
        known = steps.known(1)
        if known is None:
            return None
        axes = known.tolist()
    return tuple(sorted(axis % rank for axis in axes)) if axes else tuple(range(rank)), rank


def _sum_of_rows(
    proto: onnx.NodeProto, steps: Steps, x: str, dims: tuple[int, ...], axes: tuple[int, ...]
) -> str | None:
    """A sum over the first axes: blocks of rows, each block's sum stored and added to a stored one.

    Blocks are added as they finish; here it is one by one. None where one block takes all rows, and for other axes.
    """
    long = [axis for axis, size in enumerate(dims) if size != 1]
    reduced = [axis for axis in long if axis in axes]
    if not reduced or len(reduced) == len(long) or long[: len(reduced)] != reduced:
        return None
    rows = math.prod(dims[axis] for axis in axes)
    columns = math.prod(dims) // rows
    block, blocks = blocks_of_rows(rows, columns)
    if blocks == 1:
        return None
    flat = steps.op("Reshape", x, steps.constant([rows, columns], np.int64))
    rounds = -(-rows // (block * blocks))
    if more := rounds * block * blocks - rows:
        flat = steps.op("Concat", flat, steps.constant(np.zeros((more, columns))), axis=0)
    parts = steps.op("Reshape", flat, steps.constant([rounds, blocks, block, columns], np.int64))
    if steps.opset < 13:
        parts = steps.op("ReduceSum", parts, axes=[0, 2], keepdims=0)
    else:
        parts = steps.op("ReduceSum", parts, steps.constant([0, 2], np.int64), keepdims=0)
    total = _stored_sums(steps, steps.round(parts), steps.constant(np.zeros(columns)))[0]
    kept = [1 if axis in axes else size for axis, size in enumerate(dims)]
    if not int(attribute(proto, "keepdims", 1)):
        kept = [size for axis, size in enumerate(dims) if axis not in axes]
    return steps.op("Reshape", total, steps.constant(kept, np.int64))


def blocks_of_rows(rows: int, columns: int) -> tuple[int, int]:
    """How many rows one block of threads adds at a time, and how many blocks there are."""
    wide = _power_of_two(min(columns, 32))
    block = _power_of_two(max(1, min(512 // wide, rows // 4)))
    across = max(1, min(columns // wide, 512))
    return block, max(1, min(512 // across, rows // block // 4))


_SPLIT = frozenset({"ReduceLogSum", "ReduceMean", "ReduceSum", "ReduceSumSquare"})


def adds_in_no_order(node: ir.Node) -> bool:
    """A sum over the first axes that more than two blocks of threads add up, or one that may be, its size not known."""
    if node.op_type not in _SPLIT or node.inputs[0] is None:
        return False
    stated, shape = node.attributes.get("axes"), node.inputs[0].shape
    if stated is not None:
        axes = stated.as_ints()
    elif len(node.inputs) > 1 and node.inputs[1] is not None and node.inputs[1].const_value is not None:
        axes = node.inputs[1].const_value.numpy().tolist()
    else:
        return False
    if shape is None:
        return True
    reduced = {axis % len(shape) for axis in axes}
    sizes = [size if isinstance(size, int) else 0 for size in shape]  # 0: not known, and perhaps 1
    for short in ({1}, {0, 1}):
        long = [axis for axis, size in enumerate(sizes) if size not in short]
        count = len(reduced.intersection(long))
        if 0 < count < len(long) and reduced.issuperset(long[:count]):
            rows = math.prod(sizes[axis] for axis in reduced)
            if not all(sizes) or blocks_of_rows(rows, math.prod(sizes) // rows)[1] > 2:
                return True
    return False


def _power_of_two(size: int) -> int:
    """The next one, or the size itself."""
    return 1 << (size - 1).bit_length()


def _sum_like(proto: onnx.NodeProto, steps: Steps, x: str, axes: tuple[int, ...]) -> str:
    """The sum over the axes of a reduction, as an operator of the model's opset."""
    keep = int(attribute(proto, "keepdims", 1))
    if steps.opset < 13:
        return steps.op("ReduceSum", x, axes=list(axes), keepdims=keep)
    return steps.op("ReduceSum", x, steps.constant(axes, np.int64), keepdims=keep)


def _mean(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """Over the last or the first axes the sum is stored, and so is the count, before one is divided by the other."""
    found = _reduced_axes(proto, steps)
    if found is None:
        return None
    axes, rank = found
    dims = steps.dims(0)
    long = [axis for axis in range(rank) if dims is None or dims[axis] != 1]
    reduced = [axis for axis in long if axis in axes]
    if not reduced or (long[-len(reduced) :] != reduced and long[: len(reduced)] != reduced):
        return None
    total = _stored_sum(proto, steps, proto.input[0], axes)
    if dims is not None:
        return steps.op("Div", total, steps.rounded_constant(math.prod(dims[axis] for axis in axes)))
    counts = [steps.op("Cast", steps.op("Size", name), to=onnx.TensorProto.FLOAT) for name in (proto.input[0], total)]
    return steps.op("Div", total, steps.round(steps.op("Div", *counts)))


def _stored_sum(proto: onnx.NodeProto, steps: Steps, x: str, axes: tuple[int, ...]) -> str:
    """A sum as it is stored, in blocks of rows where it is over the first axes."""
    dims = steps.dims(0)
    total = None if dims is None else _sum_of_rows(proto, steps, x, dims, axes)
    return total or steps.round(_sum_like(proto, steps, x, axes))


def _plain_sum(proto: onnx.NodeProto, steps: Steps) -> str | None:
    found, dims = _reduced_axes(proto, steps), steps.dims(0)
    return None if found is None or dims is None else _sum_of_rows(proto, steps, proto.input[0], dims, found[0])


def _sum_of_squares(proto: onnx.NodeProto, steps: Steps) -> str | None:
    found, x = _reduced_axes(proto, steps), proto.input[0]
    return None if found is None else _stored_sum(proto, steps, steps.rop("Mul", x, x), found[0])


def _log_sum(proto: onnx.NodeProto, steps: Steps) -> str | None:
    found = _reduced_axes(proto, steps)
    return None if found is None else steps.op("Log", _stored_sum(proto, steps, proto.input[0], found[0]))


def _log_sum_exp(proto: onnx.NodeProto, steps: Steps) -> str | None:
    """Every step is stored; only the sum is wide."""
    found, x = _reduced_axes(proto, steps), proto.input[0]
    if found is None:
        return None
    axes, keep = found[0], int(attribute(proto, "keepdims", 1))
    largest = _largest(steps, x, axes, 1)
    powers = steps.rop("Exp", steps.rop("Sub", x, largest))
    total = steps.rop("Log", steps.round(_sum_like(proto, steps, powers, axes)))
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
    return _stored_sums(steps, proto.input[0], start, along, int(attribute(proto, "reverse", 0)))[1]


def _stored_sums(steps: Steps, x: str, start: str, along: int = 0, direction: int = 0) -> tuple[str, str]:
    """The sum along an axis, one by one and each stored; the last and all of them."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum_in", "x"], ["sum_wide"]),
            cast("sum_wide", "sum_narrow", ONNX_TYPE[steps.fmt]),
            cast("sum_narrow", "sum_out", onnx.TensorProto.FLOAT),
            helper.make_node("Identity", ["sum_out"], ["y"]),
        ],
        "running_sum",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("sum_in", "x")],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("sum_out", "y")],
    )
    last, result = steps.names.value(f"{steps.base}__last"), steps.names.value(f"{steps.base}__running")
    steps.nodes.append(
        helper.make_node(
            "Scan", [start, x], [last, result], body=body, num_scan_inputs=1, scan_input_axes=[along],
            scan_output_axes=[along], scan_input_directions=[direction], scan_output_directions=[direction],
        )
    )  # fmt: skip
    return last, result


REDUCTIONS: Mapping[str, Kernel] = {
    "CumSum": _running_sum,
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMean": _mean,
    "ReduceSum": _plain_sum,
    "ReduceSumSquare": _sum_of_squares,
    "Sum": _sum,
}
