"""Axes of reductions that nodes compute from constants, as constants: TensorRT's parser reads no others."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from halfwise.model.families import REDUCTIONS
from halfwise.model.model import Model
from halfwise.repair.constant_regions import computed, region_of, steady_nodes
from halfwise.repair.graph_edit import GraphEdit

__all__ = ["with_constant_axes"]

_AXES = 1  # the slot


def with_constant_axes(model: Model) -> Model:
    """The same reductions; the given model where no axes are computed from constants alone."""
    if not any(_computed_axes(node) for node in model.nodes):
        return model
    copy = model.ir.clone()
    steady, done = steady_nodes(copy), False
    for node in list(copy.graph.all_nodes()):
        given = _computed_axes(node)
        if given is None or given.producer() not in steady:
            continue
        axes = computed(copy, given, region_of(given, steady))
        if axes is not None:
            node.replace_input_with(_AXES, GraphEdit(copy, node, "axes").axes(axes.tolist()))
            done = True
    if not done:
        return model
    RemoveUnusedNodesPass()(copy)
    return replace(model, ir=copy)


def _computed_axes(node: ir.Node) -> ir.Value | None:
    """The axes where a node makes them."""
    if node.op_type not in REDUCTIONS or node.domain or len(node.inputs) <= _AXES:
        return None
    axes = node.inputs[_AXES]
    return axes if axes is not None and axes.producer() is not None else None
