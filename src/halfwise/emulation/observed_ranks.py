"""Ranks that inference does not know, as the FP32 run has them: behind branches, lists and sizes that are computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.ort import Answer
from halfwise.model.inference import infer_types
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["open_values", "with_observed_ranks"]


def open_values(model: Model) -> tuple[str, ...]:
    """The tensors whose rank inference does not know."""
    made = (value for node in model.graph for value in node.outputs)
    return tuple(value.name for value in made if _is_open(value) and value.name)


def with_observed_ranks(
    model: Model, feeds: Sequence[Mapping[str, Any]], emulator: Emulator
) -> tuple[Model, list[Answer]]:
    """The model with the ranks that all feeds agree on, and what inference makes of them; and what FP32 answers to
    each feed, or why it does not.

    Sizes are left open: other inputs may have others. A model of which all is known is not run.
    """
    unknown = open_values(model)
    if not unknown:
        return model, []
    asking, sizes = _asking_sizes(model, unknown)
    answers = list(emulator.session(Assignment(Sites(asking), {})).answers([widen_feeds(feed) for feed in feeds]))
    ranks = _agreed(sizes, [answer for answer in answers if not isinstance(answer, Exception)])
    return (_with_ranks(model, ranks) if ranks else model), answers


def _is_open(value: ir.Value) -> bool:
    return value.shape is None and isinstance(value.type, ir.TensorType)


def _asking_sizes(model: Model, unknown: Iterable[str]) -> tuple[Model, dict[str, str]]:
    """The model with the sizes of these tensors among its outputs; and which is whose."""
    copy, wanted, sizes = model.ir.clone(), set(unknown), {}
    for value in [value for node in copy.graph for value in node.outputs if value.name in wanted]:
        node = ir.node("Shape", [value], name=f"halfwise:sizes {value.name}")
        told = node.outputs[0]
        told.name, told.dtype, told.shape = node.name, ir.DataType.INT64, ir.Shape([None])
        copy.graph.append(node)
        copy.graph.outputs.append(told)
        sizes[node.name or ""] = value.name or ""
    return replace(model, ir=copy), sizes


def _agreed(sizes: Mapping[str, str], answers: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    seen = {value: {len(answer[name]) for answer in answers} for name, value in sizes.items()}
    return {value: ranks.pop() for value, ranks in seen.items() if len(ranks) == 1}


def _with_ranks(model: Model, ranks: Mapping[str, int]) -> Model:
    copy = model.ir.clone()
    declared = [(value, value.shape) for value in copy.graph.outputs]
    for node in copy.graph:
        for value in node.outputs:
            if (rank := ranks.get(value.name or "")) is not None:
                value.shape = ir.Shape([None] * rank)
    infer_types(copy)
    for value, shape in declared:  # the interface stays as it was stated
        value.shape = shape
    return replace(model, ir=copy)
