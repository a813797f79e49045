"""What to change in training, by the findings of this model, for who can still retrain it. Advice, not findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from halfwise.core.finding import Finding
from halfwise.core.notes import Note, NoteKind
from halfwise.model.elements import Elements
from halfwise.model.families import NORMS, PRODUCTS
from halfwise.model.model import Model
from halfwise.model.moving import Move, movers
from halfwise.model.patterns import Pattern
from halfwise.model.patterns.view import View
from halfwise.model.scales import is_scale

__all__ = ["training_advice"]

_STEPS = 3  # nodes between a layer and the norm behind it
_PASSED = movers(Move.SHAPE | Move.ORDER | Move.CAST) | {"Add"}
_NORM_OPERATORS = {*NORMS, "BatchNormalization"}
_NORM_KINDS = frozenset({"layernorm", "rmsnorm", "instancenorm", "groupnorm"})
_TINY, _HUGE = frozenset({"HW102", "HW103"}), frozenset({"HW104"})
_WEIGHTS = _TINY | _HUGE


def training_advice(findings: Sequence[Finding], patterns: Sequence[Pattern], model: Model | None) -> tuple[Note, ...]:
    """Each note names its layers; `model` is None for a checkpoint, whose layers nobody knows to be connected."""
    named: dict[str, list[str]] = {}
    weights = {value.name: value for value in model.initializers()} if model is not None else {}
    for finding in findings:
        if finding.rule in _WEIGHTS and (value := weights.get(finding.where.name)) is not None and _untrained(value):
            continue
        for place in finding.numbers.get("nodes", ()) or (finding.where.name,):
            named.setdefault(finding.rule, []).append(str(place))
    advised = [advice(_unique(named[rule])) for rule, advice in _ADVICE.items() if rule in named]
    return (*_weights(named, patterns, model), *_norms(named, patterns, model), *advised)


def _untrained(value: ir.Value) -> bool:
    """Scales, which calibration makes, and constants of the program: one number, whatever their shape."""
    if is_scale(value) or value.const_value is None or not value.const_value.size:
        return is_scale(value)
    elements = Elements(value.const_value)
    first = elements.read(0, 1)
    return all(bool((window == first).all()) for window in elements.windows())


def _weights(named: Mapping[str, list[str]], patterns: Sequence[Pattern], model: Model | None) -> Iterator[Note]:
    tiny = _unique(name for rule in _TINY for name in named.get(rule, ()))
    before = _before_norms(model, patterns) if model is not None else frozenset()
    idle, others = [name for name in tiny if name in before], [name for name in tiny if name not in before]
    if idle:
        yield Note.of(NoteKind.TRAIN_NO_DECAY, at=idle)
    if others:
        yield Note.of(NoteKind.TRAIN_LESS_DECAY, at=others)
    huge = _unique(name for rule in _HUGE for name in named.get(rule, ()))
    if huge:
        yield Note.of(NoteKind.TRAIN_MORE_DECAY, at=huge)


def _norms(named: Mapping[str, list[str]], patterns: Sequence[Pattern], model: Model | None) -> Iterator[Note]:
    anchors = _unique((*named.get("HW201", ()), *named.get("HW202", ())))
    if not anchors:
        return
    yield Note.of(NoteKind.TRAIN_NORM_OPERATOR, at=anchors)
    after = [name for name in anchors if model is not None and name in _after_residuals(model, patterns)]
    if after:
        yield Note.of(NoteKind.TRAIN_NORM_PLACE, at=after)


_ADVICE: Mapping[str, Callable[[Sequence[str]], Note]] = {
    "HW111": lambda at: Note.of(NoteKind.TRAIN_MASK_VALUE, at=at),
    "HW112": lambda at: Note.of(NoteKind.TRAIN_MASK_JOIN, at=at),
    "HW114": lambda at: Note.of(NoteKind.TRAIN_EPSILON, at=at),
    "HW203": lambda at: Note.of(NoteKind.TRAIN_LENGTH, at=at),
    "HW204": lambda at: Note.of(NoteKind.TRAIN_SOFTMAX, at=at),
    "HW205": lambda at: Note.of(NoteKind.TRAIN_LOGIT, at=at),
    "HW206": lambda at: Note.of(NoteKind.TRAIN_SUM, at=at),
    "HW207": lambda at: Note.of(NoteKind.TRAIN_RUNNING_SUM, at=at),
    "HW208": lambda at: Note.of(NoteKind.TRAIN_COORDINATES, at=at),
    "HW209": lambda at: Note.of(NoteKind.TRAIN_POSITIONS, at=at),
    "HW211": lambda at: Note.of(NoteKind.TRAIN_IDS, at=at),
}


def _before_norms(model: Model, patterns: Sequence[Pattern]) -> frozenset[str]:
    """The weights whose layer only a norm reads."""
    view = View(model)
    entries = {p.details["input"] for p in patterns if p.kind in _NORM_KINDS}
    found: set[str] = set()
    for node in model.nodes:
        if node.op_type not in PRODUCTS or node.domain:
            continue
        value = node.outputs[0]
        for _ in range(_STEPS):
            if value.name in entries or _only_norms(view, value):
                found |= {name for each in node.inputs[1:2] if (name := _weight_name(view, each))}
                break
            use = view.only_use(value)
            biased = use is not None and (use[0].op_type != "Add" or view.weight(use[0].inputs[1 - use[1]]) is not None)
            if use is None or use[0].op_type not in _PASSED or use[1] > 1 or not biased:
                break
            value = use[0].outputs[0]
    return frozenset(found)


def _only_norms(view: View, value: ir.Value) -> bool:
    use = view.only_use(value)
    return use is not None and use[1] == 0 and use[0].op_type in _NORM_OPERATORS and not use[0].domain


def _weight_name(view: View, value: ir.Value | None) -> str | None:
    weight = view.weight(value)
    return weight.name if weight is not None else None


def _after_residuals(model: Model, patterns: Sequence[Pattern]) -> frozenset[str]:
    """The norms, by their anchors, that read a sum of two computed tensors."""
    view, producers = View(model), {v.name: node for node in model.nodes for v in node.outputs}
    found = set()
    for pattern in patterns:
        source = producers.get(pattern.details.get("input")) if pattern.kind in _NORM_KINDS else None
        if source is None or source.op_type != "Add" or source.domain:
            continue
        if all(view.weight(value) is None for value in source.inputs):
            found.add(pattern.anchor)
    return frozenset(found)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
