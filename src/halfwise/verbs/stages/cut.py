"""Decides which nodes make up which stage, so that every stage reads only from stages before it."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.model.bodies import bodies_of, graphs_in, nodes_in
from halfwise.model.model import Model
from halfwise.precision.sites import Sites
from halfwise.verbs.stages.scopes import Scope, spoken, stage_labels

__all__ = ["Piece", "cut_at_scopes", "cut_at_tensors", "joined", "live_nodes", "needed_by"]

_NO_TENSOR = frozenset(
    "SequenceConstruct SequenceEmpty SequenceInsert SequenceErase SequenceMap SplitToSequence Optional".split()
)


@dataclass(frozen=True, eq=False)
class Piece:
    """A stage before it is a model: its name and its nodes of the main graph, in execution order."""

    name: str
    nodes: tuple[ir.Node, ...]


def cut_at_scopes(sites: Sites, depth: int = 1) -> tuple[Piece, ...]:
    """One stage for each module at this depth; a module that is called again later makes another stage.

    Nodes that only move values or compute shapes open no stage of their own: outside of modules they join the stage
    that they take from, or else the one that they give to. None where no node tells its module.
    """
    if depth < 1:
        raise InputError(f"--depth {depth}: the depth of modules begins at 1")
    model = sites.model
    labels = stage_labels(model, depth)
    if not any(labels.values()):
        return ()
    place = _places(sites, labels)
    count = max(place.values()) + 1
    groups: list[list[ir.Node]] = [[] for _ in range(count)]
    live = live_nodes(model)
    for node in model.graph:
        if node in live:
            groups[place[node]].append(node)
    groups = [group for group in groups if group]
    names = _unique([spoken(_label_of(group, labels, sites)) for group in groups])
    return joined(model, [Piece(name, tuple(group)) for name, group in zip(names, groups, strict=True)])


def cut_at_tensors(model: Model, names: Sequence[str]) -> tuple[Piece, ...]:
    """One stage up to each of these tensors, and one for what is left. A text may be several names, a comma between."""
    values = {value.name or "": value for node in model.graph for value in node.outputs if value.name}
    names = [name for text in names for name in ([text] if text in values else text.split(","))]
    producers = [_producer(name, values, model) for name in dict.fromkeys(names)]
    order = {node: index for index, node in enumerate(model.graph)}
    live = live_nodes(model)
    taken: set[ir.Node] = set()
    pieces = []
    for producer in sorted(producers, key=lambda node: order[node]):
        found = _ancestors(producer, taken) & live
        taken |= found
        cut = [name for name in names if values[name].producer() is producer]
        if found:
            pieces.append(Piece(f"to {', '.join(cut)}", tuple(sorted(found, key=lambda node: order[node]))))
    rest = tuple(node for node in model.graph if node in live and node not in taken)
    if rest:
        pieces.append(Piece("to the outputs", rest))
    if len(pieces) < 2:
        raise InputError("--cut: these tensors do not divide the model; name a tensor that later nodes read")
    return joined(model, pieces)


def needed_by(node: ir.Node) -> dict[ir.Value, None]:
    """Every tensor a node reads from outside itself, those that its subgraphs capture included, in a fixed order."""
    read = {value: None for value in node.inputs if value is not None}
    inner: set[ir.Value] = set()
    for graph in bodies_of(node):
        for each in nodes_in(graph):
            inner.update(each.outputs)
            read.update(dict.fromkeys(value for value in each.inputs if value is not None))
        for held in (graph, *graphs_in(graph)):
            inner.update((*held.inputs, *held.initializers.values()))
            read.update(dict.fromkeys(held.outputs))
    return {value: None for value in read if value not in inner}


def _places(sites: Sites, labels: Mapping[ir.Node, Scope]) -> dict[ir.Node, int]:
    """The stage of each node. A node joins the stage last opened for its module, unless it needs a later one."""
    computing = {labels[node] for node in sites.model.graph if sites.of[node].compute}
    place: dict[ir.Node, int] = {}
    opened: dict[Scope, int] = {}
    stages = 0
    waiting: list[ir.Node] = []  # computed from constants and inputs alone: they go where they are needed
    for node in sites.model.graph:
        latest = max((_place_of(value, place) for value in needed_by(node)), default=-1)
        label = labels[node]
        stage = opened.get(label) if label or sites.of[node].compute else None
        if stage is not None and stage >= latest:
            place[node] = stage
        elif sites.of[node].compute or (stage is None and label and label in computing):
            place[node] = opened[label] = stages
            stages += 1
        else:
            place[node] = latest
            if latest < 0:
                waiting.append(node)
    users = _users(sites.model)
    for node in reversed(waiting):
        place[node] = min(
            (place[u] for value in node.outputs for u in users.get(value, ()) if place[u] >= 0), default=0
        )
    return place


def _place_of(value: ir.Value, place: Mapping[ir.Node, int]) -> int:
    producer = value.producer()
    return place.get(producer, -1) if producer is not None else -1


def _users(model: Model) -> dict[ir.Value, list[ir.Node]]:
    users: dict[ir.Value, list[ir.Node]] = {}
    for node in model.graph:
        for value in needed_by(node):
            users.setdefault(value, []).append(node)
    return users


def _label_of(group: Sequence[ir.Node], labels: Mapping[ir.Node, Scope], sites: Sites) -> Scope:
    """The module that a stage was opened for: its first node that computes is of it."""
    return next((labels[node] for node in group if sites.of[node].compute), labels[group[0]])


def _unique(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique


def _producer(name: str, values: Mapping[str, ir.Value], model: Model) -> ir.Node:
    if name not in values:
        near = difflib.get_close_matches(name, list(values), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        given = "is an input or a weight" if name in model.value_names else "is no tensor of the model"
        raise InputError(
            f"--cut {name}: {given}, and a stage ends at a tensor that a node of the main graph computes{hint}"
        )
    producer = values[name].producer()
    assert producer is not None
    return producer


def live_nodes(model: Model) -> set[ir.Node]:
    """The nodes that the model's outputs need; of the others nothing could be compared."""
    found: set[ir.Node] = set()
    for value in model.graph.outputs:
        producer = value.producer()
        if producer is not None:
            found |= _ancestors(producer, found)
    return found


def _ancestors(node: ir.Node, but: Collection[ir.Node]) -> set[ir.Node]:
    found: set[ir.Node] = set()
    stack = [node]
    while stack:
        each = stack.pop()
        if each in found or each in but:
            continue
        found.add(each)
        stack += [producer for value in needed_by(each) if (producer := value.producer()) is not None]
    return found


def _passes(value: ir.Value, producer: ir.Node) -> bool:
    """Whether a stage can hand this on as a model's output: a tensor. The type of a sequence is not always known."""
    return isinstance(value.type, ir.TensorType) and (bool(producer.domain) or producer.op_type not in _NO_TENSOR)


def joined(model: Model, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Stages between which something else than a typed tensor passes cannot be told apart: they become one."""
    home = {node: index for index, piece in enumerate(pieces) for node in piece.nodes}
    last = list(range(len(pieces)))  # up to which stage each one must reach
    for node in home:  # of the others no output is compared
        for value in needed_by(node):
            producer = value.producer()
            if producer is not None and not _passes(value, producer):
                last[home[producer]] = max(last[home[producer]], home[node])
    merged: list[Piece] = []
    index = 0
    order = {node: position for position, node in enumerate(model.graph)}
    while index < len(pieces):
        end = index
        reach = last[index]
        while end < reach:
            end += 1
            reach = max(reach, last[end])
        nodes = sorted((n for piece in pieces[index : end + 1] for n in piece.nodes), key=lambda n: order[n])
        merged.append(Piece(" + ".join(p.name for p in pieces[index : end + 1]), tuple(nodes)))
        index = end + 1
    return tuple(merged)
