"""The FP32 reference of a model that is typed FP16 or BF16, in whole or in part: its stored numbers, widened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from halfwise.core.formats import Format, format_of_type
from halfwise.core.notes import Note, NoteKind
from halfwise.model.bodies import graphs_in, nodes_in
from halfwise.model.model import Model
from halfwise.model.moving import Move, movers
from halfwise.model.ops import TYPE_ATTRIBUTES
from halfwise.model.weights import WidenedTensor

__all__ = ["TypedNodes", "fp32_model", "holds_narrow", "kept_wide", "typed_nodes", "typed_notes"]

_SWITCHES = movers(Move.CAST)
_WITHIN = ("precision", "softmax_precision", "stash_type")  # of what is computed within: left out, it is never narrower
_NARROW = {ir.DataType(fmt.onnx_type): fmt for fmt in (Format.FP16, Format.BF16)}


@dataclass(frozen=True)
class TypedNodes:
    """How many nodes of a file write which float format; casts are not counted."""

    counts: Mapping[Format, int]
    nodes: int

    @property
    def narrow(self) -> int:
        return sum(count for fmt, count in self.counts.items() if fmt.narrow)

    @property
    def formats(self) -> tuple[Format, ...]:
        """The narrow ones that are there."""
        return tuple(fmt for fmt, count in self.counts.items() if fmt.narrow and count)


def fp32_model(model: Model) -> Model:
    """The same model with every FP16 and BF16 number in FP32, which is exact; a model without any is given back.

    Casts that only switch between floats are gone. What the file's inputs and outputs are typed is `interface`, and
    the model as the file has it is `given`.
    """
    if not holds_narrow(model):
        return model
    copy = model.ir.clone()
    interface = {
        value.name or "": _NARROW[value.dtype]
        for value in (*copy.graph.inputs, *copy.graph.outputs)
        if isinstance(value.type, ir.TensorType) and value.dtype in _NARROW
    }
    switches = [node for node in nodes_in(copy.graph) if _switches(node)]
    _Widening().run(copy)
    for node in switches:
        _take_out(node)
    return replace(model, ir=copy, given=model, interface=interface)


def typed_nodes(model: Model) -> TypedNodes:
    """Of a model as its file has it."""
    counts = dict.fromkeys((*_NARROW.values(), Format.FP32), 0)
    total = 0
    for node in model.nodes:
        if node.op_type in _SWITCHES and not node.domain:
            continue
        total += 1
        formats = {format_of_type(value.dtype) for value in node.outputs if isinstance(value.type, ir.TensorType)}
        for fmt in counts:
            counts[fmt] += fmt in formats
    return TypedNodes(counts, total)


def kept_wide(model: Model) -> frozenset[str]:
    """The nodes that the file keeps in FP32 beside some in less; none where it types no node in less."""
    given = model.given
    if given is None or not typed_nodes(given).narrow:
        return frozenset()
    wide = (node for node in given.nodes if any(format_of_type(out.dtype) is Format.FP32 for out in node.outputs))
    return frozenset(node.name or "" for node in wide)


def typed_notes(model: Model) -> tuple[Note, ...]:
    """What a user of a typed model should know of its reference; nothing where the file is in FP32."""
    if model.given is None:
        return ()
    typed = typed_nodes(model.given)
    formats = [fmt.value.upper() for fmt in typed.formats]
    if not formats:  # only what stands between its Casts
        return ()
    return (Note.of(NoteKind.TYPED_ALREADY, typed=typed.narrow, nodes=typed.nodes, formats=formats),)


def holds_narrow(model: Model) -> bool:
    """Whether any tensor in the file is stored in less than FP32."""
    return any(_is_narrow(value.type) for value in _values(model.ir))


def _values(model: ir.Model) -> Iterable[ir.Value]:
    for graph in (model.graph, *graphs_in(model.graph)):
        yield from graph.inputs
        yield from graph.initializers.values()
    for node in nodes_in(model.graph):
        yield from node.outputs


def _is_narrow(kind: ir.TypeProtocol | None) -> bool:
    while isinstance(kind, (ir.SequenceType, ir.OptionalType)):
        kind = kind.elem_type
    return kind is not None and kind.dtype in _NARROW


def _switches(node: ir.Node) -> bool:
    """A cast from a float format to another one, of which FP32 has neither end left to change."""
    if node.op_type not in _SWITCHES or node.domain or node.inputs[0] is None:
        return False
    ends = {node.inputs[0].dtype, node.outputs[0].dtype}
    return bool(ends & _NARROW.keys()) and ends <= {*_NARROW, ir.DataType.FLOAT}


def _take_out(node: ir.Node) -> None:
    """Who read the cast reads what it cast; one from an input or a weight straight to an output stays, to FP32."""
    source, made = node.inputs[0], node.outputs[0]
    assert source is not None
    if made.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not node.graph or source.is_graph_output():
            return
        source.name, made.name = made.name, source.name
        source.shape = made.shape if made.shape is not None else source.shape
    ir.convenience.replace_all_uses_with(made, source, replace_graph_outputs=True)
    assert isinstance(node.graph, ir.Graph)
    node.graph.remove(node, safe=True)


class _Widening:
    """Widens types, weights and attributes of a copy in place."""

    def __init__(self) -> None:
        self._tensors: dict[ir.TensorProtocol, ir.TensorProtocol] = {}  # a shared weight stays shared

    def run(self, model: ir.Model) -> None:
        for value in _values(model):
            value.type = _widened_type(value.type)
            if value.const_value is not None:
                value.const_value = self._tensor(value.const_value)
        for node in nodes_in(model.graph):
            for attribute in list(node.attributes.values()):
                wide = self._attribute(node, attribute)
                if wide is not None and attribute.name in _WITHIN:
                    del node.attributes[attribute.name]
                elif wide is not None:
                    node.attributes[attribute.name] = wide

    def _tensor(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if tensor.dtype not in _NARROW:
            return tensor
        if tensor not in self._tensors:
            self._tensors[tensor] = WidenedTensor(tensor)
        return self._tensors[tensor]

    def _attribute(self, node: ir.Node, attribute: ir.Attr) -> ir.Attr | None:
        """The attribute in FP32; None where it names no narrow format and holds none."""
        if attribute.type is ir.AttributeType.TENSOR:
            wide = self._tensor(attribute.as_tensor())
            return None if wide is attribute.value else ir.AttrTensor(attribute.name, wide)
        if attribute.type is ir.AttributeType.INT and not node.domain and attribute.name in TYPE_ATTRIBUTES:
            return ir.AttrInt64(attribute.name, ir.DataType.FLOAT.value) if attribute.as_int() in _NARROW else None
        if attribute.type is ir.AttributeType.TYPE_PROTO and _is_narrow(attribute.value.type):
            stated = ir.TypeAndShape(_widened_type(attribute.value.type), attribute.value.shape)
            return ir.AttrTypeProto(attribute.name, stated)
        return None


def _widened_type(kind: ir.TypeProtocol | None) -> ir.TypeProtocol | None:
    if not _is_narrow(kind):
        return kind
    if isinstance(kind, (ir.SequenceType, ir.OptionalType)):
        inner = _widened_type(kind.elem_type)
        assert inner is not None
        return type(kind)(inner)
    return ir.TensorType(ir.DataType.FLOAT)
