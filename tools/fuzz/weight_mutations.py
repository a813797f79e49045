"""Damage to weights."""

from __future__ import annotations

from random import Random

import onnx
from onnx import TensorProto

from tools.fuzz.model_parts import one_of, tensors_of
from tools.fuzz.odd_values import ODD_INTS, ODD_SIZES

__all__ = [
    "weight_bytes",
    "weight_dims",
    "weight_gone",
    "weight_is_input",
    "weight_outside",
    "weight_sparse",
    "weight_twice",
    "weight_type",
    "weight_typed_data",
]


def weight_dims(model: onnx.ModelProto, random: Random) -> None:
    tensor = one_of(random, tensors_of(model))
    if tensor is not None:
        way = random.randrange(3)
        if way == 0 and tensor.dims:
            tensor.dims[random.randrange(len(tensor.dims))] = random.choice(ODD_SIZES)
        elif way == 1:
            tensor.dims.append(random.choice((1, 0, 2)))
        elif tensor.dims:
            del tensor.dims[random.randrange(len(tensor.dims))]


def weight_type(model: onnx.ModelProto, random: Random) -> None:
    tensor = one_of(random, tensors_of(model))
    if tensor is not None:
        tensor.data_type = random.choice((*range(25), 99, -1))


def weight_bytes(model: onnx.ModelProto, random: Random) -> None:
    tensor = one_of(random, (t for t in tensors_of(model) if t.raw_data))
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
    tensor = one_of(random, tensors_of(model))
    if tensor is not None:
        if random.random() < 0.5:
            tensor.ClearField("raw_data")
        tensor.float_data.extend([1.0] * random.choice((1, 4, 8)))
        tensor.int64_data.extend([1] * random.choice((0, 2)))


def weight_gone(model: onnx.ModelProto, random: Random) -> None:
    if model.graph.initializer:
        del model.graph.initializer[random.randrange(len(model.graph.initializer))]


def weight_twice(model: onnx.ModelProto, random: Random) -> None:
    tensor = one_of(random, tensors_of(model))
    if tensor is not None:
        model.graph.initializer.add().CopyFrom(tensor)


def weight_is_input(model: onnx.ModelProto, random: Random) -> None:
    tensor = one_of(random, model.graph.initializer)
    if tensor is not None:
        shape = list(tensor.dims) if random.random() < 0.5 else [7]
        model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type or 1, shape))


def weight_sparse(model: onnx.ModelProto, random: Random) -> None:
    tensor = one_of(random, model.graph.initializer)
    if tensor is not None:
        sparse = model.graph.sparse_initializer.add()
        sparse.values.CopyFrom(tensor)
        sparse.indices.CopyFrom(onnx.helper.make_tensor("", TensorProto.INT64, [1], [random.choice(ODD_INTS)]))
        sparse.dims.extend(random.choices(ODD_SIZES, k=random.randrange(3)))
        if random.random() < 0.5:
            model.graph.initializer.remove(tensor)


def weight_outside(model: onnx.ModelProto, random: Random) -> None:
    """External data: missing, outside, a device, a pipe, said twice, of odd places."""
    tensor = one_of(random, tensors_of(model))
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
