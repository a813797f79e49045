"""Findings about constants: masks, stand-ins for infinity, infinities, and epsilons that vanish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import onnx_ir as ir

from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.model.families import PRODUCTS, QUANTISERS, RECURRENT
from halfwise.model.patterns.guards import Guard, find_guards
from halfwise.model.patterns.view import View, attribute
from halfwise.model.scales import farthest, is_scale
from halfwise.precision.sites import Sites
from halfwise.verbs.scan.masks import How, Mask, follow_masks
from halfwise.verbs.scan.weights import InitializerCounts

__all__ = ["constant_findings"]

_FP16 = Format.FP16
_BROKEN_BY_INFINITY = PRODUCTS | QUANTISERS | RECURRENT | {"BatchNormalization", "Div"}
_RULES: Mapping[How, str] = {"combined": "HW112", "added": "HW111", "chosen": "HW113"}
_LISTED = 16


def constant_findings(
    view: View, sites: Sites, weights: Sequence[tuple[ir.Value, InitializerCounts]]
) -> tuple[list[Finding], AbstractSet[ir.Value]]:
    """The findings HW111 to HW115, and the initializers whose overflow or infinity they explain."""
    large = _filled(view)
    for value, entry in weights:
        if entry.counts.overflow and value.uses():
            # A mask is negative; the largest value speaks for a constant only where none is.
            number = entry.counts.min if entry.counts.min < -_FP16.max else entry.counts.max
            large[value] = farthest(value, number) if is_scale(value) else number
    masks = follow_masks(view, sites, {v: filler for v, filler in large.items() if np.isfinite(filler)})
    infinite = [value for value, entry in weights if entry.counts.nonfinite and _only_infinite(value)]
    infinite += [value for value, filler in large.items() if np.isinf(filler)]
    found = [*_mask_findings(masks), *_epsilon_findings(view, sites), *_infinite_findings(infinite)]
    return found, {mask.source for mask in masks} | set(infinite)


def _filled(view: View) -> dict[ir.Value, float]:
    """What ConstantOfShape fills whole tensors with, where that is too large for FP16."""
    found = {}
    for node in view.of("ConstantOfShape"):
        tensor = attribute(node, "value", None)
        if tensor is not None and tensor.dtype == ir.DataType.FLOAT and tensor.size == 1:
            filler = float(tensor.numpy().reshape(-1)[0])
            if abs(filler) > _FP16.max:
                found[node.outputs[0]] = filler
    return found


# -- masks ------------------------------------------------------------------------------------------------------------


def _mask_findings(masks: Sequence[Mask]) -> Iterator[Finding]:
    """One finding per value and per way of use."""
    groups: dict[tuple[str, float], list[Mask]] = {}
    for mask in masks:
        groups.setdefault((_RULES[mask.how], mask.number), []).append(mask)
    for (rule, value), group in groups.items():
        places = [node.name or "" for mask in group for node in mask.places]
        fp16 = float(np.copysign(_FP16.max, value))
        nodes = list(dict.fromkeys(places))[:_LISTED]
        numbers = {"value": value, "fp16": fp16, "count": len(group), "nodes": nodes}
        where = Where("node", places[0])
        if rule == "HW112":
            note = Note.of(NoteKind.MASK_JOINED, value=value, fp16=fp16)
        elif rule == "HW111":
            note = Note.of(NoteKind.MASK_ADDED, value=value, fp16=fp16)
        else:
            note = Note.of(NoteKind.STANDS_FOR_INFINITY, value=value, fp16=fp16)
        yield finding(rule, where, note, numbers)


# -- epsilons ---------------------------------------------------------------------------------------------------------


def _epsilon_findings(view: View, sites: Sites) -> Iterator[Finding]:
    """One finding per epsilon and per thing that it guards."""
    groups: dict[tuple[float, str], list[ir.Node]] = {}
    first = dict[ir.Node, Guard]()
    for guard in find_guards(view, _FP16.smallest_subnormal):
        if sites.of[guard.nodes[0]].free:
            first.setdefault(guard.nodes[0], guard)
    for node, guard in first.items():
        groups.setdefault((guard.epsilon, guard.guards), []).append(node)
    for (epsilon, guards), nodes in groups.items():
        places = [node.name or "" for node in nodes]
        rounded = float(np.float16(epsilon))
        if rounded == 0.0:
            note = Note.of(NoteKind.EPSILON_VANISHES, epsilon=epsilon, count=len(nodes), guards=guards)
        else:
            note = Note.of(NoteKind.EPSILON_CHANGES, epsilon=epsilon, count=len(nodes), guards=guards, fp16=rounded)
        numbers = {"epsilon": epsilon, "fp16": rounded, "count": len(nodes), "nodes": places[:_LISTED]}
        yield finding("HW114", Where("node", places[0]), note, numbers)


# -- infinities -------------------------------------------------------------------------------------------------------


def _only_infinite(value: ir.Value) -> bool:
    """Whether a constant that is not finite is a mask of infinities rather than a broken weight."""
    tensor = value.const_value
    if tensor is None:
        return False
    plain = {node.op_type for node, _ in value.uses()}
    return not plain & _BROKEN_BY_INFINITY and not bool(np.isnan(tensor.numpy()).any())


def _infinite_findings(values: Sequence[ir.Value]) -> Iterator[Finding]:
    if values:
        names = [value.name or "" for value in values]
        note = Note.of(NoteKind.CONSTANTS_INFINITE, count=len(values))
        numbers = {"count": len(values), "tensors": names[:_LISTED]}
        yield finding("HW115", Where("tensor", names[0]), note, numbers)
