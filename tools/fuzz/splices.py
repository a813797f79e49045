"""Puts new nodes between a tensor and one of its readers, and new names where none is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tools.fuzz.model_parts import graphs_of, names_of, one_of

__all__ = ["Chain", "added_weight", "fresh", "named", "spliced"]

Chain = Callable[[str, str], Sequence[onnx.NodeProto]]  # from the tensor that it reads and the one that it is to make


def fresh(model: onnx.ModelProto, stem: str) -> str:
    taken = set(names_of(model))
    return next(name for count in range(len(taken) + 1) if (name := f"{stem}{count}") not in taken)


def named(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    """A node that is called after what it makes."""
    domain = attributes.pop("domain", "")
    return helper.make_node(op, inputs, outputs, name=f"at_{outputs[0]}", domain=domain, **attributes)


def added_weight(model: onnx.ModelProto, stem: str, value: Any) -> str:
    """An initializer of the main graph, by its name; `value` is an array or a TensorProto."""
    name = fresh(model, stem)
    tensor = model.graph.initializer.add()
    tensor.CopyFrom(value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value)))
    tensor.name = name
    return name


def spliced(model: onnx.ModelProto, random: Random, chain: Chain, *, inside: bool = True) -> None:
    """The nodes of `chain` stand before a reader of a tensor, in a body or a function, too, if `inside`."""
    graphs = graphs_of(model) if inside else [model.graph]
    readers = [
        (graph, place, slot)
        for graph in graphs
        for place, node in enumerate(graph.node)
        for slot, name in enumerate(node.input)
        if name
    ]
    found = one_of(random, readers)
    if found is not None:
        graph, place, slot = found
        made = fresh(model, "made")
        nodes = chain(graph.node[place].input[slot], made)
        graph.node[place].input[slot] = made
        for node in reversed(nodes):
            graph.node.insert(place, node)
