"""Where powers of two may begin and end: at constants, and where that is not enough, behind and in front of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from halfwise.model.families import QUANTISERS, STEPS
from halfwise.model.model import Model
from halfwise.model.patterns.view import View
from halfwise.repair.extents import Extents, extents_of
from halfwise.repair.graph_edit import is_constant
from halfwise.repair.rule import Ranges
from halfwise.repair.scale_atoms import PINNED, Bools, Weights
from halfwise.repair.scale_choice import inaudible, is_quiet
from halfwise.repair.scale_flow import ScaleFlow
from halfwise.repair.scale_gates import is_gate

__all__ = ["flow_of", "plain_flow"]

_LARGEST = 65504.0
_FITS = 2.0**15  # a value up to here leaves room for inputs not seen


def plain_flow(model: Model, ranges: Ranges, *, rounds: bool = False) -> ScaleFlow:
    """With no factor put in front of any node; several rules ask for it, and change nothing of it."""
    key = (ScaleFlow, model, rounds)
    if key not in ranges.known:
        extents_of(View(model), ranges.known)
        own = {k: each for k, each in ranges.known.items() if isinstance(each, Extents)}  # else it would hold itself
        ranges.known[key] = ScaleFlow(model, replace(ranges, known=own), rounds=rounds)
    found: ScaleFlow = ranges.known[key]
    return found


def flow_of(model: Model, ranges: Ranges, *, rounds: bool = False) -> ScaleFlow:
    """Where what overflows would have to be scaled from a graph input on, a factor may be put behind that input; else
    behind what no power passes, such as a Gelu, and in front of a graph output. If the ranges let them, factors that
    stay in FP32 may be put behind inputs that FP16 does not hold, where that makes nothing else overflow, and where
    FP16 loses channels that come from a graph input or are a graph output, as those of a cache, behind or in front."""
    flow = _for_overflow(plain_flow(model, ranges, rounds=rounds))
    return _for_channels(flow) if ranges.ends else flow


def _for_overflow(flow: ScaleFlow) -> ScaleFlow:
    model, ranges, rounds = flow.model, flow.ranges, flow.rounds
    inputs = () if model.within is not None else model.graph.inputs
    read = [value for value in inputs if not all(_is_scaled(node) for node, _ in value.uses())]
    stuck, loud = _stuck(flow), [value for value in read if _FITS < flow.high(value) < np.inf] if ranges.ends else []
    entries = [value.name or "" for value in read if flow.high(value) <= _FITS] if stuck else []
    if entries:
        flow = ScaleFlow(model, ranges, entries=entries, rounds=rounds)
        stuck = _stuck(flow)
    if loud and (stuck or any(flow.high(value) > _LARGEST and len(value.uses()) > 1 for value in loud)):
        every = [*entries, *(value.name or "" for value in loud)]
        other = ScaleFlow(model, ranges, entries=every, rounds=rounds)
        if not (left := _stuck(other)) or set(left) < set(stuck):
            flow, stuck, entries = other, left, every
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


def _for_channels(flow: ScaleFlow) -> ScaleFlow:
    model, high = flow.model, flow.ranges.channels
    given = [value for value in model.ir.graph.inputs if value.name in high]  # within bodies, too
    channels = [value for value in given if not all(_is_taken(reader, model.graph) for reader, _ in value.uses())]
    lost = {(weights.node, weights.slot): rows for weights in flow.weights if (rows := _lost(flow, weights)).any()}
    if not lost and not any(is_quiet(high[value.name or ""]).any() for value in channels):
        return flow
    outputs = [value.name or "" for value in model.graph.outputs]
    free = flow.with_ends([value.name or "" for value in channels], outputs)
    labels, wanted, read = free.classes.labels, set[int](), set[int]()
    for layout in (free.layouts[value] for value in channels):
        wanted.update(labels[layout.atoms][is_quiet(layout.cap)].tolist())
    for weights in free.weights:
        if weights.columns is not None:
            read.update(labels[weights.columns].reshape(-1).tolist())
        if (weights.node, weights.slot) in lost and not weights.soft:
            wanted.update(labels[weights.rows][lost[weights.node, weights.slot]].tolist())
    wanted &= read - {PINNED}
    if not wanted:
        return flow
    ends = [node.outputs[0].name or "" for node, _ in free.ends if _labels(free, node.outputs[:1]) & wanted]
    return flow.with_ends([value.name or "" for value in channels if _labels(free, [value]) & wanted], ends)


def _lost(flow: ScaleFlow, weights: Weights) -> Bools:
    """The rows of a weight that FP16 loses, with what they make, where that has to stay as it is."""
    rows: Bools = flow.classes.labels[weights.rows] == PINNED
    if weights.output is None or weights.columns is None or not rows.any():
        return np.zeros(1, bool)
    if weights.large is None:
        mean = weights.square.mean(axis=1)
    else:
        mean = weights.large.rows(np.zeros(weights.columns.size)).square / weights.columns.size
    return rows & inaudible(mean, np.broadcast_to(flow.layouts[weights.output].cap, rows.shape))


def _stuck(flow: ScaleFlow) -> list[ir.Value]:
    """What overflows and has to come out as it is."""
    return [value for value, layout in flow.layouts.items() if flow.high(value) > _LARGEST and flow.pinned(layout)]


def _is_taken(reader: ir.Node, graph: ir.Graph) -> bool:
    return reader.graph is not graph or _is_scaled(reader)


def _is_scaled(reader: ir.Node) -> bool:
    """Whether a constant that multiplies what is read takes any factor, as one of an earlier repair does."""
    return reader.op_type == "Mul" and not reader.domain and any(map(is_constant, reader.inputs))


def _sources(flow: ScaleFlow) -> list[ir.Value]:
    """What nodes make that no power passes, as far as FP16 holds it."""
    nodes = [node for node in flow.model.graph if node not in flow.arguments or is_gate(node.outputs[0])]
    made = [node.outputs[0] for node in nodes if node.op_type not in QUANTISERS | STEPS]
    floats = [value for value in made if value.dtype is ir.DataType.FLOAT and value.uses()]
    plain = [value for value in floats if value not in flow.layouts or (flow.layouts[value].atoms == PINNED).all()]
    return [value for value in plain if flow.high(value) <= _FITS and not value.is_graph_output()]


def _labels(flow: ScaleFlow, values: Sequence[ir.Value]) -> set[int]:
    """The classes that scale them."""
    atoms = [flow.layouts[value].atoms for value in values]
    return {*flow.classes.labels[np.concatenate([np.zeros(0, np.int64), *atoms])].tolist()} - {PINNED}
