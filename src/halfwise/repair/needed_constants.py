"""What TensorRT's parser reads as constants only, and nodes compute from constants alone: computed once, and stored.

These are axes of reductions, and weights that BatchNormalization in training mode standardises, which it reads nowhere.
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

_AXES = 1  # the slot


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
    if node.op_type == "BatchNormalization" and attribute(node, "training_mode", 0):
        return None if node.outputs[0].is_graph_output() else node.outputs[0]
    axes = node.inputs[_AXES] if node.op_type in REDUCTIONS and len(node.inputs) > _AXES else None
    return axes if axes is not None and axes.producer() is not None else None
