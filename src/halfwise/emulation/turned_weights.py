"""The transposes of weights, made once for all runs: the table that a decoder ties is half of a small one's weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from halfwise.emulation.weights import Array, RoundedWeights
from halfwise.precision.rewrite import Weight

__all__ = ["with_turned"]


def with_turned(
    proto: onnx.ModelProto, weights: Sequence[Weight], rounded: RoundedWeights
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model without those nodes, and all weights that it takes, by name."""
    given = {weight.name: weight for weight in weights}
    held = {name: rounded.of(weight) for name, weight in given.items()}
    moved = _transposes(proto.graph, given)
    if not moved:
        return proto, held
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    stay = [node for node in made.graph.node if node.output[0] not in moved]
    del made.graph.node[:]
    made.graph.node.extend(stay)
    declared = {tensor.name: tensor for tensor in made.graph.initializer}
    for result, (name, order) in moved.items():
        held[result] = rounded.of(given[name], order=order)
        tensor = made.graph.initializer.add()
        tensor.CopyFrom(declared[name])
        tensor.name, tensor.dims[:] = result, held[result].shape
    return made, held


def _transposes(graph: onnx.GraphProto, weights: Mapping[str, Weight]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What a node makes of a weight alone: the weight, and the order of its axes."""
    outputs = {value.name for value in graph.output}
    found = {}
    for node in graph.node:
        if node.op_type == "Transpose" and not node.domain and node.input[0] in weights:
            rank = len(weights[node.input[0]].tensor.shape)
            stated = next((tuple(each.ints) for each in node.attribute if each.name == "perm"), None)
            if node.output[0] not in outputs:
                found[node.output[0]] = (node.input[0], stated or tuple(reversed(range(rank))))
    return found
