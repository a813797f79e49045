"""What a model or an engine shows that advisories ask for: operators, paths of operators, kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from halfwise.core.errors import InputError
from halfwise.core.files.absent import absent
from halfwise.model.held_graphs import held_graphs
from halfwise.model.moving import FROM_FIRST
from halfwise.model.proto_file import read_proto

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

    from halfwise.compiler.layers_fields import EngineLayers

__all__ = ["ModelFacts", "facts_of_engine", "facts_of_file", "facts_of_layers", "facts_of_model", "facts_of_nodes"]

# Between the operators of a path, these may stand: they move, scale or mask data without making it something else.
_PASSING = FROM_FIRST | frozenset("Add Cast Clip Concat Div Dropout Max Min Mul Neg Pad Sub Where".split())
_SNIFFED = 4096


@dataclass(frozen=True)
class Node:
    """An operator and the operators that feed it, by their place in the list of nodes."""

    op: str
    feeds: tuple[int, ...]


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model; None where a source does not tell (an engine its operators, a model its kernels).

    `kernels_hidden`: some kernels are not named (inside a region, or tactics left out), so one not found may be there.
    """

    nodes: tuple[Node, ...] | None = None
    kernels: frozenset[str] | None = None
    kernels_hidden: bool = False
    _paths: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def ops(self) -> frozenset[str] | None:
        return None if self.nodes is None else frozenset(node.op for node in self.nodes)

    def has(self, pattern: str) -> bool:
        """Whether the model has an operator ("CumSum") or a path of operators ("MatMul>Softmax>MatMul")."""
        if self.nodes is None:
            return False
        if pattern not in self._paths:
            path = pattern.split(">")
            present = self.ops is not None and self.ops.issuperset(path)
            self._paths[pattern] = present and (len(path) == 1 or _has_path(self.nodes, path))
        return self._paths[pattern]

    def kernels_with(self, part: str) -> tuple[str, ...]:
        return tuple(sorted(kernel for kernel in self.kernels or () if part in kernel))


def facts_of_file(path: Path) -> ModelFacts:
    """From an ONNX model, an engine's layer information or a build log, told apart by what is in the file."""
    if not path.exists():
        raise absent(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the model or the layer information in it")
    try:
        with path.open("rb") as file:
            head = file.read(_SNIFFED)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    text_mark = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if path.suffix == ".onnx" or (b"\0" in head and not text_mark):
        return facts_of_model(path)
    return facts_of_engine(path)


def facts_of_engine(path: Path) -> ModelFacts:
    """The kernels of an engine, by name and tactic."""
    from halfwise.compiler.layers import read_layers

    return facts_of_layers(read_layers(path))


def facts_of_layers(engine: EngineLayers) -> ModelFacts:
    """The same of layers that were read already."""
    layers = engine.layers
    names = frozenset(text for layer in layers for text in (layer.name, layer.tactic) if text)
    hidden = any(layer.is_region for layer in layers) or not any(layer.tactic for layer in layers)
    return ModelFacts(kernels=names, kernels_hidden=hidden)


def facts_of_model(path: Path) -> ModelFacts:
    """The operators of an ONNX file, those in subgraphs and local functions included; no weights are read."""
    model, _ = read_proto(path)
    nodes: list[Node] = []
    local = {(function.domain, function.name) for function in model.functions}
    _collect(model.graph.node, local, {}, nodes)
    for function in model.functions:
        _collect(function.node, local, {}, nodes)
    return ModelFacts(nodes=tuple(nodes))


def facts_of_nodes(nodes: Iterable[ir.Node]) -> ModelFacts:
    """The operators of a loaded model, given in execution order."""
    places: dict[ir.Value, int] = {}
    found: list[Node] = []
    for node in nodes:
        found.append(Node(node.op_type, tuple(places[value] for value in node.inputs if value in places)))
        places.update(dict.fromkeys(node.outputs, len(found) - 1))
    return ModelFacts(nodes=tuple(found))


def _collect(
    protos: Iterable[onnx.NodeProto], local: Collection[tuple[str, str]], outer: dict[str, int], nodes: list[Node]
) -> None:
    """Append the nodes of one graph and of all graphs inside it; a call of a local function passes data on."""
    made = dict(outer)
    for proto in protos:
        op = "Identity" if (proto.domain, proto.op_type) in local else proto.op_type
        place = len(nodes)
        nodes.append(Node(op, tuple(made[name] for name in proto.input if name in made)))
        for graph in held_graphs(proto):
            _collect(graph.node, local, made, nodes)
        made.update(dict.fromkeys(filter(None, proto.output), place))


def _has_path(nodes: tuple[Node, ...], path: list[str]) -> bool:
    """Whether data flows through the operators of `path` in this order, over nothing but passing operators."""
    ends = {place for place, node in enumerate(nodes) if node.op == path[-1]}
    for op in reversed(path[:-1]):
        ends = {place for place in _sources(nodes, ends) if nodes[place].op == op}
    return bool(ends)


def _sources(nodes: tuple[Node, ...], ends: Collection[int]) -> Iterator[int]:
    """Every node whose data reaches one of `ends` over passing operators only."""
    waiting = [feed for end in ends for feed in nodes[end].feeds]
    seen: set[int] = set()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        yield place
        if nodes[place].op in _PASSING:
            waiting.extend(nodes[place].feeds)
