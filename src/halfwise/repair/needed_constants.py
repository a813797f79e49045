"""What TensorRT's parser reads as constants only, and nodes compute from constants alone: computed once, and stored.

These are axes of reductions and windows, and the results of operators that it reads nowhere: weights that
BatchNormalization in training mode standardises, mel filters, what an antialiased Resize makes of a unit matrix.
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from halfwise.model.families import REDUCTIONS
from halfwise.model.model import Model
from halfwise.model.patterns.view import attribute
from halfwise.repair.constant_regions import computed, region_of, steady_nodes
from halfwise.repair.graph_edit import GraphEdit

__all__ = ["with_needed_constants"]

_AXES, _WINDOW = 1, 2  # the slots
_TABLES = frozenset({"MelWeightMatrix", "HannWindow", "HammingWindow", "BlackmanWindow"})


def with_needed_constants(model: Model) -> Model:
    """The same numbers; the given model where there are none to compute."""
    if not any(_needed(node) for node in model.nodes):
        return model
    copy = model.ir.clone()
    steady, done = steady_nodes(copy), False
    for node in list(copy.graph.all_nodes()):
        value = _needed(node)
        if value is None or value.producer() not in steady:
            continue
        array = computed(copy, value, region_of(value, steady))
        if array is not None:
            ir.convenience.replace_all_uses_with(value, GraphEdit(copy, node, "stored").constant(array, array.dtype))
            done = True
    if not done:
        return model
    RemoveUnusedNodesPass()(copy)
    return replace(model, ir=copy)


def _needed(node: ir.Node) -> ir.Value | None:
    """What has to be a constant there, where a node makes it."""
    if node.domain:
        return None
    if _unread(node):
        return None if node.outputs[0].is_graph_output() else node.outputs[0]
    slot = _AXES if node.op_type in REDUCTIONS else _WINDOW if node.op_type == "STFT" else None
    value = node.inputs[slot] if slot is not None and slot < len(node.inputs) else None
    return value if value is not None and value.producer() is not None else None


def _unread(node: ir.Node) -> bool:
    made_once = {"BatchNormalization": "training_mode", "Resize": "antialias"}
    if node.op_type in made_once:
        return bool(attribute(node, made_once[node.op_type], 0))
    return node.op_type in _TABLES
