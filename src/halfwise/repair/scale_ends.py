"""Where powers of two may begin and end: at constants, and where that is not enough, behind and in front of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from halfwise.model.families import QUANTISERS, STEPS
from halfwise.model.model import Model
from halfwise.repair.rule import Ranges
from halfwise.repair.scale_atoms import PINNED
from halfwise.repair.scale_flow import ScaleFlow

__all__ = ["flow_of", "plain_flow"]

_LARGEST = 65504.0
_FITS = 2.0**15  # a value up to here leaves room for inputs not seen


def plain_flow(model: Model, ranges: Ranges, *, rounds: bool = False) -> ScaleFlow:
    """With no factor put in front of any node; several rules ask for it, and change nothing of it."""
    key = (ScaleFlow, model, rounds)
    if key not in ranges.known:
        ranges.known[key] = ScaleFlow(model, replace(ranges, known={}), rounds=rounds)  # which it would keep alive
    found: ScaleFlow = ranges.known[key]
    return found


def flow_of(model: Model, ranges: Ranges, *, rounds: bool = False) -> ScaleFlow:
    """Where what overflows would have to be scaled from a graph input on, a factor may be put behind that input; else
    behind what no power passes, such as a Gelu, and in front of a graph output."""
    flow = plain_flow(model, ranges, rounds=rounds)
    if not _stuck(flow):
        return flow
    inputs = () if model.within is not None else model.graph.inputs
    entries = [value.name or "" for value in inputs if flow.high(value) <= _FITS and value.uses()]
    if entries:
        flow = ScaleFlow(model, ranges, entries=entries, rounds=rounds)
    stuck = _stuck(flow)
    if not stuck:
        return flow
    sources, outputs = _sources(flow), [value.name or "" for value in model.graph.outputs]
    anywhere = [*entries, *(value.name or "" for value in sources)]
    free = ScaleFlow(model, ranges, entries=anywhere, ends=outputs, rounds=rounds)
    labels = _labels(free, [v for v in stuck if not v.is_graph_output() and not free.pinned(free.layouts[v])])
    if not labels:
        return flow
    entries += [value.name or "" for value in sources if _labels(free, [value]) & labels]
    ends = [node.outputs[0].name or "" for node, _ in free.ends if _labels(free, node.outputs[:1]) & labels]
    return ScaleFlow(model, ranges, entries=entries, ends=ends, rounds=rounds)


def _stuck(flow: ScaleFlow) -> list[ir.Value]:
    """What overflows and has to come out as it is."""
    return [value for value, layout in flow.layouts.items() if flow.high(value) > _LARGEST and flow.pinned(layout)]


def _sources(flow: ScaleFlow) -> list[ir.Value]:
    """What nodes make that no power passes, as far as FP16 holds it."""
    made = [node.outputs[0] for node in flow.model.graph if node.op_type not in QUANTISERS | STEPS]
    floats = [value for value in made if value.dtype is ir.DataType.FLOAT and value.uses()]
    plain = [value for value in floats if value not in flow.layouts or (flow.layouts[value].atoms == PINNED).all()]
    return [value for value in plain if flow.high(value) <= _FITS and not value.is_graph_output()]


def _labels(flow: ScaleFlow, values: Sequence[ir.Value]) -> set[int]:
    """The classes that scale them."""
    atoms = [flow.layouts[value].atoms for value in values]
    return {*flow.classes.labels[np.concatenate([np.zeros(0, np.int64), *atoms])].tolist()} - {PINNED}
