"""Damage to attributes of nodes."""

from __future__ import annotations

from random import Random

import onnx
from onnx import AttributeProto, TensorProto

from tools.fuzz.model_parts import attributes_of, nodes_of, one_of
from tools.fuzz.odd_values import ODD_FLOATS, ODD_INTS, ODD_TEXTS

__all__ = [
    "attribute_gone",
    "attribute_kind",
    "attribute_kind_said",
    "attribute_more",
    "attribute_refers",
    "attribute_value",
    "axes_odd",
    "fill",
    "known_attributes",
]


def fill(attribute: AttributeProto, kind: int, random: Random) -> None:
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
    attribute = one_of(random, (a for a in attributes_of(model) if a.type != AttributeProto.GRAPH))
    if attribute is not None:
        fill(attribute, attribute.type, random)


def attribute_kind(model: onnx.ModelProto, random: Random) -> None:
    attribute = one_of(random, attributes_of(model))
    if attribute is not None:
        fill(attribute, random.choice(_KINDS), random)


def attribute_kind_said(model: onnx.ModelProto, random: Random) -> None:
    """The type that an attribute says, without its value."""
    attribute = one_of(random, attributes_of(model))
    if attribute is not None:
        attribute.type = random.choice((0, *_KINDS))


def attribute_refers(model: onnx.ModelProto, random: Random) -> None:
    """As if the node stood in a function."""
    attribute = one_of(random, attributes_of(model))
    if attribute is not None:
        name, kind = attribute.name, attribute.type
        attribute.Clear()
        attribute.name, attribute.type, attribute.ref_attr_name = name, kind, random.choice(("alpha", "absent"))


def attribute_gone(model: onnx.ModelProto, random: Random) -> None:
    node = one_of(random, (node for node in nodes_of(model) if node.attribute))
    if node is not None:
        del node.attribute[random.randrange(len(node.attribute))]


def known_attributes(schema: onnx.defs.OpSchema) -> list[tuple[str, int]]:
    """Names and types of what an operator takes."""
    return [
        (name, getattr(AttributeProto, str(each.type).rpartition(".")[2])) for name, each in schema.attributes.items()
    ]


def attribute_more(model: onnx.ModelProto, random: Random) -> None:
    """One that the operator knows, or that nobody knows, with an odd value."""
    node = one_of(random, nodes_of(model))
    if node is None:
        return
    known: list[tuple[str, int]] = [("unknown", random.choice(_KINDS))]
    if onnx.defs.has(node.op_type, node.domain):
        known += known_attributes(onnx.defs.get_schema(node.op_type, node.domain)) * 3
    name, kind = random.choice(known)
    attribute = node.attribute.add(name=name)
    fill(attribute, kind, random)


def axes_odd(model: onnx.ModelProto, random: Random) -> None:
    """Axes, as attributes of the wrong type, out of range or twice."""
    node = one_of(random, nodes_of(model))
    if node is None:
        return
    name = random.choice(("axes", "axis", "perm"))
    for attribute in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(attribute)
    fill(node.attribute.add(name=name), random.choice(_KINDS), random)
