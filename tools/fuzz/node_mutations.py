"""Damage to nodes and edges."""

from __future__ import annotations

from random import Random
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto

from tools.fuzz.model_parts import graphs_of, infos_of, names_of, nodes_of, one_of, tensors_of
from tools.fuzz.odd_values import ODD_TEXTS

__all__ = [
    "domain_other",
    "edge_moved",
    "input_gone",
    "input_more",
    "name_odd",
    "node_gone",
    "node_in_body",
    "node_in_function",
    "node_twice",
    "nodes_shuffled",
    "operator_other",
    "operator_swapped",
    "output_changed",
    "tensor_renamed",
]


def operator_other(model: onnx.ModelProto, random: Random) -> None:
    node = one_of(random, nodes_of(model))
    if node is not None:
        schema = random.choice(sorted(onnx.defs.get_all_schemas(), key=lambda s: (s.domain, s.name)))
        node.op_type, node.domain = schema.name, schema.domain


def operator_swapped(model: onnx.ModelProto, random: Random) -> None:
    nodes = nodes_of(model)
    if len(nodes) > 1:
        one, other = random.sample(nodes, 2)
        one.op_type, other.op_type = other.op_type, one.op_type


def domain_other(model: onnx.ModelProto, random: Random) -> None:
    node = one_of(random, nodes_of(model))
    if node is not None:
        node.domain = random.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local", "absent", "../x"))


def edge_moved(model: onnx.ModelProto, random: Random) -> None:
    """An input reads another tensor: nothing, one that is not there, one made later, its own output."""
    node = one_of(random, (node for node in nodes_of(model) if node.input))
    if node is not None:
        own = list(node.output)
        node.input[random.randrange(len(node.input))] = random.choice(["", "absent", *own, *names_of(model) * 2])


def input_gone(model: onnx.ModelProto, random: Random) -> None:
    node = one_of(random, (node for node in nodes_of(model) if node.input))
    if node is not None:
        del node.input[random.randrange(len(node.input))]


def input_more(model: onnx.ModelProto, random: Random) -> None:
    node = one_of(random, nodes_of(model))
    if node is not None:
        node.input.extend(random.choices(["", *names_of(model)], k=random.choice((1, 1, 5))))


def output_changed(model: onnx.ModelProto, random: Random) -> None:
    node = one_of(random, (node for node in nodes_of(model) if node.output))
    if node is None:
        return
    place, way = random.randrange(len(node.output)), random.randrange(4)
    if way == 0:
        del node.output[place]
    elif way == 1:
        node.output.extend(["more"] * random.choice((1, 5)))
    else:
        node.output[place] = random.choice(["", *names_of(model), *ODD_TEXTS])


def node_gone(model: onnx.ModelProto, random: Random) -> None:
    graph = one_of(random, (graph for graph in graphs_of(model) if graph.node))
    if graph is not None:
        del graph.node[random.randrange(len(graph.node))]


def node_twice(model: onnx.ModelProto, random: Random) -> None:
    graph = one_of(random, (graph for graph in graphs_of(model) if graph.node))
    if graph is not None:
        copy = onnx.NodeProto()
        copy.CopyFrom(random.choice(graph.node))
        if random.random() < 0.7:
            copy.output[:] = [f"{name}_copy" for name in copy.output]
        graph.node.append(copy)


def nodes_shuffled(model: onnx.ModelProto, random: Random) -> None:
    graph = random.choice(graphs_of(model))
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    random.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def name_odd(model: onnx.ModelProto, random: Random) -> None:
    node = one_of(random, nodes_of(model))
    if node is not None:
        node.name = random.choice([*ODD_TEXTS, *(each.name for each in nodes_of(model))])


def tensor_renamed(model: onnx.ModelProto, random: Random) -> None:
    """Everywhere, to an odd name or to one that is taken."""
    names = names_of(model)
    if not names:
        return
    old, new = random.choice(names), random.choice([*ODD_TEXTS, *names])
    for node in nodes_of(model):
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    every: list[Any] = [*tensors_of(model), *infos_of(model)]
    for named in every:
        if named.name == old:
            named.name = new


def node_in_body(model: onnx.ModelProto, random: Random) -> None:
    """A node of the main graph goes into a branch of an If, which may hand out too little or too much."""
    if not model.graph.node:
        return
    node = random.choice(model.graph.node)
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    branch = onnx.helper.make_graph([inner], "branch", [], [onnx.ValueInfoProto(name=name) for name in inner.output])
    other = onnx.GraphProto.FromString(branch.SerializeToString())
    for copy in other.node:
        copy.output[:] = [f"{name}_other" for name in copy.output]
    for info in other.output:
        info.name += "_other"
    if random.random() < 0.4 and other.output:
        del other.output[0]
    if not any(tensor.name == "yes" for tensor in model.graph.initializer):
        model.graph.initializer.append(onnx.helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    given = [f"{name}" for name in inner.output]
    node.CopyFrom(onnx.helper.make_node("If", ["yes"], given, name=node.name, then_branch=branch, else_branch=other))


def node_in_function(model: onnx.ModelProto, random: Random) -> None:
    """A node goes into a function, whose attributes may refer to ones that no caller gives; it may call itself."""
    if not model.graph.node:
        return
    node = random.choice(model.graph.node)
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    if random.random() < 0.2:
        inner.op_type, inner.domain = "Made", "made"
    made = model.functions.add(name="Made", domain="made", input=list(node.input), output=list(node.output))
    for attribute in inner.attribute:
        if random.random() < 0.5 and attribute.type != AttributeProto.GRAPH:
            name, kind = attribute.name, attribute.type
            attribute.Clear()
            attribute.name, attribute.type, attribute.ref_attr_name = name, kind, name
            made.attribute.append(name)
    made.node.append(inner)
    if random.random() < 0.8:
        made.opset_import.extend(model.opset_import)
        model.opset_import.add(domain="made", version=1)
    outer = onnx.NodeProto(op_type="Made", domain="made", name=node.name, input=node.input, output=node.output)
    if random.random() < 0.6:
        outer.attribute.extend(node.attribute)
    node.CopyFrom(outer)
