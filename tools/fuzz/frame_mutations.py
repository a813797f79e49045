"""Damage to what is around the nodes: versions, inputs and outputs, metadata."""

from __future__ import annotations

from random import Random
from typing import Any

import onnx

from tools.fuzz.model_parts import graphs_of, names_of, nodes_of, one_of
from tools.fuzz.odd_values import ODD_TEXTS

__all__ = ["ends_changed", "ir_version_other", "metadata_odd", "opset_entries", "opset_other"]


def opset_other(model: onnx.ModelProto, random: Random) -> None:
    entry = one_of(random, model.opset_import)
    if entry is not None:
        newest = onnx.defs.onnx_opset_version()
        entry.version = random.choice((*range(1, newest + 2), -1, 0, 1 << 31, 1 << 62))


def opset_entries(model: onnx.ModelProto, random: Random) -> None:
    way = random.randrange(3)
    if way == 0:
        del model.opset_import[:]
    elif way == 1 and model.opset_import:
        del model.opset_import[random.randrange(len(model.opset_import))]
    else:
        domain = random.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "x"))
        model.opset_import.add(domain=domain, version=random.choice((1, 9, 17, 23)))


def ir_version_other(model: onnx.ModelProto, random: Random) -> None:
    model.ir_version = random.choice((0, 1, 3, 4, 8, 10, 13, 99, 1 << 40, -1))


def ends_changed(model: onnx.ModelProto, random: Random) -> None:
    """Inputs and outputs of the graph: lost, twice, more, of other names."""
    graph = random.choice([graph for graph in graphs_of(model) if isinstance(graph, onnx.GraphProto)])
    ends = random.choice((graph.input, graph.output))
    way = random.randrange(4)
    if way == 0 and ends:
        del ends[random.randrange(len(ends))]
    elif way == 1 and ends:
        ends.add().CopyFrom(random.choice(ends))
    elif way == 2:
        ends.append(onnx.helper.make_tensor_value_info(random.choice([*names_of(model), "absent"]), 1, [2]))
    elif ends:
        random.choice(ends).name = random.choice([*ODD_TEXTS, *names_of(model)])


def metadata_odd(model: onnx.ModelProto, random: Random) -> None:
    holders: list[Any] = [model, model.graph, *nodes_of(model)]
    for key in random.choices(ODD_TEXTS, k=2):
        random.choice(holders).metadata_props.add(key=key, value=random.choice(ODD_TEXTS))
    model.producer_name = model.doc_string = random.choice(ODD_TEXTS)
