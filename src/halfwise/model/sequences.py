"""A sequence that is split from a tensor and read at constant places, as a Split: PyTorch writes one for
`split` and `chunk` where nothing optimises the model. What goes through a sequence stays in FP32."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from halfwise.model.bodies import nodes_in

__all__ = ["split_sequences"]

_SINCE = 13  # the opset whose Split has its sizes as an input


def split_sequences(model: ir.Model) -> None:
    """Do so in place, where the sizes are known; types and names have to be, too."""
    if model.opset_imports.get("", 1) < _SINCE:
        return
    for node in list(nodes_in(model.graph)):
        if node.op_type == "SplitToSequence" and not node.domain and (sizes := _sizes(node)):
            _split(model, node, sizes)


def _sizes(node: ir.Node) -> list[int]:
    """Of each part; none where they are not known, or cannot be: the runtime tells that of the node as given."""
    value, axis = node.inputs[0], node.attributes.get_int("axis", 0)
    sizes = _constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if value is None or value.shape is None or sizes is None or not -len(value.shape) <= axis < len(value.shape):
        return []
    length = value.shape[axis]
    if sizes.ndim == 1:
        fits = bool((sizes >= 0).all()) and (not isinstance(length, int) or length == sizes.sum())
        return [int(size) for size in sizes] if fits else []
    if sizes.ndim or not isinstance(length, int) or sizes.item() < 1:
        return []
    return [min(sizes.item(), length - start) for start in range(0, length, sizes.item())]


def _split(model: ir.Model, node: ir.Node, sizes: list[int]) -> None:
    """Parts keep the names, types and shapes that they had."""
    whole, sequence, graph = node.inputs[0], node.outputs[0], node.graph
    places = {reader: _place(reader, len(sizes)) for reader in sequence.consumers()}
    readers = {place: reader for reader, place in places.items() if place is not None}
    if sequence.is_graph_output() or len(readers) < len(places) or not readers:
        return
    if whole is None or not isinstance(graph, ir.Graph):
        return
    taken = {value.name for each in nodes_in(model.graph) for value in each.outputs} | set(model.graph.initializers)
    held = ir.tensor(np.array(sizes, np.int64), name=_free(f"{node.name}/sizes", taken))
    given = ir.Value(name=held.name, shape=ir.Shape([len(sizes)]), type=ir.TensorType(held.dtype), const_value=held)
    model.graph.register_initializer(given)
    axis = {"axis": node.attributes.get_int("axis", 0)}
    split = ir.node("Split", [whole, given], axis, num_outputs=len(sizes), name=node.name)
    graph.insert_before(node, split)
    for place, part in enumerate(split.outputs):
        reader = readers.get(place)
        if reader is None:
            part.name, part.type = _free(f"{node.name}/{place}", taken), whole.type
            continue
        old = reader.outputs[0]
        part.name, part.type, part.shape = old.name, old.type, old.shape
        ir.convenience.replace_all_uses_with(old, part, replace_graph_outputs=True)
        graph.remove(reader, safe=True)
    graph.remove(node, safe=True)


def _place(reader: ir.Node, count: int) -> int | None:
    """Which part it reads; None where that is not constant, or where it does something else."""
    place = _constant(reader.inputs[1]) if reader.op_type == "SequenceAt" and not reader.domain else None
    if place is None or place.size != 1 or not -count <= place.item() < count:
        return None
    return int(place.item()) % count


def _constant(value: ir.Value | None) -> np.ndarray | None:
    held = value.const_value if value is not None and value.is_initializer() else None
    return held.numpy() if held is not None else None


def _free(name: str, taken: set[str | None]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
