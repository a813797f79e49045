"""Objects on their way to another process of ours: pickled, each ONNX IR among them as a protobuf and its weights.

Nodes and tensors arrive as those of the model that arrives with them. Large weights that lie in memory stay behind, and
say so when they are asked for. Nobody reads such bytes from a file.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NoReturn

import onnx
import onnx_ir as ir

from halfwise.core.errors import HalfwiseError
from halfwise.model.model import Model

__all__ = ["Travelling", "pack", "unpack"]

_MOST_BYTES = 1 << 26  # of a model's weights in memory that go along
_SMALL = 1 << 10

Reducer = Callable[[Any], Any]


@dataclass(frozen=True)
class Travelling:
    """An IR on its way. `weights`: what is not in the protobuf, by the initializer's name."""

    proto: bytes
    objects: int
    folder: str
    left: dict[str, tuple[int, tuple[int, ...]]]


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, reducer: Reducer) -> None:
        super().__init__(file, 5)
        self.models: list[ir.Model] = []
        self._reducer = reducer
        self._places: dict[Any, tuple[int, int]] = {}

    def persistent_id(self, obj: Any) -> tuple[int, int] | None:
        if not isinstance(obj, (ir.Model, ir.Graph, ir.Node, ir.Value)):
            return None
        if isinstance(obj, ir.Model) and obj not in self._places:
            for index, part in enumerate(_parts(obj)):
                self._places[part] = len(self.models), index
            self.models.append(obj)
        if obj not in self._places:
            raise pickle.PicklingError(f"{type(obj).__name__} {obj.name} of no model")
        return self._places[obj]

    def reducer_override(self, obj: Any) -> Any:
        reduced = self._reducer(obj)
        if reduced is NotImplemented and type(obj) is Model:  # without what was computed of it
            return Model, tuple(getattr(obj, each.name) for each in fields(Model))
        return reduced


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, models: list[Travelling]) -> None:
        super().__init__(file)
        self._parts = [_arrived(each) for each in models]

    def persistent_load(self, place: Any) -> Any:
        model, index = place
        return self._parts[model][index]


def pack(obj: Any, reducer: Reducer = lambda obj: NotImplemented, *, whole: bool = False) -> bytes:
    """`reducer` is a pickler's `reducer_override`. Raises where something cannot travel; `whole`: or stays behind."""
    body = io.BytesIO()
    packer = _Packer(body, reducer)
    packer.dump(obj)
    sent = [_sent(each) for each in packer.models]
    if whole and any(each.left for each in sent):
        raise pickle.PicklingError("a model's weights in memory are too large")
    return pickle.dumps((sent, body.getvalue()), 5)


def unpack(content: bytes) -> Any:
    models, body = pickle.loads(content)
    return _Unpacker(io.BytesIO(body), models).load()


def _parts(model: ir.Model) -> list[Any]:
    """The model and all in it, each once, in an order that its protobuf keeps."""
    return list(dict.fromkeys(_listed(model)))


def _listed(model: ir.Model) -> Iterator[Any]:
    yield model
    for graph in (model.graph, *model.graph.subgraphs()):
        yield graph
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield node
            yield from node.outputs


def _initializers(model: ir.Model) -> Iterator[ir.Value]:
    for graph in dict.fromkeys((model.graph, *model.graph.subgraphs())):
        yield from graph.initializers.values()


def _sent(model: ir.Model) -> Travelling:
    count, folder = len(_parts(model)), ""
    held = [value for value in _initializers(model) if value.const_value is not None]
    inside = [value for value in held if not isinstance(value.const_value, ir.ExternalTensor)]
    left: dict[str, tuple[int, tuple[int, ...]]] = {}
    if sum(value.const_value.nbytes for value in inside if value.const_value is not None) > _MOST_BYTES:
        model = model.clone()
        for value in _initializers(model):
            tensor = value.const_value
            if tensor is not None and not isinstance(tensor, ir.ExternalTensor) and tensor.nbytes > _SMALL:
                left[value.name or ""] = int(tensor.dtype), tuple(int(size) for size in tensor.shape.numpy())
                value.const_value = ir.TensorProtoTensor(onnx.TensorProto(name=value.name, data_type=1, dims=[0]))
    for value in held:
        if isinstance(value.const_value, ir.ExternalTensor):
            folder = str(value.const_value.base_dir)
    return Travelling(ir.to_proto(model).SerializeToString(), count, folder, left)


def _arrived(sent: Travelling) -> list[Any]:
    model = ir.from_proto(onnx.ModelProto.FromString(sent.proto))
    if sent.folder:
        ir.external_data.set_base_dir(model.graph, sent.folder)
    for value in _initializers(model) if sent.left else ():
        if value.name in sent.left:
            dtype, sizes = sent.left[value.name]
            shape = ir.Shape(sizes)
            absent = partial(_stayed, value.name)
            value.const_value = ir.LazyTensor(absent, ir.DataType(dtype), shape, name=value.name)
            value.shape, value.dtype = shape, ir.DataType(dtype)
    parts = _parts(model)
    if len(parts) != sent.objects:
        raise pickle.UnpicklingError("a model did not arrive as it was sent")
    return parts


def _stayed(name: str) -> NoReturn:
    raise HalfwiseError(f"the values of {name!r} stayed in the process that read the model: load it with halfwise.load")
