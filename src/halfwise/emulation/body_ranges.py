"""What the tensors inside branches and loops hold: counted where they are made, over all rounds, and handed out.

Each FP32 tensor of a body becomes a row of eight numbers. A branch that is not taken hands out a row of nothing; a
loop's rounds are gathered and put together behind it. So bodies within bodies need nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count as numbers
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.counting import Counts
from halfwise.core.formats import Format
from halfwise.emulation.ort import RUNTIME_IR_VERSION, Session
from halfwise.precision.sites import native_format

__all__ = ["OLDEST_OPSET", "observed"]

OLDEST_OPSET = 11
_ROW = 8
# Least, most, nearest to zero; then how many values, subnormal, underflow, overflow, not finite.
_WAYS = ("ReduceMin", "ReduceMax", "ReduceMin", *("ReduceSum",) * 5)
_NOTHING = np.array([np.inf, -np.inf, np.inf, 0, 0, 0, 0, 0], np.float32)
Seen = list[tuple[ir.Value, str]]


def observed(
    holder: ir.Node, graph: onnx.GraphProto, imports: Mapping[str, int], feeds: Mapping[str, NDArray[Any]], fmt: Format
) -> dict[ir.Value, Counts]:
    """Of a graph that is `holder` alone, its bodies within; every tensor in it goes by its name in the model."""
    probe = _Probe(fmt)
    nodes = list(graph.node)
    (proto,) = (node for node in nodes if node.op_type == holder.op_type)
    after, seen = probe.holder(proto, holder)
    whole = helper.make_graph(
        [*nodes, *after], "observed", graph.input, [onnx.ValueInfoProto(name=name) for _, name in seen]
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    model = helper.make_model(whole, opset_imports=opsets, ir_version=RUNTIME_IR_VERSION)
    rows = Session(model).run(feeds) if seen else {}
    return {value: _counts(rows[name]) for value, name in seen if rows[name][3] > 0}


def _counts(row: NDArray[Any]) -> Counts:
    low, high, nearest = (float(each) if np.isfinite(each) else 0.0 for each in row[:3])
    total, subnormal, underflow, overflow, nonfinite = (int(each) for each in row[3:])
    return Counts(total, subnormal, underflow, overflow, nonfinite, low, high, max(abs(low), abs(high)), nearest)


@dataclass
class _Probe:
    fmt: Format
    fresh: Iterator[int] = field(default_factory=numbers)

    def holder(self, proto: onnx.NodeProto, node: ir.Node) -> tuple[list[onnx.NodeProto], Seen]:
        """Let a node hand out what its bodies saw; the nodes that put it together, and the rows by tensor."""
        graphs = {attribute.name: attribute.g for attribute in proto.attribute if attribute.HasField("g")}
        bodies = [(graphs[name], node.attributes[name].as_graph()) for name in graphs]
        found = [self._body(body, graph) for body, graph in bodies]
        everything = [value for seen in found for value, _ in seen]
        if not everything:
            return [], []
        for (body, _), seen in zip(bodies, found, strict=True):
            rows = dict(seen)
            for value in everything:
                name = rows.get(value) or self._constant(body.node, _NOTHING)
                body.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [_ROW]))
        self._fill_up(proto, bodies[0][0], len(everything))
        names = [self._name() for _ in everything]
        proto.output.extend(names)
        if node.op_type == "If":
            return [], list(zip(everything, names, strict=True))
        nodes: list[onnx.NodeProto] = []
        return nodes, [(value, self._together(nodes, name)) for value, name in zip(everything, names, strict=True)]

    def _fill_up(self, proto: onnx.NodeProto, body: onnx.GraphProto, added: int) -> None:
        """Outputs that nobody asked for have a place, too; a scan says how each of its gathered outputs lies."""
        own = len(body.output) - added - (proto.op_type == "Loop")
        proto.output.extend([self._name() for _ in range(own - len(proto.output))])
        for attribute in proto.attribute:
            if attribute.name in ("scan_output_axes", "scan_output_directions"):
                attribute.ints.extend([0] * added)

    def _body(self, body: onnx.GraphProto, graph: ir.Graph) -> Seen:
        of = {node.name: node for node in graph}
        nodes: list[onnx.NodeProto] = []
        seen: Seen = []
        for proto in body.node:
            nodes.append(proto)
            node = of.get(proto.name)
            if node is None:
                continue
            if any(attribute.HasField("g") for attribute in proto.attribute) and not node.domain:
                after, within = self.holder(proto, node)
                nodes += after
                seen += within
            for value in node.outputs:
                if value.name in proto.output and native_format(value) is Format.FP32:
                    seen.append((value, self._row(nodes, value.name or "")))
        del body.node[:]
        body.node.extend(nodes)
        return seen

    def _row(self, nodes: list[onnx.NodeProto], name: str) -> str:
        """The row of one tensor; one value that is nothing stands beside its own, so that none is empty."""

        def op(op_type: str, *inputs: str, **attributes: Any) -> str:
            return self._op(nodes, op_type, *inputs, **attributes)

        def constant(number: float) -> str:
            return self._constant(nodes, np.array([number], np.float32))

        flat = op("Reshape", name, self._constant(nodes, np.array([-1], np.int64)))
        odd = op("Or", op("IsNaN", flat), op("IsInf", flat))
        size = op("Abs", op("Where", odd, constant(0), flat))
        some = op("Greater", size, constant(0))

        def least(values: str, instead: float, which: str = "ReduceMin") -> str:
            return op(which, op("Concat", values, constant(instead), axis=0), keepdims=1)

        def total(*conditions: str) -> str:
            met = conditions[0] if len(conditions) == 1 else op("And", *conditions)
            return op("ReduceSum", op("Concat", op("Cast", met, to=TensorProto.FLOAT), constant(0), axis=0), keepdims=1)

        below = [op("And", some, op("Less", size, constant(bound))) for bound in self._limits()]
        row = (
            least(op("Where", odd, constant(np.inf), flat), np.inf),
            least(op("Where", odd, constant(-np.inf), flat), -np.inf, "ReduceMax"),
            least(op("Where", some, size, constant(np.inf)), np.inf),
            total(op("Equal", odd, odd)),
            total(below[0], op("Not", below[1])),
            total(below[1]),
            total(op("Greater", size, constant(self.fmt.max))),
            total(odd),
        )
        return op("Concat", *row, axis=0)

    def _limits(self) -> tuple[float, float]:
        return self.fmt.smallest_normal, self.fmt.smallest_subnormal

    def _together(self, nodes: list[onnx.NodeProto], rows: str) -> str:
        """One row from those of all rounds."""
        nothing = self._constant(nodes, _NOTHING[None])
        every = self._op(nodes, "Concat", nothing, rows, axis=0)
        columns = []
        for index, way in enumerate(_WAYS):
            place = self._constant(nodes, np.array([index], np.int64))
            column = self._op(nodes, way, self._op(nodes, "Gather", every, place, axis=1), keepdims=0)
            columns.append(self._op(nodes, "Reshape", column, self._constant(nodes, np.array([1], np.int64))))
        return self._op(nodes, "Concat", *columns, axis=0)

    def _op(self, nodes: list[onnx.NodeProto], op_type: str, *inputs: str, **attributes: Any) -> str:
        name = self._name()
        nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def _constant(self, nodes: Any, array: NDArray[Any]) -> str:
        name = self._name()
        nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        return name

    def _name(self) -> str:
        return f"halfwise:seen{next(self.fresh)}"
