"""Objects on their way to another process of ours: pickled, each ONNX IR among them as a protobuf and its weights.

Nodes and tensors arrive as those of the model that arrives with them. Arrays and weights are not copied into the
pickle. Where the weights in memory are too large, they stay behind, and say so when they are asked for. Nobody reads
such bytes from a file.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pickle import PickleBuffer
from typing import Any, NoReturn

import msgspec
import numpy as np
import onnx
import onnx_ir as ir

from halfwise.core.child.packed import Array, Packed
from halfwise.core.errors import HalfwiseError
from halfwise.model.bodies import graphs_in
from halfwise.model.mapped_once import map_once
from halfwise.model.model import Model

__all__ = ["Travelling", "pack", "unpack"]

_MOST_BYTES = 1 << 26  # of a model's weights in memory that go along
_SMALL = 1 << 10
_STAYS = -1  # in the place of an array's number

Reducer = Callable[[Any], Any]


@dataclass(frozen=True)
class Weight:
    """An initializer that is not in the protobuf; `array` is its number among the arrays."""

    dtype: int
    sizes: tuple[int, ...]
    array: int


@dataclass(frozen=True)
class Travelling:
    """An IR on its way. `weights`: what is not in the protobuf, by the initializer's name."""

    proto: bytes
    objects: int
    folder: str
    weights: dict[str, Weight]

    @property
    def whole(self) -> bool:
        return all(each.array != _STAYS for each in self.weights.values())


@dataclass
class _Arrays:
    """Those that go along, each once, however many models have it."""

    arrays: list[PickleBuffer] = field(default_factory=list)
    _numbers: dict[ir.TensorProtocol, int] = field(default_factory=dict)

    def number(self, tensor: ir.TensorProtocol) -> int:
        if tensor not in self._numbers:
            self._numbers[tensor] = len(self.arrays)
            values = np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)
            self.arrays.append(PickleBuffer(values.data))
        return self._numbers[tensor]

    def take(self, array: PickleBuffer) -> bool:
        """As a pickler's `buffer_callback`: a small one goes into the pickle."""
        if array.raw().nbytes > _SMALL:
            self.arrays.append(array)
            return False
        return True


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, reducer: Reducer, arrays: _Arrays) -> None:
        super().__init__(file, 5, buffer_callback=arrays.take)
        self.models: list[ir.Model] = []
        self._reducer = reducer
        self._places: dict[Any, tuple[int, int]] = {}

    def persistent_id(self, obj: Any) -> tuple[int, int] | None:
        kind: type = type(obj)
        if not _is_part(kind):
            return None
        if isinstance(obj, ir.Model) and obj not in self._places:
            for index, part in enumerate(_parts(obj)):
                self._places[part] = len(self.models), index
            self.models.append(obj)
        if obj not in self._places:
            raise pickle.PicklingError(f"{type(obj).__name__} {obj.name} of no model")
        return self._places[obj]

    def reducer_override(self, obj: Any) -> Any:
        if obj is msgspec.UNSET:  # pickle would look for its home in every module, and load those that are put off
            return _unset, ()
        reduced = self._reducer(obj)
        if reduced is NotImplemented and type(obj) is Model:  # without what was computed of it
            return Model, tuple(getattr(obj, each.name) for each in fields(Model))
        return reduced


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, models: Iterable[Travelling], arrays: Sequence[Array]) -> None:
        super().__init__(file, buffers=arrays)
        self._parts = [_arrived(each, arrays) for each in models]

    def persistent_load(self, place: Any) -> Any:
        model, index = place
        return self._parts[model][index]


def pack(obj: Any, reducer: Reducer = lambda obj: NotImplemented, *, whole: bool = False) -> Packed:
    """`reducer` is a pickler's `reducer_override`. Raises where something cannot travel; `whole`: or stays behind."""
    body, arrays = io.BytesIO(), _Arrays()
    packer = _Packer(body, reducer, arrays)
    packer.dump(obj)
    sent = [_sent(each, arrays) for each in packer.models]
    if whole and not all(each.whole for each in sent):
        raise pickle.PicklingError("a model's weights in memory are too large")
    return Packed(pickle.dumps((sent, body.getvalue()), 5), tuple(arrays.arrays))


def unpack(packed: Packed) -> Any:
    models, body = pickle.loads(packed.body)
    return _Unpacker(io.BytesIO(body), models, packed.arrays).load()


def _unset() -> msgspec.UnsetType:
    return msgspec.UNSET


@cache
def _is_part(kind: type) -> bool:
    """Protocols of the IR make `isinstance` slow."""
    return issubclass(kind, (ir.Model, ir.Graph, ir.Node, ir.Value))


def _parts(model: ir.Model) -> list[Any]:
    """The model and all in it, each once, in an order that its protobuf keeps."""
    return list(dict.fromkeys(_listed(model)))


def _listed(model: ir.Model) -> Iterator[Any]:
    yield model
    for graph in (model.graph, *graphs_in(model.graph)):
        yield graph
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield node
            yield from node.outputs


def _initializers(model: ir.Model) -> Iterator[ir.Value]:
    for graph in dict.fromkeys((model.graph, *graphs_in(model.graph))):
        yield from graph.initializers.values()


def _sent(model: ir.Model, arrays: _Arrays) -> Travelling:
    count, folder = len(_parts(model)), ""
    held = [value.const_value for value in _initializers(model) if value.const_value is not None]
    external = [tensor for tensor in held if isinstance(tensor, ir.ExternalTensor)]
    if external:
        folder = str(external[-1].base_dir)
    inside = [tensor for tensor in held if not isinstance(tensor, ir.ExternalTensor)]
    stays = sum(tensor.nbytes for tensor in inside) > _MOST_BYTES
    weights: dict[str, Weight] = {}
    if any(_is_large(tensor) for tensor in inside):
        model = model.clone()
        for value in _initializers(model):
            tensor = value.const_value
            if tensor is not None and _is_large(tensor) and (stays or _is_plain(tensor)):
                sizes = tuple(int(size) for size in tensor.shape.numpy())
                weights[value.name or ""] = Weight(int(tensor.dtype), sizes, _STAYS if stays else arrays.number(tensor))
                empty = onnx.TensorProto(name=value.name, data_type=1, dims=[0], doc_string=tensor.doc_string)
                value.const_value = ir.TensorProtoTensor(empty)
    return Travelling(ir.to_proto(model).SerializeToString(), count, folder, weights)


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return not isinstance(tensor, ir.ExternalTensor) and tensor.nbytes > _SMALL


def _is_plain(tensor: ir.TensorProtocol) -> bool:
    """Whether its bytes are its array's."""
    return tensor.dtype != ir.DataType.STRING and tensor.dtype.bitwidth >= 8


def _arrived(sent: Travelling, arrays: Sequence[Array]) -> list[Any]:
    model = ir.from_proto(onnx.ModelProto.FromString(sent.proto))
    if sent.folder:
        ir.external_data.set_base_dir(model.graph, sent.folder)
        map_once(_initializers(model))
    for value in _initializers(model) if sent.weights else ():
        if weight := sent.weights.get(value.name or ""):
            value.const_value = _tensor(value, weight, arrays)
            value.shape, value.dtype = ir.Shape(weight.sizes), ir.DataType(weight.dtype)
    parts = _parts(model)
    if len(parts) != sent.objects:
        raise pickle.UnpicklingError("a model did not arrive as it was sent")
    return parts


def _tensor(value: ir.Value, weight: Weight, arrays: Sequence[Array]) -> ir.TensorProtocol:
    name, dtype, shape = value.name or "", ir.DataType(weight.dtype), ir.Shape(weight.sizes)
    if weight.array == _STAYS:
        return ir.LazyTensor(partial(_stayed, name), dtype, shape, name=name)
    array = np.frombuffer(memoryview(arrays[weight.array]), dtype.numpy()).reshape(weight.sizes)
    empty = value.const_value
    return ir.Tensor(array, dtype, shape=shape, name=name, doc_string=empty.doc_string if empty is not None else None)


def _stayed(name: str) -> NoReturn:
    raise HalfwiseError(f"the values of {name!r} stayed in the process that read the model: load it with halfwise.load")
