"""Walks a model once and writes it anew under an assignment; what a narrow tensor becomes is left to a writer.

The typed model that is emitted and the FP32 model that emulates it come from this one walk, so they cannot disagree
on where a tensor narrows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import onnx
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.model.bodies import bodies_of, graphs_in, nodes_in
from halfwise.model.model import Model
from halfwise.model.weights import place_of
from halfwise.precision.assignment import Assignment

_UNIT = "halfwise:"  # prefix of the tensors that a single node reads and writes
_OLDEST_IR_VERSION = 4  # before it, every initializer had to be an input
_COMMON_IR_VERSION = 10  # that every supported runtime reads; newer ones only add types
_NEW_TYPES = 23  # the first element type that needs a newer file format
_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)

__all__ = ["Names", "Rewritten", "RewrittenUnit", "SpelledWeight", "Weight", "Writer", "rewrite", "rewrite_unit"]


@dataclass(frozen=True)
class Weight:
    """An initializer the written model needs: its name there, the stored tensor, and the format to bring it into."""

    name: str
    tensor: ir.TensorProtocol
    fmt: Format | None


@dataclass
class Rewritten:
    """A model without its weights, the weights of its main graph, and how many conversions it has."""

    proto: onnx.ModelProto
    weights: list[Weight] = field(default_factory=list)
    casts: int = 0


class Writer(Protocol):
    """How tensors in narrow formats are spelled."""

    def tensor_type(self, native: int, fmt: Format) -> int:
        """The ONNX element type of a float tensor that the model declares as `native` and that is kept in `fmt`."""
        ...

    def is_alias(self, have: Format, want: Format) -> bool:
        """Whether a tensor kept in one format can be read in another as it stands."""
        ...

    def convert(self, source: str, target: str, have: Format, want: Format, names: Names) -> list[onnx.NodeProto]:
        """Nodes that bring a tensor from one format to another."""
        ...

    def finish(
        self, proto: onnx.NodeProto, node: ir.Node, assignment: Assignment, names: Names
    ) -> list[onnx.NodeProto]:
        """The nodes for one node whose inputs and outputs are already named."""
        ...

    def spell_weight(self, weight: Weight, names: Names, *, main: bool) -> SpelledWeight:
        """An initializer; those of subgraphs (not `main`) must be whole."""
        ...


@dataclass(frozen=True)
class SpelledWeight:
    """An initializer as it stands in the protobuf, what has to be filled in later, and nodes that finish it."""

    tensor: onnx.TensorProto
    pending: Weight | None = None
    nodes: tuple[onnx.NodeProto, ...] = ()


class Names:
    """Fresh names that collide with nothing in the model."""

    def __init__(self) -> None:
        self.values: set[str | None] = set()
        self.nodes: set[str | None] = set()

    @classmethod
    def of(cls, model: Model) -> Names:
        names = cls()
        names.values.update(model.value_names)
        names.nodes.update(model.node_by_name)
        return names

    def value(self, wanted: str) -> str:
        return _fresh(self.values, wanted)

    def node(self, wanted: str) -> str:
        return _fresh(self.nodes, wanted)


def _fresh(taken: set[str | None], wanted: str) -> str:
    name, counter = wanted, 1
    while name in taken:
        counter += 1
        name = f"{wanted}_{counter}"
    taken.add(name)
    return name


def rewrite(assignment: Assignment, writer: Writer) -> Rewritten:
    """Write the model of `assignment` with `writer`."""
    return _Walk(assignment, writer, Names.of(assignment.sites.model)).run()


class _Walk:
    def __init__(self, assignment: Assignment, writer: Writer, names: Names) -> None:
        self.assignment = assignment
        self.writer = writer
        self.model = assignment.sites.model
        self.names = names
        self.result = Rewritten(onnx.ModelProto())
        self.wanted: dict[ir.Value, dict[Format, None]] = {}
        self.stored_name: dict[ir.Value, str] = {}
        self.variant_name: dict[tuple[ir.Value, Format], str] = {}
        self.name_at: dict[tuple[Hashable, Format | None], str] = {}

    def run(self) -> Rewritten:
        model, proto = self.model.ir, self.result.proto
        self._gather_wanted(self.model.nodes, (model.graph, *graphs_in(model.graph)))
        proto.ir_version = max(model.ir_version, _OLDEST_IR_VERSION)
        if proto.ir_version > _COMMON_IR_VERSION and not _has_new_types(model):
            proto.ir_version = _COMMON_IR_VERSION
        proto.producer_name = model.producer_name or ""
        proto.producer_version = model.producer_version or ""
        proto.domain = model.domain or ""
        proto.model_version = model.model_version or 0
        proto.doc_string = model.doc_string or ""
        for domain, version in model.opset_imports.items():
            proto.opset_import.append(onnx.OperatorSetIdProto(domain=domain, version=version))
        for key, text in model.metadata_props.items():
            proto.metadata_props.append(onnx.StringStringEntryProto(key=key, value=text))
        self._graph(model.graph, proto.graph, main=True)
        return self.result

    def unit(self, node: ir.Node) -> RewrittenUnit:
        inside, graphs = list(_nodes_within(node)), list(_graphs_of(node))
        self._gather_wanted(inside, graphs)
        own = {value for inner in inside for value in inner.outputs}
        for graph in graphs:
            own.update(graph.inputs, graph.initializers.values())
        self.names.values.update(value.name for value in own)
        reads: dict[tuple[ir.Value, Format | None], str] = {}
        for inner in (node, *inside):
            for slot, value in enumerate(inner.inputs):
                if value is not None and value not in own:
                    fmt = self.assignment.read(inner, slot)
                    name = reads.setdefault((value, fmt), f"{_UNIT}i{len(reads)}")
                    self.stored_name.setdefault(value, name)
                    if fmt is not None:
                        self.variant_name[value, fmt] = name
        for graph in graphs:
            for value in graph.outputs:
                if value not in own:
                    fmt = self.assignment.outward(value, graph)
                    name = reads.setdefault((value, fmt), f"{_UNIT}i{len(reads)}")
                    self.stored_name.setdefault(value, name)
                    if fmt is not None:
                        self.variant_name[value, fmt] = name
        for index, value in enumerate(node.outputs):
            if value.name:
                self.stored_name[value] = f"{_UNIT}o{index}"
        written = self._node(node)
        outputs = tuple((self.stored_name[value], value) for value in node.outputs if value.name)
        return RewrittenUnit(tuple(written), tuple((n, v, f) for (v, f), n in reads.items()), outputs)

    def _gather_wanted(self, nodes: Iterable[ir.Node], graphs: Iterable[ir.Graph]) -> None:
        """For each tensor, the formats in which somebody reads it."""
        for node in nodes:
            for slot, value in enumerate(node.inputs):
                fmt = self.assignment.read(node, slot)
                if value is not None and fmt is not None:
                    self.wanted.setdefault(value, {})[fmt] = None
        for graph in graphs:
            for value in graph.outputs:
                fmt = self.assignment.outward(value, graph)
                if fmt is not None:
                    self.wanted.setdefault(value, {})[fmt] = None

    # -- graphs -----------------------------------------------------------------------------------------------------

    def _graph(self, graph: ir.Graph, out: onnx.GraphProto, *, main: bool) -> None:
        out.name = graph.name or "graph"
        out.doc_string = graph.doc_string or ""
        for key, text in graph.metadata_props.items():
            out.metadata_props.append(onnx.StringStringEntryProto(key=key, value=text))
        for value in graph.initializers.values():
            if value.uses() or value.is_graph_output():  # runtimes drop the others, and stumble over what shares a name
                self._initializer(value, graph, out, main=main)
        for value in graph.inputs:
            self._input(value, out, main=main)
        self._rename_outputs(graph)
        for node in graph:
            out.node.extend(self._node(node))
            for value in node.outputs:
                if value.name:
                    out.node.extend(self._variants(value))
            if node in self.model.opaque:
                out.value_info.extend(self._info(value) for value in node.outputs if value.name and value.type)
        for value in graph.outputs:
            self._output(value, graph, out)

    def _initializer(self, value: ir.Value, graph: ir.Graph, out: onnx.GraphProto, *, main: bool) -> None:
        assert value.const_value is not None and value.name
        formats: list[Format | None] = [*self.wanted.get(value, ())] or [self.assignment.stored(value)]
        if value.is_graph_output():  # what is handed out keeps the name
            outward = self.assignment.outward(value, graph)
            formats.sort(key=lambda fmt: fmt is not outward)
        # What stands at one place of the file is one weight; bodies have their own, and what others name its name.
        named = value.is_graph_output() or value.is_graph_input()
        place = place_of(value.const_value) if main and not named else None
        for index, fmt in enumerate(formats):
            name = self.name_at.get((place, fmt), "")
            if not name:
                name = value.name if index == 0 else self.names.value(f"{value.name}_{_suffix(fmt)}")
                self._spell(Weight(name, value.const_value, fmt), out, main=main)
                if place is not None:
                    self.name_at[place, fmt] = name
            if fmt is not None:
                self.variant_name[value, fmt] = name
            if index == 0:
                self.stored_name[value] = name

    def _spell(self, weight: Weight, out: onnx.GraphProto, *, main: bool) -> None:
        spelled = self.writer.spell_weight(weight, self.names, main=main)
        out.initializer.append(spelled.tensor)
        out.node.extend(spelled.nodes)
        if spelled.pending is not None:
            self.result.weights.append(spelled.pending)

    def _input(self, value: ir.Value, out: onnx.GraphProto, *, main: bool) -> None:
        assert value.name
        info = ir.serde.serialize_value(value)
        fmt = self.assignment.stored(value)
        self.stored_name[value] = value.name
        if fmt is not None:
            native = info.type.tensor_type.elem_type
            spelled = self.writer.tensor_type(native, fmt)
            info.type.tensor_type.elem_type = spelled
            # A feed narrows on entry; what enters a body is narrow already.
            if main and native == onnx.TensorProto.FLOAT == spelled and fmt is not Format.FP32:
                self.stored_name[value] = self.names.value(f"{value.name}_{_suffix(fmt)}")
                out.node.extend(self.writer.convert(value.name, self.stored_name[value], Format.FP32, fmt, self.names))
        out.input.append(info)
        out.node.extend(self._variants(value))

    def _rename_outputs(self, graph: ir.Graph) -> None:
        """Where an output is handed out in another format than it is kept in, the kept form takes a fresh name."""
        for value in graph.outputs:
            have, want = self.assignment.stored(value), self.assignment.outward(value, graph)
            producer = value.producer()
            if producer is None or producer.graph is not graph or have is None or want is None:
                continue
            if value not in self.stored_name and not self.writer.is_alias(have, want):
                self.stored_name[value] = self.names.value(f"{value.name}_{_suffix(have)}")
                self.variant_name[value, want] = value.name or ""

    def _output(self, value: ir.Value, graph: ir.Graph, out: onnx.GraphProto) -> None:
        info = ir.serde.serialize_value(value)
        want = self.assignment.outward(value, graph)
        if want is not None:
            info.type.tensor_type.elem_type = self.writer.tensor_type(info.type.tensor_type.elem_type, want)
        if graph is self.model.graph and value.is_graph_input():
            info.name = value.name or ""
        else:
            info.name = self._read(value, want)
        out.output.append(info)

    def _info(self, value: ir.Value) -> onnx.ValueInfoProto:
        """The type of what an operator without a schema makes; nobody could infer it."""
        info = ir.serde.serialize_value(value)
        fmt = self.assignment.stored(value)
        if fmt is not None:
            info.type.tensor_type.elem_type = self.writer.tensor_type(info.type.tensor_type.elem_type, fmt)
        info.name = self.stored_name[value]
        return info

    # -- nodes ------------------------------------------------------------------------------------------------------

    def _node(self, node: ir.Node) -> list[onnx.NodeProto]:
        proto = onnx.NodeProto()
        proto.CopyFrom(self._stencil(node))
        for attribute in node.attributes.values():
            if attribute.type in _GRAPHS:
                proto.attribute.append(self._attribute(attribute))
        for slot, value in enumerate(node.inputs):
            proto.input.append("" if value is None else self._read(value, self.assignment.read(node, slot)))
        while proto.input and not proto.input[-1] and not list(_graphs_of(node)):  # left out: as if it were not there
            proto.input.pop()
        for value in node.outputs:
            name = self.stored_name.setdefault(value, value.name or "")
            proto.output.append(name)
        return self.writer.finish(proto, node, self.assignment, self.names)

    def _stencil(self, node: ir.Node) -> onnx.NodeProto:
        """A node without its wires and graphs; it is the same under every assignment, so it is kept."""
        stencils = self.model.stencils
        if node not in stencils:
            proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain, name=node.name or "")
            if node.doc_string:
                proto.doc_string = node.doc_string
            if node.overload:
                proto.overload = node.overload
            for key, text in node.metadata_props.items():
                proto.metadata_props.append(onnx.StringStringEntryProto(key=key, value=text))
            for attribute in node.attributes.values():
                if attribute.type not in _GRAPHS:
                    proto.attribute.append(ir.serde.serialize_attribute(attribute))
            stencils[node] = proto
        return stencils[node]

    def _attribute(self, attribute: ir.Attr) -> onnx.AttributeProto:
        if attribute.type is ir.AttributeType.GRAPH:
            proto = onnx.AttributeProto(name=attribute.name, type=onnx.AttributeProto.GRAPH)
            self._graph(attribute.as_graph(), proto.g, main=False)
            return proto
        proto = onnx.AttributeProto(name=attribute.name, type=onnx.AttributeProto.GRAPHS)
        for graph in attribute.as_graphs():
            self._graph(graph, proto.graphs.add(), main=False)
        return proto

    def _read(self, value: ir.Value, fmt: Format | None) -> str:
        if fmt is not None and (value, fmt) in self.variant_name:
            return self.variant_name[value, fmt]
        return self.stored_name[value]

    def _variants(self, value: ir.Value) -> Iterator[onnx.NodeProto]:
        """Right behind a tensor, one conversion for each other format that somebody reads it in."""
        have = self.assignment.stored(value)
        if have is None:
            return
        source = self.stored_name[value]
        for fmt in self.wanted.get(value, ()):
            if fmt is have:
                continue
            if self.writer.is_alias(have, fmt):
                self.variant_name[value, fmt] = source
                continue
            if (value, fmt) not in self.variant_name:
                self.variant_name[value, fmt] = self.names.value(f"{value.name}_{_suffix(fmt)}")
            self.result.casts += 1
            yield from self.writer.convert(source, self.variant_name[value, fmt], have, fmt, self.names)


def _graphs_of(node: ir.Node) -> Iterator[ir.Graph]:
    """The graphs a node holds, at any depth."""
    for graph in bodies_of(node):
        yield graph
        yield from graphs_in(graph)


def _nodes_within(node: ir.Node) -> Iterator[ir.Node]:
    for graph in _graphs_of(node):
        yield from graph


def _has_new_types(model: ir.Model) -> bool:
    values = (v for node in nodes_in(model.graph) for v in (*node.inputs, *node.outputs))
    return any(v is not None and v.dtype is not None and v.dtype.value >= _NEW_TYPES for v in values)


def _suffix(fmt: Format | None) -> str:
    return fmt.value if fmt is not None else "as_given"


@dataclass(frozen=True)
class RewrittenUnit:
    """One node of the main graph on its own: what it reads, in which format, under which name; its output names."""

    nodes: tuple[onnx.NodeProto, ...]
    reads: tuple[tuple[str, ir.Value, Format | None], ...]
    outputs: tuple[tuple[str, ir.Value], ...]


def rewrite_unit(assignment: Assignment, writer: Writer, node: ir.Node) -> RewrittenUnit:
    """Write one node of the main graph, its subgraphs included, with every tensor from outside as an input."""
    return _Walk(assignment, writer, Names()).unit(node)
