"""Nodes that draw random numbers. A seed of its own lets each draw the same numbers in every run and every model.

Without one ONNX Runtime draws by the node's place in the graph, so that a Cast before it changes its numbers.
"""

from __future__ import annotations

import zlib

import onnx
import onnx_ir as ir

from halfwise.model.held_graphs import nodes_within
from halfwise.model.ops import RANDOM

__all__ = ["draws", "has_draws", "seed", "seed_file"]

_SEEDS = 1 << 24  # FP32 holds each


def draws(node: ir.Node) -> bool:
    """Whether its result is random; of a Dropout, whether it may be in training: a constant says, or an input does."""
    if node.domain or node.op_type in RANDOM:
        return not node.domain
    if node.op_type != "Dropout" or len(node.inputs) < 3 or node.inputs[2] is None:
        return False
    training = node.inputs[2].const_value
    return training is None or bool(training.numpy().any())


def seed(proto: onnx.NodeProto, name: str) -> None:
    """Give a node a seed by its name, unless it has one."""
    if any(attribute.name == "seed" for attribute in proto.attribute):
        return
    number = zlib.crc32(name.encode()) % _SEEDS
    whole = proto.op_type == "Dropout"
    proto.attribute.append(onnx.helper.make_attribute("seed", number if whole else float(number)))


def seed_file(graph: onnx.GraphProto) -> bool:
    """The same of all nodes of a model as a file has it, by name; whether there are any."""
    random = [node for node in nodes_within(graph.node) if _may_draw(node)]
    for node in random:
        seed(node, node.name or "node_of_" + next(filter(None, node.output), node.op_type))
    return bool(random)


def has_draws(graph: onnx.GraphProto) -> bool:
    return any(map(_may_draw, nodes_within(graph.node)))


def _may_draw(node: onnx.NodeProto) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    return node.op_type in RANDOM or (node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2]))
