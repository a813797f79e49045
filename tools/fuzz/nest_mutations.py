"""Parts of a sound model move into bodies and functions, or out of them: what it computes stays, where it can."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper

from halfwise.model.held_graphs import held_graphs, nodes_within
from tools.fuzz.body_mutations import call_added, with_body
from tools.fuzz.model_parts import attributes_of, graphs_of, nodes_of, one_of
from tools.fuzz.splices import added_weight, fresh, named

__all__ = [
    "bodies_swapped",
    "body_inlined",
    "body_twice",
    "call_inlined",
    "constant_as_weight",
    "part_in_branch",
    "part_in_function",
    "part_in_loop",
    "part_in_scan",
    "weight_as_constant",
    "weights_in_body",
]


class _Part:
    """Nodes in a row, what they read from outside and what others read of them."""

    def __init__(self, graph: Any, random: Random) -> None:
        count = len(graph.node)
        start = random.randrange(count)
        self.start, self.end = start, min(count, start + random.choice((1, 2, 3, 5, count)))
        self.nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in graph.node[self.start : self.end]]
        self._graph = graph
        inside = {name for node in self.nodes for name in node.output if name}
        behind = {name for node in graph.node[self.end :] for name in (*node.input, *_read_in_bodies(node))}
        behind |= {name if isinstance(name, str) else name.name for name in graph.output}
        self.makes = sorted(inside & behind) or sorted(inside)[:1]
        read = {name for node in self.nodes for name in (*node.input, *_read_in_bodies(node)) if name}
        self.reads = sorted(read - inside)

    def replace(self, nodes: Sequence[onnx.NodeProto]) -> None:
        kept = list(self._graph.node)
        kept[self.start : self.end] = nodes
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        del self._graph.node[:]
        self._graph.node.extend(copies)


def _read_in_bodies(node: onnx.NodeProto) -> list[str]:
    inner = [each for body in held_graphs(node) for each in nodes_within(body.node)]
    return [name for each in inner for name in each.input]


def _part(model: onnx.ModelProto, random: Random) -> _Part | None:
    graph = one_of(random, (graph for graph in graphs_of(model) if graph.node))
    part = None if graph is None else _Part(graph, random)
    return part if part is not None and part.makes else None


def _untyped(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
    return [onnx.ValueInfoProto(name=name) for name in names]


def _renamed(nodes: Sequence[onnx.NodeProto], mark: str) -> list[onnx.NodeProto]:
    """Copies whose own tensors have other names."""
    own = {name for node in nodes for name in node.output if name}
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    held = list(copies)
    for node in held:
        node.input[:] = [name + mark if name in own else name for name in node.input]
        node.output[:] = [name + mark if name in own else name for name in node.output]
        held += [inner for graph in held_graphs(node) for inner in graph.node]
    return copies


def part_in_branch(model: onnx.ModelProto, random: Random) -> None:
    """Both branches compute it, under the names of outside or under their own."""
    part = _part(model, random)
    if part is None:
        return
    chosen = added_weight(model, "chosen", np.array(random.random() < 0.5))
    keeps = random.random() < 0.3
    branches = []
    for mark in ("", "_") if keeps else ("_then", "_else"):
        nodes = _renamed(part.nodes, mark)
        branches.append(helper.make_graph(nodes, "part", [], _untyped([name + mark for name in part.makes])))
    part.replace([named("If", [chosen], part.makes, then_branch=branches[0], else_branch=branches[1])])


def part_in_loop(model: onnx.ModelProto, random: Random) -> None:
    """One turn that hands its tensors out one below the other, or carries them."""
    part = _part(model, random)
    if part is None:
        return
    trips = added_weight(model, "trips", np.array(random.choice((1, 1, 2)), "i8"))
    zero = added_weight(model, "axis", np.array(0, "i8"))
    going = [named("Identity", ["going"], ["going_still"])]
    nodes = _renamed(part.nodes, "_turn")
    outputs = _untyped(["going_still", *(f"{name}_turn" for name in part.makes)])
    inputs = [helper.make_tensor_value_info("turn", 7, []), helper.make_tensor_value_info("going", 9, [])]
    body = helper.make_graph([*going, *nodes], "turn", inputs, outputs)
    stacked = [f"{name}_stacked" for name in part.makes]
    taken = [named("Gather", [name, zero], [made], axis=0) for name, made in zip(stacked, part.makes, strict=True)]
    part.replace([named("Loop", [trips, ""], stacked, body=body), *taken])


def part_in_scan(model: onnx.ModelProto, random: Random) -> None:
    """Over the first axis of one of its inputs, the others read from around it."""
    part = _part(model, random)
    if part is None or not part.reads:
        return
    over = random.choice(part.reads)
    nodes = _renamed(part.nodes, "_step")
    for node in nodes:
        node.input[:] = ["each" if name == over else name for name in node.input]
    body = helper.make_graph(nodes, "step", _untyped(["each"]), _untyped([f"{name}_step" for name in part.makes]))
    axes = {"scan_input_axes": [random.choice((0, 1, -1))]} if random.random() < 0.4 else {}
    part.replace([named("Scan", [over], part.makes, body=body, num_scan_inputs=1, **axes)])


def part_in_function(model: onnx.ModelProto, random: Random) -> None:
    """What it reads becomes the function's inputs, some of its attributes the call's."""
    part = _part(model, random)
    if part is None:
        return
    name = fresh(model, "Part")
    made = model.functions.add(name=name, domain="part", input=part.reads, output=part.makes)
    made.node.extend(part.nodes)
    made.opset_import.extend(model.opset_import)
    call = named(name, part.reads, part.makes, domain="part")
    for count, attribute in enumerate(a for node in made.node for a in node.attribute):
        if attribute.type not in (5, 10) and not attribute.ref_attr_name and random.random() < 0.3:
            call.attribute.add().CopyFrom(attribute)
            call.attribute[-1].name = f"{attribute.name}_{count}"
            kind, inner = attribute.type, attribute.name
            attribute.Clear()
            attribute.name, attribute.type, attribute.ref_attr_name = inner, kind, f"{inner}_{count}"
            made.attribute.append(f"{inner}_{count}")
    for holder in (model, *model.functions):
        if not any(entry.domain == "part" for entry in holder.opset_import):
            holder.opset_import.add(domain="part", version=1)
    part.replace([call])


def call_inlined(model: onnx.ModelProto, random: Random) -> None:
    """A call becomes the nodes of its function, whose attributes still refer to a call."""
    if not model.functions:
        call_added(model, random)
    functions = {(each.domain, each.name): each for each in model.functions}
    calls = [
        (graph, place)
        for graph in graphs_of(model)
        for place, node in enumerate(graph.node)
        if (node.domain, node.op_type) in functions
    ]
    found = one_of(random, calls)
    if found is None:
        return
    graph, place = found
    call = onnx.NodeProto.FromString(graph.node[place].SerializeToString())
    function = functions[call.domain, call.op_type]
    ends = dict(zip(function.input, call.input, strict=False)) | dict(zip(function.output, call.output, strict=False))
    del graph.node[place]
    for inner in reversed([onnx.NodeProto.FromString(n.SerializeToString()) for n in function.node]):
        inner.input[:] = [ends.get(name, name) for name in inner.input]
        inner.output[:] = [ends.get(name, name) for name in inner.output]
        graph.node.insert(place, inner)


def body_inlined(model: onnx.ModelProto, random: Random) -> None:
    """The nodes of a body stand where the node was that held it."""
    with_body(model, random)
    holders = [
        (graph, place, body.g)
        for graph in graphs_of(model)
        for place, node in enumerate(graph.node)
        for body in node.attribute
        if body.HasField("g")
    ]
    found = one_of(random, holders)
    if found is None:
        return
    graph, place, body = found
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in body.node]
    ends = [
        named("Identity", [info.name], [made])
        for info, made in zip(body.output, graph.node[place].output, strict=False)
    ]
    weights = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in body.initializer]
    del graph.node[place]
    for inner in reversed([*nodes, *ends]):
        graph.node.insert(place, inner)
    model.graph.initializer.extend(weights)


def bodies_swapped(model: onnx.ModelProto, random: Random) -> None:
    with_body(model, random)
    bodies = [attribute for attribute in attributes_of(model) if attribute.HasField("g")]
    if len(bodies) > 1:
        one, other = random.sample(bodies, 2)
        first, second = one.g.SerializeToString(), other.g.SerializeToString()
        one.g.ParseFromString(second)
        other.g.ParseFromString(first)


def body_twice(model: onnx.ModelProto, random: Random) -> None:
    """A body once more, as another attribute of its node or of another node, or in a list of bodies."""
    with_body(model, random)
    body = one_of(random, (attribute for attribute in attributes_of(model) if attribute.HasField("g")))
    node = one_of(random, nodes_of(model))
    if body is not None and node is not None:
        copy = onnx.GraphProto.FromString(body.g.SerializeToString())
        attribute = node.attribute.add(name=random.choice((body.name, "more", "then_branch")))
        if random.random() < 0.6:
            attribute.type = 5
            attribute.g.CopyFrom(copy)
        else:
            attribute.type = 10
            attribute.graphs.extend([copy, copy])


def weights_in_body(model: onnx.ModelProto, random: Random) -> None:
    """Weights of the main graph stand in a body, which may not be the one that reads them."""
    with_body(model, random)
    body = one_of(random, (graph for graph in graphs_of(model)[1:] if isinstance(graph, onnx.GraphProto)))
    if body is not None:
        for tensor in list(model.graph.initializer):
            if random.random() < 0.5:
                body.initializer.append(tensor)
                if random.random() < 0.8:
                    model.graph.initializer.remove(tensor)


def weight_as_constant(model: onnx.ModelProto, random: Random) -> None:
    """A node instead of an initializer, before its readers or behind them."""
    tensor = one_of(random, model.graph.initializer)
    if tensor is not None:
        node = named("Constant", [], [tensor.name], value=tensor)
        model.graph.initializer.remove(tensor)
        model.graph.node.insert(0 if random.random() < 0.9 else len(model.graph.node), node)


def constant_as_weight(model: onnx.ModelProto, random: Random) -> None:
    nodes = [node for node in model.graph.node if node.op_type == "Constant" and node.output]
    node = one_of(random, (node for node in nodes if any(a.HasField("t") for a in node.attribute)))
    if node is not None:
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(next(a.t for a in node.attribute if a.HasField("t")))
        tensor.name = node.output[0]
        model.graph.node.remove(node)
