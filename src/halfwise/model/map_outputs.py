"""Outputs that are maps, as classifiers have them: the tensor behind one is judged in its place, and it is put back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from halfwise.core.errors import InputError

__all__ = ["MapOutput", "cut_maps", "has_maps", "put_maps_back"]

_MAKER = "ZipMap"  # of ai.onnx.ml: float tensors with class labels as keys


@dataclass(frozen=True, eq=False)
class MapOutput:
    """The node that makes the map, what is declared of the map, and its place among the outputs."""

    node: onnx.NodeProto
    declared: onnx.ValueInfoProto
    place: int
    shared: bool  # the tensor behind it is an output itself

    @property
    def name(self) -> str:
        return str(self.declared.name)

    @property
    def tensor(self) -> str:
        return str(self.node.input[0])

    def in_order(self, sorted_by_key: NDArray[Any]) -> NDArray[Any]:
        """The tensor again, of values in the order of their keys, as the runtime hands maps out."""
        labels = next((list(held) for each in self.node.attribute if (held := each.ints or each.strings)), [])
        found = np.empty_like(sorted_by_key)
        found[..., sorted(range(len(labels)), key=labels.__getitem__)] = sorted_by_key
        return found


def has_maps(proto: onnx.ModelProto) -> bool:
    return any(_is_map(value.type) for value in proto.graph.output)


def cut_maps(proto: onnx.ModelProto) -> tuple[MapOutput, ...]:
    """Take the makers of maps out, in place: the tensors that they read are outputs then."""
    graph, found = proto.graph, list[MapOutput]()
    makers = {node.output[0]: node for node in graph.node if node.op_type == _MAKER and node.output}
    plain = {value.name for value in graph.output if not _is_map(value.type)}
    outputs = list[onnx.ValueInfoProto]()
    for place, value in enumerate(graph.output):
        if not _is_map(value.type):
            outputs.append(value)
            continue
        node = makers.get(value.name)
        if node is None or any(value.name in other.input for other in graph.node):
            raise InputError(f"the output {value.name!r} is a map that no ZipMap makes: make its tensor an output")
        made = MapOutput(_copied(node), _declared(value), place, node.input[0] in plain)
        found.append(made)
        if not made.shared:
            plain.add(made.tensor)
            outputs.append(helper.make_tensor_value_info(made.tensor, TensorProto.FLOAT, None))
    kept = [node for node in graph.node if not any(node.output[:1] == [each.name] for each in found)]
    del graph.output[:], graph.node[:]
    graph.output.extend(outputs)
    graph.node.extend(kept)
    return tuple(found)


def put_maps_back(proto: onnx.ModelProto, maps: Sequence[MapOutput]) -> None:
    """The way back, of a model that may hand the tensors out in FP16; a map holds FP32."""
    graph = proto.graph
    for each in maps:
        node, kind = _copied(each.node), {value.name: value.type.tensor_type.elem_type for value in graph.output}
        if kind.get(each.tensor, TensorProto.FLOAT) != TensorProto.FLOAT:
            node.input[0] = f"{each.tensor}_of_{each.name}"
            graph.node.append(helper.make_node("Cast", [each.tensor], [node.input[0]], to=TensorProto.FLOAT))
        graph.node.append(node)
    spared = {each.tensor for each in maps if not each.shared}
    outputs = [value for value in graph.output if value.name not in spared]
    for each in maps:
        outputs.insert(each.place, each.declared)
    del graph.output[:]
    graph.output.extend(outputs)


def _is_map(kind: onnx.TypeProto) -> bool:
    return kind.HasField("map_type") or (kind.HasField("sequence_type") and _is_map(kind.sequence_type.elem_type))


def _copied(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _declared(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(value)
    return copy
