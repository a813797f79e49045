"""Constructs in which values are kept or stated: types, ranks, no elements at all, sparse and external data."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.fuzz.model_parts import graphs_of, infos_of, names_of, one_of
from tools.fuzz.odd_values import ODD_TEXTS
from tools.fuzz.splices import added_weight, fresh, named, spliced

__all__ = [
    "annotation_added",
    "domain_twice",
    "input_added",
    "size_zero",
    "sparse_constant",
    "training_added",
    "weight_external",
    "weight_many_ranks",
    "weight_stored_sparse",
    "weight_type_kept",
]


def _small(model: onnx.ModelProto, random: Random) -> TensorProto | None:
    """A weight of FP32 whose size is believable."""
    sound = [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT and len(tensor.raw_data) == 4 * int(np.prod(tensor.dims, dtype=object))
    ]
    found: TensorProto | None = one_of(random, sound)
    return found


def weight_type_kept(model: onnx.ModelProto, random: Random) -> None:
    """The same numbers as another type, all of its nodes told nothing."""
    tensor = _small(model, random)
    if tensor is not None:
        values = numpy_helper.to_array(tensor).reshape(-1)
        kind = random.choice(sorted(set(TensorProto.DataType.values()) - {0, 8}))
        with np.errstate(all="ignore"):
            odd = helper.make_tensor(tensor.name, kind, tensor.dims, np.clip(np.nan_to_num(values), 0, 1).tolist())
        tensor.CopyFrom(odd)


def weight_external(model: onnx.ModelProto, random: Random) -> None:
    """Kept in the file beside the model, soundly or past its end."""
    tensor = _small(model, random)
    if tensor is None:
        return
    size = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    offset = random.choice((0, 0, 4, 64, 1020, 1024, 1 << 20))
    entries = [("location", random.choice(("w.bin", "w.bin", "./w.bin"))), ("offset", str(offset))]
    if random.random() < 0.7:
        entries.append(("length", str(random.choice((size, size, size + 4, 0)))))
    for key, value in entries:
        tensor.external_data.add(key=key, value=value)


def _coordinates(tensor: TensorProto, random: Random) -> onnx.SparseTensorProto:
    values = numpy_helper.to_array(tensor)
    flat = values.reshape(-1)
    places = np.flatnonzero(flat)[: random.choice((0, 1, 5, 1 << 20))]
    if random.random() < 0.2:
        places = places[::-1]
    indices = (
        places if random.random() < 0.5 or not values.ndim else np.stack(np.unravel_index(places, values.shape), 1)
    )
    kept = numpy_helper.from_array(flat[places], tensor.name)
    return helper.make_sparse_tensor(kept, numpy_helper.from_array(indices.astype("i8"), ""), list(tensor.dims))


def weight_stored_sparse(model: onnx.ModelProto, random: Random) -> None:
    """Stored by coordinates, as it should be."""
    tensor = _small(model, random)
    if tensor is not None:
        model.graph.sparse_initializer.append(_coordinates(tensor, random))
        if random.random() < 0.9:
            model.graph.initializer.remove(tensor)


def sparse_constant(model: onnx.ModelProto, random: Random) -> None:
    tensor = _small(model, random)
    if tensor is not None:
        node = named("Constant", [], [tensor.name], sparse_value=_coordinates(tensor, random))
        model.graph.initializer.remove(tensor)
        model.graph.node.insert(0, node)


def weight_many_ranks(model: onnx.ModelProto, random: Random) -> None:
    """Of more dimensions than NumPy knows, of one element or of none."""
    rank = random.choice((31, 32, 33, 64, 65, 200))
    tensor = _small(model, random)
    if tensor is not None and random.random() < 0.6:
        dims = [1] * rank + list(tensor.dims) if random.random() < 0.5 else list(tensor.dims) + [1] * rank
        del tensor.dims[:]
        tensor.dims.extend(dims)
    else:
        weight = added_weight(model, "many", helper.make_tensor("t", 1, [1] * rank, [2.0]))
        op = random.choice(("Mul", "Add", "Pow"))
        spliced(model, random, lambda read, made: [named(op, [read, weight], [made])])


def size_zero(model: onnx.ModelProto, random: Random) -> None:
    """A weight or an input without elements."""
    tensor = _small(model, random)
    if tensor is not None and tensor.dims and random.random() < 0.6:
        tensor.dims[random.randrange(len(tensor.dims))] = 0
        tensor.ClearField("raw_data")
        return
    info = one_of(random, (info for info in model.graph.input if info.type.tensor_type.shape.dim))
    if info is not None:
        random.choice(info.type.tensor_type.shape.dim).dim_value = 0


def input_added(model: onnx.ModelProto, random: Random) -> None:
    """One of any type and rank, read by nobody or instead of another tensor."""
    name = fresh(model, "new_input")
    kind = random.choice(sorted(set(TensorProto.DataType.values())))
    shape: Any = random.choice(
        ([], [1], [4], [0], ["n"], ["n", "n"], [""], [None], None, [1] * 33, [2] * 65, [1, "n"] * 20)
    )
    tensor = helper.make_tensor_type_proto(kind, shape)
    way = random.random()
    if way < 0.1:
        info = onnx.ValueInfoProto(name=name, type=helper.make_sequence_type_proto(tensor))
    elif way < 0.15:
        info = onnx.ValueInfoProto(name=name, type=helper.make_map_type_proto(TensorProto.STRING, tensor))
    elif way < 0.2:
        info = onnx.ValueInfoProto(name=name, type=helper.make_sparse_tensor_type_proto(1, [2]))
    else:
        info = onnx.ValueInfoProto(name=name, type=tensor)
    model.graph.input.insert(random.randrange(len(model.graph.input) + 1), info)
    if random.random() < 0.7:
        op = random.choice(("Identity", "Exp", "Cast"))
        more = {"to": TensorProto.FLOAT} if op == "Cast" else {}
        spliced(model, random, lambda read, made: [named(op, [name], [made], **more)])


def annotation_added(model: onnx.ModelProto, random: Random) -> None:
    """What a model may say of its tensors and its nodes beside the graph."""
    names = [*names_of(model), "absent"]
    note = model.graph.quantization_annotation.add(tensor_name=random.choice(names))
    note.quant_parameter_tensor_names.add(key=random.choice(("SCALE_TENSOR", *ODD_TEXTS)), value=random.choice(names))
    for info in random.sample(infos_of(model), min(2, len(infos_of(model)))):
        info.doc_string = random.choice(ODD_TEXTS)
        if info.type.HasField("tensor_type") and info.type.tensor_type.shape.dim:
            random.choice(info.type.tensor_type.shape.dim).denotation = random.choice(("DATA_BATCH", *ODD_TEXTS))
    holder = random.choice(graphs_of(model))
    info = holder.value_info.add(name=random.choice(names))
    info.type.tensor_type.elem_type = random.choice((0, 1, 8, 10, 16, 17, 22))
    configuration = model.configuration.add(name=random.choice(ODD_TEXTS), num_devices=random.choice((0, 1, -1, 2)))
    for node in model.graph.node[:1]:
        node.device_configurations.add(configuration_id=configuration.name, pipeline_stage=random.choice((0, -1, 7)))


def training_added(model: onnx.ModelProto, random: Random) -> None:
    """A part for training, which may hold the model once more or call its functions."""
    training = model.training_info.add()
    training.initialization.name = "start"
    training.algorithm.CopyFrom(model.graph) if random.random() < 0.5 else training.algorithm.node.add(op_type="Absent")
    names = names_of(model) or [""]
    training.update_binding.add(key=random.choice(names), value=random.choice(names))


def domain_twice(model: onnx.ModelProto, random: Random) -> None:
    """The same operators under two names of their domain, of one version or of two."""
    version = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 17)
    model.opset_import.add(
        domain=random.choice(("ai.onnx", "")), version=random.choice((version, version, version, 9, 99))
    )
    for function in model.functions:
        function.opset_import.add(domain="ai.onnx", version=random.choice((version, 9)))
    for node in random.sample(list(model.graph.node), len(model.graph.node) // 2):
        node.domain = "ai.onnx" if node.domain == "" else node.domain
