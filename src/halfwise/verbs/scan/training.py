"""What to change in training, by the findings of this model, for who can still retrain it. Sentences, not findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir

from halfwise.core.finding import Finding
from halfwise.core.wording import listed
from halfwise.model.model import Model
from halfwise.model.moving import Move, movers
from halfwise.model.patterns import Pattern
from halfwise.model.patterns.view import View

__all__ = ["training_advice"]

_NAMED = 3
_STEPS = 3  # nodes between a layer and the norm behind it
_LINEAR = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_PASSED = movers(Move.SHAPE | Move.ORDER | Move.CAST) | {"Add"}
_NORM_OPERATORS = frozenset({
    "BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization",
})  # fmt: skip
_NORM_KINDS = frozenset({"layernorm", "rmsnorm", "instancenorm", "groupnorm"})
_TINY, _HUGE = frozenset({"HW102", "HW103"}), frozenset({"HW104"})


def training_advice(findings: Sequence[Finding], patterns: Sequence[Pattern], model: Model | None) -> tuple[str, ...]:
    """Each sentence names its layers; `model` is None for a checkpoint, whose layers nobody knows to be connected."""
    named: dict[str, list[str]] = {}
    for finding in findings:
        for place in finding.numbers.get("nodes", ()) or (finding.where.name,):
            named.setdefault(finding.rule, []).append(str(place))
    sentences = [*_weights(named, patterns, model), *_norms(named, patterns, model)]
    sentences += [say(_listed(named[rule])) for rule, say in _SAY.items() if rule in named]
    return tuple(sentences)


def _weights(named: Mapping[str, list[str]], patterns: Sequence[Pattern], model: Model | None) -> Iterator[str]:
    tiny = _unique(name for rule in _TINY for name in named.get(rule, ()))
    before = _before_norms(model, patterns) if model is not None else frozenset()
    idle, others = [name for name in tiny if name in before], [name for name in tiny if name not in before]
    if idle:
        yield (
            f"weight decay: leave out {_listed(idle)}; the norm behind cancels their scale, so weight decay only "
            "drives them towards 0"
        )
    if others:
        yield (
            f"weight decay: lower it, or leave out {_listed(others)}, and scale their inputs to about 1 (a norm in "
            "front): small weights there only compensate for large activations"
        )
    huge = _unique(name for rule in _HUGE for name in named.get(rule, ()))
    if huge:
        yield f"weight decay: put it on {_listed(huge)}, or clip them after each step: nothing keeps them below 65504"


def _norms(named: Mapping[str, list[str]], patterns: Sequence[Pattern], model: Model | None) -> Iterator[str]:
    anchors = _unique((*named.get("HW201", ()), *named.get("HW202", ())))
    if not anchors:
        return
    yield (
        f"norms: train with the framework's own operator in place of {_listed(anchors)}; it computes its statistics in "
        "FP32 under autocast and exports as one node"
    )
    after = [name for name in anchors if model is not None and name in _after_residuals(model, patterns)]
    if after:
        yield (
            f"norm placement: {_listed(after)} read a sum of branches, which grows with depth; norm or scale "
            "down each branch before the sum, so that the sum stays below 255, whose square FP16 holds"
        )


_SAY: Mapping[str, Callable[[str], str]] = {
    "HW111": lambda at: f"masks: at {at}, mask with -1e4 in training, too, or with booleans",
    "HW112": lambda at: f"masks: at {at}, join the masks by `and` before they become numbers",
    "HW114": lambda at: f"epsilons: at {at}, train with 1e-6 or more; FP16 has nothing between 0 and 6e-8",
    "HW203": lambda at: f"lengths: at {at}, divide by the length plus 1e-6, and keep the normalised values near 1",
    "HW204": lambda at: f"softmax: at {at}, use the framework's softmax or log_softmax, and let the loss take logits",
    "HW205": lambda at: f"inverse sigmoid: at {at}, pass the logit on; clip to 1e-3 if it must be computed",
    "HW206": lambda at: f"sums: at {at}, train with means, or with sums divided by their count before",
    "HW207": lambda at: f"running sums: at {at}, train with a running mean or with shorter ranges",
    "HW208": lambda at: f"coordinates: at {at}, train in units of the image or of the cell, from 0 to 1",
    "HW209": lambda at: f"positions: at {at}, scale positions to about 1 before they meet the frequencies",
    "HW211": lambda at: f"ids: at {at}, pass ids as integers",
}


def _before_norms(model: Model, patterns: Sequence[Pattern]) -> frozenset[str]:
    """The weights whose layer only a norm reads."""
    view = View(model)
    entries = {p.details["input"] for p in patterns if p.kind in _NORM_KINDS}
    found: set[str] = set()
    for node in model.nodes:
        if node.op_type not in _LINEAR or node.domain:
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


def _listed(names: Sequence[str]) -> str:
    return listed(_unique(names), _NAMED, str)
