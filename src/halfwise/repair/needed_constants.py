"""What TensorRT's parser reads as constants only, and nodes compute from constants alone: computed once, and stored.

These are axes, lengths, sizes and windows, and results of operators that it reads nowhere: weights that
BatchNormalization in training mode standardises, mel filters, what an antialiased Resize makes of a unit matrix.
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from halfwise.model.bodies import nodes_in
from halfwise.model.families import REDUCTIONS
from halfwise.model.model import Model
from halfwise.model.patterns.view import attribute
from halfwise.repair.constant_regions import computed, region_of, steady_nodes
from halfwise.repair.graph_edit import GraphEdit

__all__ = ["with_needed_constants"]

_AXES = 1
_SLOTS = {"DFT": (1, 2), "STFT": (1, 2, 3), "Col2Im": (1, 2)}
_TABLES = frozenset({"MelWeightMatrix", "HannWindow", "HammingWindow", "BlackmanWindow"})
_ONLY_WITH = {"BatchNormalization": "training_mode", "Resize": "antialias"}  # the attribute that makes it unread


def with_needed_constants(model: Model) -> Model:
    """The same numbers; the given model where there are none to compute."""
    if not any(_needed(node) for node in model.nodes):
        return model
    copy = model.ir.clone()
    steady, done = steady_nodes(copy), False
    for node in list(nodes_in(copy.graph)):
        for value in _needed(node):
            array = computed(copy, value, region_of(value, steady)) if value.producer() in steady else None
            if array is not None:
                stored = GraphEdit(copy, node, "stored").constant(array, array.dtype)
                ir.convenience.replace_all_uses_with(value, stored)
                done = True
    if not done:
        return model
    RemoveUnusedNodesPass()(copy)
    return replace(model, ir=copy)


def _needed(node: ir.Node) -> list[ir.Value]:
    """What has to be a constant there, where a node makes it."""
    if node.domain:
        return []
    if _makes_weights(node):
        return [] if node.outputs[0].is_graph_output() else [node.outputs[0]]
    slots = (_AXES,) if node.op_type in REDUCTIONS else _SLOTS.get(node.op_type, ())
    values = (node.inputs[slot] for slot in slots if slot < len(node.inputs))
    return [value for value in values if value is not None and value.producer() is not None]


def _makes_weights(node: ir.Node) -> bool:
    if node.op_type in _ONLY_WITH:
        return bool(attribute(node, _ONLY_WITH[node.op_type], 0))
    return node.op_type in _TABLES
