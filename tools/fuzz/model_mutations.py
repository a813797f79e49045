"""Ways to damage an ONNX model that a parser still reads: one small change each, told by a name and a number.

A mutation changes the model in place, by what the random numbers say, and leaves alone what it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto

from tools.fuzz.odd_values import ODD_FLOATS, ODD_INTS, ODD_SIZES, ODD_TEXTS

__all__ = ["MODEL_MUTATIONS"]

Mutation = Callable[[onnx.ModelProto, Random], None]


def _graphs(model: onnx.ModelProto) -> list[Any]:
    """The main graph, those inside nodes, and functions: whatever holds nodes."""
    found: list[Any] = [model.graph, *model.functions]
    for holder in found:
        for node in holder.node:
            found += [a.g for a in node.attribute if a.HasField("g")]
            found += [graph for a in node.attribute for graph in a.graphs]
    return found


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for holder in _graphs(model) for node in holder.node]


def _attributes(model: onnx.ModelProto) -> list[AttributeProto]:
    return [attribute for node in _nodes(model) for attribute in node.attribute]


def _tensors(model: onnx.ModelProto) -> list[TensorProto]:
    found = [t for graph in _graphs(model) if isinstance(graph, onnx.GraphProto) for t in graph.initializer]
    return found + [a.t for a in _attributes(model) if a.HasField("t")]


def _infos(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    graphs = [graph for graph in _graphs(model) if isinstance(graph, onnx.GraphProto)]
    return [info for graph in graphs for info in (*graph.input, *graph.output, *graph.value_info)]


def _names(model: onnx.ModelProto) -> list[str]:
    found = [name for node in _nodes(model) for name in (*node.input, *node.output)]
    return sorted({*found, *(tensor.name for tensor in _tensors(model)), *(info.name for info in _infos(model))})


def _one(random: Random, of: Any) -> Any:
    """One of several, None where there is none."""
    each = list(of)
    return random.choice(each) if each else None


# -- attributes -------------------------------------------------------------------------------------------------------


def _fill(attribute: AttributeProto, kind: int, random: Random) -> None:
    """Give an attribute of this type an odd value."""
    name = attribute.name
    attribute.Clear()
    attribute.name, attribute.type = name, kind  # type: ignore[assignment]
    odd = AttributeProto
    if kind == odd.INT:
        attribute.i = random.choice(ODD_INTS)
    elif kind == odd.FLOAT:
        attribute.f = random.choice(ODD_FLOATS)
    elif kind == odd.STRING:
        attribute.s = random.choice(ODD_TEXTS).encode("utf-8", "replace")
    elif kind == odd.INTS:
        attribute.ints.extend(random.choices(ODD_INTS, k=random.choice((0, 1, 2, 4, 9))))
    elif kind == odd.FLOATS:
        attribute.floats.extend(random.choices(ODD_FLOATS, k=random.choice((0, 1, 3))))
    elif kind == odd.STRINGS:
        attribute.strings.extend(text.encode("utf-8", "replace") for text in random.choices(ODD_TEXTS, k=2))
    elif kind == odd.TENSOR:
        attribute.t.CopyFrom(onnx.helper.make_tensor("t", TensorProto.INT64, [2], [0, random.choice(ODD_INTS)]))
    elif kind == odd.GRAPH:
        attribute.g.name = "empty"
    elif kind == odd.TYPE_PROTO:
        attribute.tp.tensor_type.elem_type = random.choice((1, 7, 99))


_KINDS = tuple(
    getattr(AttributeProto, kind) for kind in "INT FLOAT STRING INTS FLOATS STRINGS TENSOR GRAPH TYPE_PROTO".split()
)


def attribute_value(model: onnx.ModelProto, random: Random) -> None:
    attribute = _one(random, (a for a in _attributes(model) if a.type != AttributeProto.GRAPH))
    if attribute is not None:
        _fill(attribute, attribute.type, random)


def attribute_kind(model: onnx.ModelProto, random: Random) -> None:
    attribute = _one(random, _attributes(model))
    if attribute is not None:
        _fill(attribute, random.choice(_KINDS), random)


def attribute_kind_said(model: onnx.ModelProto, random: Random) -> None:
    """The type that an attribute says, without its value."""
    attribute = _one(random, _attributes(model))
    if attribute is not None:
        attribute.type = random.choice((0, *_KINDS))


def attribute_refers(model: onnx.ModelProto, random: Random) -> None:
    """As if the node stood in a function."""
    attribute = _one(random, _attributes(model))
    if attribute is not None:
        name, kind = attribute.name, attribute.type
        attribute.Clear()
        attribute.name, attribute.type, attribute.ref_attr_name = name, kind, random.choice(("alpha", "absent"))


def attribute_gone(model: onnx.ModelProto, random: Random) -> None:
    node = _one(random, (node for node in _nodes(model) if node.attribute))
    if node is not None:
        del node.attribute[random.randrange(len(node.attribute))]


def attribute_more(model: onnx.ModelProto, random: Random) -> None:
    """One that the operator knows, or that nobody knows, with an odd value."""
    node = _one(random, _nodes(model))
    if node is None:
        return
    known: list[tuple[str, int]] = [("unknown", random.choice(_KINDS))]
    if onnx.defs.has(node.op_type, node.domain):
        schema = onnx.defs.get_schema(node.op_type, node.domain)
        known += [
            (name, getattr(AttributeProto, str(each.type).rpartition(".")[2]))
            for name, each in schema.attributes.items()
        ] * 3
    name, kind = random.choice(known)
    attribute = node.attribute.add(name=name)
    _fill(attribute, kind, random)


def axes_odd(model: onnx.ModelProto, random: Random) -> None:
    """Axes, as attributes of the wrong type, out of range or twice."""
    node = _one(random, _nodes(model))
    if node is None:
        return
    name = random.choice(("axes", "axis", "perm"))
    for attribute in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(attribute)
    _fill(node.attribute.add(name=name), random.choice(_KINDS), random)


# -- nodes and edges --------------------------------------------------------------------------------------------------


def operator_other(model: onnx.ModelProto, random: Random) -> None:
    node = _one(random, _nodes(model))
    if node is not None:
        schema = random.choice(sorted(onnx.defs.get_all_schemas(), key=lambda s: (s.domain, s.name)))
        node.op_type, node.domain = schema.name, schema.domain


def operator_swapped(model: onnx.ModelProto, random: Random) -> None:
    nodes = _nodes(model)
    if len(nodes) > 1:
        one, other = random.sample(nodes, 2)
        one.op_type, other.op_type = other.op_type, one.op_type


def domain_other(model: onnx.ModelProto, random: Random) -> None:
    node = _one(random, _nodes(model))
    if node is not None:
        node.domain = random.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local", "absent", "../x"))


def edge_moved(model: onnx.ModelProto, random: Random) -> None:
    """An input reads another tensor: nothing, one that is not there, one made later, its own output."""
    node = _one(random, (node for node in _nodes(model) if node.input))
    if node is not None:
        own = list(node.output)
        node.input[random.randrange(len(node.input))] = random.choice(["", "absent", *own, *_names(model) * 2])


def input_gone(model: onnx.ModelProto, random: Random) -> None:
    node = _one(random, (node for node in _nodes(model) if node.input))
    if node is not None:
        del node.input[random.randrange(len(node.input))]


def input_more(model: onnx.ModelProto, random: Random) -> None:
    node = _one(random, _nodes(model))
    if node is not None:
        node.input.extend(random.choices(["", *_names(model)], k=random.choice((1, 1, 5))))


def output_changed(model: onnx.ModelProto, random: Random) -> None:
    node = _one(random, (node for node in _nodes(model) if node.output))
    if node is None:
        return
    place, way = random.randrange(len(node.output)), random.randrange(4)
    if way == 0:
        del node.output[place]
    elif way == 1:
        node.output.extend(["more"] * random.choice((1, 5)))
    else:
        node.output[place] = random.choice(["", *_names(model), *ODD_TEXTS])


def node_gone(model: onnx.ModelProto, random: Random) -> None:
    graph = _one(random, (graph for graph in _graphs(model) if graph.node))
    if graph is not None:
        del graph.node[random.randrange(len(graph.node))]


def node_twice(model: onnx.ModelProto, random: Random) -> None:
    graph = _one(random, (graph for graph in _graphs(model) if graph.node))
    if graph is not None:
        copy = onnx.NodeProto()
        copy.CopyFrom(random.choice(graph.node))
        if random.random() < 0.7:
            copy.output[:] = [f"{name}_copy" for name in copy.output]
        graph.node.append(copy)


def nodes_shuffled(model: onnx.ModelProto, random: Random) -> None:
    graph = random.choice(_graphs(model))
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    random.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def name_odd(model: onnx.ModelProto, random: Random) -> None:
    node = _one(random, _nodes(model))
    if node is not None:
        node.name = random.choice([*ODD_TEXTS, *(each.name for each in _nodes(model))])


def tensor_renamed(model: onnx.ModelProto, random: Random) -> None:
    """Everywhere, to an odd name or to one that is taken."""
    names = _names(model)
    if not names:
        return
    old, new = random.choice(names), random.choice([*ODD_TEXTS, *names])
    for node in _nodes(model):
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    every: list[Any] = [*_tensors(model), *_infos(model)]
    for named in every:
        if named.name == old:
            named.name = new


# -- types and shapes -------------------------------------------------------------------------------------------------


def dimension_odd(model: onnx.ModelProto, random: Random) -> None:
    info = _one(random, (i for i in _infos(model) if i.type.tensor_type.shape.dim))
    if info is None:
        return
    dimension = random.choice(info.type.tensor_type.shape.dim)
    dimension.Clear()
    if random.random() < 0.7:
        dimension.dim_value = random.choice(ODD_SIZES)
    elif random.random() < 0.5:
        dimension.dim_param = random.choice(ODD_TEXTS)


def rank_other(model: onnx.ModelProto, random: Random) -> None:
    info = _one(random, (i for i in _infos(model) if i.type.HasField("tensor_type")))
    if info is None:
        return
    shape = info.type.tensor_type.shape
    way = random.randrange(4)
    if way == 0:
        info.type.tensor_type.ClearField("shape")
    elif way == 1 and shape.dim:
        del shape.dim[random.randrange(len(shape.dim))]
    else:
        for _ in range(random.choice((1, 1, 3, 70))):
            shape.dim.add(dim_value=random.choice((1, 1, 2, 3)))


def element_type_other(model: onnx.ModelProto, random: Random) -> None:
    info = _one(random, (i for i in _infos(model) if i.type.HasField("tensor_type")))
    if info is not None:
        info.type.tensor_type.elem_type = random.choice((*range(25), 99, -1))


def type_other(model: onnx.ModelProto, random: Random) -> None:
    info = _one(random, _infos(model))
    if info is None:
        return
    kind = onnx.TypeProto.FromString(info.type.SerializeToString())
    info.type.Clear()
    way = random.randrange(5)
    if way == 0:
        info.type.sequence_type.elem_type.CopyFrom(kind)
    elif way == 1:
        info.type.optional_type.elem_type.CopyFrom(kind)
    elif way == 2:
        info.type.map_type.key_type = 7
        info.type.map_type.value_type.CopyFrom(kind)
    elif way == 3:
        info.type.sparse_tensor_type.elem_type = 1


def information_false(model: onnx.ModelProto, random: Random) -> None:
    """A shape or a type for a tensor inside that it does not have."""
    names = _names(model)
    if names:
        shape = random.choices(ODD_SIZES, k=random.randrange(4))
        info = model.graph.value_info.add(name=random.choice(names))
        info.type.tensor_type.elem_type = random.choice((1, 1, 7, 10))
        for size in shape:
            info.type.tensor_type.shape.dim.add(dim_value=size)


# -- weights ----------------------------------------------------------------------------------------------------------


def weight_dims(model: onnx.ModelProto, random: Random) -> None:
    tensor = _one(random, _tensors(model))
    if tensor is not None:
        way = random.randrange(3)
        if way == 0 and tensor.dims:
            tensor.dims[random.randrange(len(tensor.dims))] = random.choice(ODD_SIZES)
        elif way == 1:
            tensor.dims.append(random.choice((1, 0, 2)))
        elif tensor.dims:
            del tensor.dims[random.randrange(len(tensor.dims))]


def weight_type(model: onnx.ModelProto, random: Random) -> None:
    tensor = _one(random, _tensors(model))
    if tensor is not None:
        tensor.data_type = random.choice((*range(25), 99, -1))


def weight_bytes(model: onnx.ModelProto, random: Random) -> None:
    tensor = _one(random, (t for t in _tensors(model) if t.raw_data))
    if tensor is None:
        return
    content = bytearray(tensor.raw_data)
    way = random.randrange(4)
    if way == 0:
        content = content[: random.randrange(len(content))]
    elif way == 1:
        content = content * 2
    else:
        for place in range(0, len(content) - 3, 4 * random.choice((1, 2, 8))):
            content[place : place + 4] = random.choice(
                (b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f", b"\1\0\0\0", b"\0\0\0\0", b"\0\0\0\x80")
            )
    tensor.raw_data = bytes(content)


def weight_typed_data(model: onnx.ModelProto, random: Random) -> None:
    tensor = _one(random, _tensors(model))
    if tensor is not None:
        if random.random() < 0.5:
            tensor.ClearField("raw_data")
        tensor.float_data.extend([1.0] * random.choice((1, 4, 8)))
        tensor.int64_data.extend([1] * random.choice((0, 2)))


def weight_gone(model: onnx.ModelProto, random: Random) -> None:
    if model.graph.initializer:
        del model.graph.initializer[random.randrange(len(model.graph.initializer))]


def weight_twice(model: onnx.ModelProto, random: Random) -> None:
    tensor = _one(random, _tensors(model))
    if tensor is not None:
        model.graph.initializer.add().CopyFrom(tensor)


def weight_is_input(model: onnx.ModelProto, random: Random) -> None:
    tensor = _one(random, model.graph.initializer)
    if tensor is not None:
        shape = list(tensor.dims) if random.random() < 0.5 else [7]
        model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type or 1, shape))


def weight_sparse(model: onnx.ModelProto, random: Random) -> None:
    tensor = _one(random, model.graph.initializer)
    if tensor is not None:
        sparse = model.graph.sparse_initializer.add()
        sparse.values.CopyFrom(tensor)
        sparse.indices.CopyFrom(onnx.helper.make_tensor("", TensorProto.INT64, [1], [random.choice(ODD_INTS)]))
        sparse.dims.extend(random.choices(ODD_SIZES, k=random.randrange(3)))
        if random.random() < 0.5:
            model.graph.initializer.remove(tensor)


def weight_outside(model: onnx.ModelProto, random: Random) -> None:
    """External data: missing, outside, a device, a pipe, said twice, of odd places."""
    tensor = _one(random, _tensors(model))
    if tensor is None:
        return
    if random.random() < 0.7:
        for kind in ("raw_data", "float_data", "int64_data", "int32_data"):
            tensor.ClearField(kind)
    tensor.data_location = TensorProto.EXTERNAL
    places = ("w.bin", "absent.bin", "../w.bin", "/etc/passwd", "/dev/zero", "w.bin/..", ".", "pipe", "", "w\0.bin")
    entries = [("location", random.choice(places))]
    for key in ("location", "offset", "length", "checksum", "offset"):
        if random.random() < 0.3:
            odd = random.choice(("0", "-1", "4", "1e3", "9" * 30, "x", ""))
            entries.append((key, random.choice(places) if key == "location" else odd))
    random.shuffle(entries)
    del tensor.external_data[:]
    for key, text in entries:
        tensor.external_data.add(key=key, value=text)


# -- the model around them --------------------------------------------------------------------------------------------


def opset_other(model: onnx.ModelProto, random: Random) -> None:
    entry = _one(random, model.opset_import)
    if entry is not None:
        newest = onnx.defs.onnx_opset_version()
        entry.version = random.choice((*range(1, newest + 2), -1, 0, 1 << 31, 1 << 62))


def opset_entries(model: onnx.ModelProto, random: Random) -> None:
    way = random.randrange(3)
    if way == 0:
        del model.opset_import[:]
    elif way == 1 and model.opset_import:
        del model.opset_import[random.randrange(len(model.opset_import))]
    else:
        domain = random.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "x"))
        model.opset_import.add(domain=domain, version=random.choice((1, 9, 17, 23)))


def ir_version_other(model: onnx.ModelProto, random: Random) -> None:
    model.ir_version = random.choice((0, 1, 3, 4, 8, 10, 13, 99, 1 << 40, -1))


def ends_changed(model: onnx.ModelProto, random: Random) -> None:
    """Inputs and outputs of the graph: lost, twice, more, of other names."""
    graph = random.choice([graph for graph in _graphs(model) if isinstance(graph, onnx.GraphProto)])
    ends = random.choice((graph.input, graph.output))
    way = random.randrange(4)
    if way == 0 and ends:
        del ends[random.randrange(len(ends))]
    elif way == 1 and ends:
        ends.add().CopyFrom(random.choice(ends))
    elif way == 2:
        ends.append(onnx.helper.make_tensor_value_info(random.choice([*_names(model), "absent"]), 1, [2]))
    elif ends:
        random.choice(ends).name = random.choice([*ODD_TEXTS, *_names(model)])


def metadata_odd(model: onnx.ModelProto, random: Random) -> None:
    holders: list[Any] = [model, model.graph, *_nodes(model)]
    for key in random.choices(ODD_TEXTS, k=2):
        random.choice(holders).metadata_props.add(key=key, value=random.choice(ODD_TEXTS))
    model.producer_name = model.doc_string = random.choice(ODD_TEXTS)


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


_ALL: tuple[Mutation, ...] = (
    attribute_value, attribute_kind, attribute_kind_said, attribute_refers, attribute_gone, attribute_more, axes_odd,
    operator_other, operator_swapped, domain_other, edge_moved, input_gone, input_more, output_changed,
    node_gone, node_twice, nodes_shuffled, name_odd, tensor_renamed,
    dimension_odd, rank_other, element_type_other, type_other, information_false,
    weight_dims, weight_type, weight_bytes, weight_typed_data, weight_gone, weight_twice, weight_is_input,
    weight_sparse, weight_outside,
    opset_other, opset_entries, ir_version_other, ends_changed, metadata_odd, node_in_body, node_in_function,
)  # fmt: skip
MODEL_MUTATIONS = {mutation.__name__: mutation for mutation in _ALL}
