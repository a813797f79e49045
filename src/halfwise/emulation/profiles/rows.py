"""Sums over the first axes as ONNX Runtime's CUDA provider adds them: in blocks of rows, whose sums are stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from halfwise.emulation.profiles.steps import Steps, attribute, cast

__all__ = [
    "blocks_of_rows",
    "perhaps_first",
    "stored_sums",
    "sum_like",
    "sum_of_rows",
    "where_first",
]


def sum_of_rows(
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
    total = stored_sums(steps, _sums_by_block(steps, parts), steps.constant(np.zeros(columns)))[0]
    kept = [1 if axis in axes else size for axis, size in enumerate(dims)]
    if not int(attribute(proto, "keepdims", 1)):
        kept = [size for axis, size in enumerate(dims) if axis not in axes]
    return steps.op("Reshape", total, steps.constant(kept, np.int64))


def _sums_by_block(steps: Steps, parts: str) -> str:
    """Of rounds, blocks, rows and columns: what every block stores."""
    if steps.opset < 13:
        return steps.rop("ReduceSum", parts, axes=[0, 2], keepdims=0)
    return steps.rop("ReduceSum", parts, steps.constant([0, 2], np.int64), keepdims=0)


def blocks_of_rows(rows: int, columns: int) -> tuple[int, int]:
    """How many rows one block of threads adds at a time, and how many blocks there are."""
    wide = _power_of_two(min(columns, 32))
    block = _power_of_two(max(1, min(512 // wide, rows // 4)))
    across = max(1, min(columns // wide, 512))
    return block, max(1, min(512 // across, rows // block // 4))


def _power_of_two(size: int) -> int:
    """The next one, or the size itself."""
    return 1 << (size - 1).bit_length()


def perhaps_first(node: ir.Node, axes: Sequence[int]) -> bool:
    """Whether axes may be the first ones at run time: what stands before them has no known size other than 1."""
    value = node.inputs[0]
    if value is None or not axes or sorted(axes) != list(range(min(axes), min(axes) + len(axes))) or min(axes) < 0:
        return False
    if value.shape is None:
        return True
    sizes = [size if isinstance(size, int) else 0 for size in value.shape]
    return max(axes) < len(sizes) - 1 and all(size < 2 for size in sizes[: min(axes)])


def where_first(
    proto: onnx.NodeProto,
    steps: Steps,
    x: str,
    axes: Sequence[int],
    finish: Callable[[Steps, str, str], str],
    otherwise: Callable[[Steps], str],
) -> str:
    """A sum over axes of which only the run tells whether they are the first, and what becomes of it.

    `finish` is given the stored sum and the number of its terms, `otherwise` spells what holds for other axes.
    """
    shape = steps.op("Shape", x)
    before = steps.constant([1], np.int64)
    if min(axes):
        leading = steps.op("Gather", shape, steps.constant(np.arange(min(axes)), np.int64), axis=0)
        before = steps.op("ReduceProd", leading, keepdims=1)
    rows = steps.op("ReduceProd", steps.op("Gather", shape, steps.constant(sorted(axes), np.int64), axis=0), keepdims=1)
    one = steps.constant([1], np.int64)
    size = steps.op("Reshape", steps.op("Size", x), one)
    columns = steps.op("Div", size, steps.op("Mul", before, rows))
    several = steps.op("And", steps.op("Greater", columns, one), steps.op("Greater", rows, one))
    first = steps.op("And", steps.op("Equal", before, one), several)
    branches = []
    for spell in (lambda inner: finish(inner, _sum_at_run_time(proto, inner, x, axes, rows, columns), rows), otherwise):
        inner = Steps(steps.node, steps.fmt, steps.names, steps.opset, steps.base)
        result = inner.op("Identity", spell(inner))
        info = onnx.ValueInfoProto(name=result)
        info.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        branches.append(helper.make_graph(inner.nodes, "branch", [], [info]))
    return steps.op("If", first, then_branch=branches[0], else_branch=branches[1])


def _sum_at_run_time(proto: onnx.NodeProto, steps: Steps, x: str, axes: Sequence[int], rows: str, columns: str) -> str:
    """What `sum_of_rows` does, with sizes that are tensors of one element."""

    def whole(number: int) -> str:
        return steps.constant([number], np.int64)

    def smaller(one: str, other: str) -> str:
        return steps.op("Where", steps.op("Less", one, other), one, other)

    def larger(one: str, other: str) -> str:
        return steps.op("Where", steps.op("Less", one, other), other, one)

    powers = steps.constant([_power_of_two(max(size, 1)) for size in range(513)], np.int64)

    def power(size: str) -> str:
        return steps.op("Gather", powers, size, axis=0)

    wide = power(smaller(columns, whole(32)))
    block = power(larger(whole(1), smaller(steps.op("Div", whole(512), wide), steps.op("Div", rows, whole(4)))))
    across = larger(whole(1), smaller(steps.op("Div", columns, wide), whole(512)))
    deep = steps.op("Div", steps.op("Div", rows, block), whole(4))
    blocks = larger(whole(1), smaller(steps.op("Div", whole(512), across), deep))
    together = steps.op("Mul", block, blocks)
    rounds = steps.op("Div", steps.op("Sub", steps.op("Add", rows, together), whole(1)), together)
    more = steps.op("Sub", steps.op("Mul", rounds, together), rows)
    flat = steps.op("Reshape", x, steps.op("Concat", rows, columns, axis=0))
    zeros = steps.op("ConstantOfShape", steps.op("Concat", more, columns, axis=0))
    flat = steps.op("Concat", flat, zeros, axis=0)
    parts = steps.op("Reshape", flat, steps.op("Concat", rounds, blocks, block, columns, axis=0))
    total = stored_sums(steps, _sums_by_block(steps, parts), steps.op("ConstantOfShape", columns))[0]
    return steps.op("Reshape", total, steps.op("Shape", sum_like(proto, steps, x, tuple(axes))))


def sum_like(proto: onnx.NodeProto, steps: Steps, x: str, axes: tuple[int, ...]) -> str:
    """The sum over the axes of a reduction, as an operator of the model's opset."""
    keep = int(attribute(proto, "keepdims", 1))
    if steps.opset < 13:
        return steps.op("ReduceSum", x, axes=list(axes), keepdims=keep)
    return steps.op("ReduceSum", x, steps.constant(axes, np.int64), keepdims=keep)


def stored_sums(steps: Steps, x: str, start: str, rank: int = 1, along: int = 0, direction: int = 0) -> tuple[str, str]:
    """The sum along an axis, one by one and each stored; the last and all of them. `rank` is that of one of them."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum_in", "x"], ["sum_wide"]),
            cast("sum_wide", "sum_narrow", steps.fmt.onnx_type),
            cast("sum_narrow", "sum_out", onnx.TensorProto.FLOAT),
            helper.make_node("Identity", ["sum_out"], ["y"]),
        ],
        "running_sum",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * rank) for name in ("sum_in", "x")],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * rank) for name in ("sum_out", "y")],
    )
    last, result = steps.names.value(f"{steps.base}__last"), steps.names.value(f"{steps.base}__running")
    steps.nodes.append(
        helper.make_node(
            "Scan", [start, x], [last, result], body=body, num_scan_inputs=1, scan_input_axes=[along],
            scan_output_axes=[along], scan_input_directions=[direction], scan_output_directions=[direction],
        )
    )  # fmt: skip
    return last, result
