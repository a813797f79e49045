"""Loops that end when a computed number says so, which rounding may keep from ending.

`while change > 1e-6` is over in FP32 after a few passes. In FP16 the change may stay at one unit in the last place, and
neither an emulation nor a GPU comes back. Here such a loop ends after `MOST` passes, and the floats it gives are NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.formats import Format
from halfwise.model.bodies import bodies_of, nodes_in
from halfwise.precision.assignment import Assignment
from halfwise.precision.rewrite import Names
from halfwise.precision.sites import native_format

__all__ = ["MOST", "bounded", "deciding"]

MOST = 10_000  # passes: far more than what converges takes, and of a small body about a second


def deciding(node: ir.Node, assignment: Assignment) -> list[ir.Node]:
    """The nodes that round what decides whether a loop ends, itself among them where it rounds what it carries; none
    where its number of passes is stated, or computed before it begins."""
    if node.op_type != "Loop" or node.domain or not _is_open(node.inputs[0]):
        return []
    (body,) = bodies_of(node)
    carried = dict(zip(body.inputs[2:], zip(body.outputs[1:], node.outputs, strict=False), strict=False))
    seen, found, open_values = set[ir.Value | None](), dict[ir.Node, None](), [body.outputs[0]]
    while open_values:
        value = open_values.pop()
        maker = value.producer()
        if value in seen or (maker is None and value not in carried):
            continue
        seen.add(value)
        if maker is None:
            made, handed_out = carried[value]
            open_values.append(made)
            if assignment.stored(handed_out) not in (None, Format.FP32):
                found[node] = None
        elif maker.graph is body:
            within = [maker, *(each for graph in bodies_of(maker) for each in nodes_in(graph))]
            found.update((each, None) for each in within if _rounds(each, assignment))
            open_values += [read for each in within for read in each.inputs if read is not None]
    return list(found)


def _is_open(most: ir.Value | None) -> bool:
    if most is None:
        return True
    stored = most.const_value
    return stored is not None and stored.size == 1 and int(stored.numpy().reshape(())) > MOST


def _rounds(node: ir.Node, assignment: Assignment) -> bool:
    formats = {assignment.stored(value) for value in node.outputs}
    formats.update(assignment.read(node, slot) for slot, value in enumerate(node.inputs) if value is not None)
    return not formats <= {None, Format.FP32}


def bounded(proto: onnx.NodeProto, node: ir.Node, names: Names) -> list[onnx.NodeProto]:
    """The loop with `MOST` passes at most; its condition is carried out, and is still true where it was not over."""

    def name(part: str) -> str:
        return names.value(f"{node.name}__{part}")

    most, begun, after, unfinished, scalar, flag, nothing = map(
        name, ("most", "begun", "after", "unfinished", "scalar", "flag", "nothing")
    )
    carried = len(proto.input) - 2
    proto.input[0] = most
    proto.input.append(begun)
    _carry_condition(next(each.g for each in proto.attribute if each.name == "body"), carried, name("before"), after)
    given = list(proto.output)
    wide = {
        slot: names.value(f"{value.name}__looped")
        for slot, value in enumerate(node.outputs)
        if value.name and native_format(value) is not None
    }
    results = [wide.get(slot, each) for slot, each in enumerate(given)]
    del proto.output[:]
    proto.output.extend([*results[:carried], unfinished, *results[carried:]])
    return [
        _constant(most, np.array(MOST, np.int64)),
        _constant(begun, np.array(True)),
        proto,
        _constant(scalar, np.array([], np.int64)),
        helper.make_node("Reshape", [unfinished, scalar], [flag]),
        _constant(nothing, np.array(np.nan, np.float32)),
        *(helper.make_node("Where", [flag, nothing, each], [given[slot]]) for slot, each in wide.items()),
    ]


def _carry_condition(body: onnx.GraphProto, carried: int, before: str, after: str) -> None:
    """As one value more that goes from pass to pass, behind those that do."""
    body.input.append(helper.make_tensor_value_info(before, TensorProto.BOOL, None))
    body.node.append(helper.make_node("Identity", [body.output[0].name], [after]))
    outputs = list(body.output)
    outputs.insert(1 + carried, helper.make_tensor_value_info(after, TensorProto.BOOL, None))
    del body.output[:]
    body.output.extend(outputs)


def _constant(name: str, array: NDArray[Any]) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
