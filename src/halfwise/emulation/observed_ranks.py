"""Ranks that inference does not know, as the FP32 run has them: behind branches, lists and sizes that are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.emulation.emulate import widen_feeds
from halfwise.emulation.stepper import Stepper, Store
from halfwise.model.inference import infer_types
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["with_observed_ranks"]

_SAMPLES = 2

Feed = Mapping[str, NDArray[Any]]


def with_observed_ranks(model: Model, feeds: Sequence[Feed], stepper: Stepper, count: Callable[[float], None]) -> Model:
    """The model with the ranks that all of a few samples agree on, and what inference makes of them.

    Sizes are left open: other inputs may have others. A model of which all is known is handed back as it is.
    """
    unknown = {value: node for node in model.graph for value in node.outputs if _is_open(value)}
    if not unknown or not feeds:
        return model
    chosen = [feeds[0], *feeds[-1:]][:_SAMPLES]
    seen = [_ranks(model, feed, stepper, list(unknown.values())[-1], count) for feed in chosen]
    ranks = {
        value.name or "": rank
        for value, rank in seen[0].items()
        if value in unknown and all(each.get(value) == rank for each in seen)
    }
    if not ranks:
        return model
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


def _is_open(value: ir.Value) -> bool:
    return bool(value.name) and value.shape is None and isinstance(value.type, ir.TensorType)


def _ranks(
    model: Model, feed: Feed, stepper: Stepper, last: ir.Node, count: Callable[[float], None]
) -> dict[ir.Value, int]:
    """As far as the model can be run node by node, and needs to be."""
    found: dict[ir.Value, int] = {}
    store = Store(stepper.emulator, Assignment(Sites(model), {}), widen_feeds(feed))
    before = stepper.executed
    with suppress(InputError):
        for step in stepper.walk(store):
            found.update((v, array.ndim) for v, array in step.outputs.items() if isinstance(array, np.ndarray))
            if step.node is last:
                break
    count((stepper.executed - before) / max(len(model.nodes), 1))
    return found
