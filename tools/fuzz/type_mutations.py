"""Damage to types and shapes."""

from __future__ import annotations

from random import Random

import onnx

from tools.fuzz.model_parts import infos_of, names_of, one_of
from tools.fuzz.odd_values import ODD_SIZES, ODD_TEXTS

__all__ = ["dimension_odd", "element_type_other", "information_false", "rank_other", "type_other"]


def dimension_odd(model: onnx.ModelProto, random: Random) -> None:
    info = one_of(random, (i for i in infos_of(model) if i.type.tensor_type.shape.dim))
    if info is None:
        return
    dimension = random.choice(info.type.tensor_type.shape.dim)
    dimension.Clear()
    if random.random() < 0.7:
        dimension.dim_value = random.choice(ODD_SIZES)
    elif random.random() < 0.5:
        dimension.dim_param = random.choice(ODD_TEXTS)


def rank_other(model: onnx.ModelProto, random: Random) -> None:
    info = one_of(random, (i for i in infos_of(model) if i.type.HasField("tensor_type")))
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
    info = one_of(random, (i for i in infos_of(model) if i.type.HasField("tensor_type")))
    if info is not None:
        info.type.tensor_type.elem_type = random.choice((*range(25), 99, -1))


def type_other(model: onnx.ModelProto, random: Random) -> None:
    info = one_of(random, infos_of(model))
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
    names = names_of(model)
    if names:
        shape = random.choices(ODD_SIZES, k=random.randrange(4))
        info = model.graph.value_info.add(name=random.choice(names))
        info.type.tensor_type.elem_type = random.choice((1, 1, 7, 10))
        for size in shape:
            info.type.tensor_type.shape.dim.add(dim_value=size)
