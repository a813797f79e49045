"""From what a machine was seen to do to the profile that judges by it, and the other end of what it may do.

A node takes the hypotheses of the probes of its operator that are most like it: of all its own sizes; else of the same
variant, and of the sizes next below and next above. Where these do not agree, or a probe is loose, the profile has two
ends: the one named after the file takes the hypothesis that rounds most, the one beside it the one that rounds least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
import onnx_ir as ir

from halfwise.emulation.profiles.chains import SCORES, WHOLE, chains
from halfwise.emulation.profiles.fusion import Fusion
from halfwise.emulation.profiles.fusions import ANY_RULE, SIZED, candidates
from halfwise.emulation.profiles.hypotheses import (
    APART,
    BY_SIZE,
    CONVERSION,
    NARROW,
    PLAIN_CONVERSION,
    WIDE,
    fused_kernel,
    fused_own_operators,
    hypotheses_of,
    kernels_of,
)
from halfwise.emulation.profiles.machine import FormRecord, MachineDocument
from halfwise.emulation.profiles.narrow_sums import MOST_PARTS
from halfwise.emulation.profiles.profile import Kernel, Profile
from halfwise.emulation.profiles.recurrent import is_beyond
from halfwise.emulation.profiles.shape_class import ShapeClass, shape_class
from halfwise.emulation.profiles.spreads import SPREADS
from halfwise.emulation.profiles.steps import Steps
from halfwise.precision.sites import Sites

__all__ = ["LearnedFusions", "kernels_by", "learned_profile", "likely", "nearest", "shared"]

LEAST, MOST = 0, -1  # the end that rounds least, and the one that rounds most


def learned_profile(name: str, machine: MachineDocument, *beside: Profile) -> Profile:
    """The profile of a machine; the end that rounds least judges beside it where the two differ."""
    forms = [form for form in machine.forms if form.hypotheses]
    most, least = (_end(name, forms, end) for end in (MOST, LEAST))
    if most.two_ended:
        beside = (replace(least, name=f"{name} (least rounding)"), *beside)
    return replace(most, beside=beside, source=machine.sha256)


def _end(name: str, forms: Sequence[FormRecord], end: int) -> Profile:
    by_rule = _by_rule(forms)
    excess = [_excess(form) for form in forms if form.status == "loose"]
    kinds = {rule.removeprefix("fusion:"): found for rule, found in by_rule.items() if rule.startswith("fusion:")}
    fusions = LearnedFusions(
        {kind: _of_all(f"fusion:{kind}", found, end) for kind, found in kinds.items()},
        {op: by_rule[op] for op in _PRODUCTS if op in by_rule},
    )
    conversion = by_rule.get(CONVERSION, ())
    converts = _of_all(CONVERSION, conversion, end) if conversion else PLAIN_CONVERSION
    kernels = {op: kernels_by(op, found, end) for op, found in by_rule.items() if _is_operator(op)}
    own = fused_own_operators(fusions.kinds)
    return Profile(
        name,
        kernels={**{op: kernels[op] for op in kernels if not _rounds_once(by_rule[op])}, **own},
        loose=lambda node: _is_loose(node, by_rule),
        fusion=fusions if any(hypothesis != APART for hypothesis in fusions.kinds.values()) else "",
        spread=max(SPREADS.values()),
        loose_spread=max(excess, default=0.0),
        conversion="" if converts == PLAIN_CONVERSION else converts,
        two_ended=_two_ended(forms),
    )


def _rounds_once(forms: Sequence[FormRecord]) -> bool:
    """Whether every node of an operator rounds at its end only, which is what is done without a kernel."""
    return all(form.hypotheses[0] == WIDE and not _open(form) for form in forms)


def _is_loose(node: ir.Node, by_rule: Mapping[str, Sequence[FormRecord]]) -> bool:
    """Whether a node is most like a form that no hypothesis explained, or its steps are not followed."""
    if node.domain or node.op_type not in by_rule:
        return False
    near = nearest(by_rule[node.op_type], shape_class(node))
    return any(form.status == "loose" for form in near) or is_beyond(node)


def _two_ended(forms: Sequence[FormRecord]) -> frozenset[str]:
    """The rules of which a form is loose, or no hypothesis holds for all forms of one variant."""
    groups: dict[tuple[str, str], list[FormRecord]] = {}
    for form in forms:
        groups.setdefault((form.rule, form.variant), []).append(form)
    loose = {form.rule for form in forms if len(form.hypotheses) > 1 and form.status == "loose"}
    return frozenset(loose | {rule for (rule, _), group in groups.items() if not shared(group) and not _one(group)})


def _one(group: Sequence[FormRecord]) -> bool:
    """Whether all forms are loose, and near to the same hypothesis alone."""
    return len({tuple(form.hypotheses) for form in group}) == 1 and len(group[0].hypotheses) == 1


def _by_rule(forms: Iterable[FormRecord]) -> Mapping[str, tuple[FormRecord, ...]]:
    found: dict[str, tuple[FormRecord, ...]] = {}
    for form in forms:
        found[form.rule] = (*found.get(form.rule, ()), form)
    return found


def _is_operator(rule: str) -> bool:
    return rule != CONVERSION and not rule.startswith("fusion:")


def _excess(form: FormRecord) -> float:
    """By how much a loose form's measured error exceeds what its worst hypothesis predicts."""
    predicted = max(form.evidence[name].error for name in form.hypotheses)
    if not predicted or not math.isfinite(form.error):
        return 1.0
    return max(0.0, form.error / predicted - 1.0)


def _of_all(rule: str, forms: Sequence[FormRecord], end: int) -> str:
    """The hypothesis that all forms share; else the one at an end of what they have."""
    return _at(rule, likely(forms, ShapeClass("", None)), end)


def _at(rule: str, names: Iterable[str], end: int) -> str:
    order = {name: place for place, name in enumerate(hypotheses_of(rule))}
    return sorted(names, key=lambda name: order.get(name, len(order)))[end]


def kernels_by(op: str, forms: Sequence[FormRecord], end: int = MOST, most_parts: int = MOST_PARTS) -> Kernel:
    """The kernel of an operator that does with each node what the forms like it were seen to do."""
    known = kernels_of(op, most_parts)

    def spelled(proto: onnx.NodeProto, steps: Steps) -> str | None:
        kernel = known.get(_at(op, likely(forms, shape_class(steps.node)), end))
        return kernel(proto, steps) if kernel is not None else None

    return spelled


def likely(forms: Sequence[FormRecord], seen: ShapeClass) -> frozenset[str]:
    """The hypotheses of the forms most like a node: of its variant, and next in size on both sides.

    One that all forms bear out is the answer, else one that all of the variant do; but not beside a loose form of the
    node's size.
    """
    near = nearest(forms, seen)
    if not any(form.status == "loose" for form in near):
        for group in (forms, near if _own_sizes(near, seen) else _alike(forms, seen), near):
            if agreed := shared(group):
                return frozenset(agreed[:1])
    return frozenset(name for form in near for name in (form.hypotheses if _open(form) else form.hypotheses[:1]))


def nearest(forms: Sequence[FormRecord], seen: ShapeClass) -> list[FormRecord]:
    """The forms of a node's own sizes; else those of its variant that are next below and above in length."""
    alike = _alike(forms, seen)
    if own := [form for form in alike if seen.sizes and form.sizes == seen.sizes]:
        return own
    if seen.length is None:
        return alike
    below = max((form.length for form in alike if form.length <= seen.length), default=None)
    above = min((form.length for form in alike if form.length >= seen.length), default=None)
    return [form for form in alike if form.length in (below, above)]


def _alike(forms: Sequence[FormRecord], seen: ShapeClass) -> list[FormRecord]:
    return [form for form in forms if form.variant == seen.variant] or list(forms)


def _own_sizes(forms: Sequence[FormRecord], seen: ShapeClass) -> bool:
    return bool(seen.sizes) and all(form.sizes == seen.sizes for form in forms)


def _open(form: FormRecord) -> bool:
    return form.status in ("loose", "several")


def shared(forms: Iterable[FormRecord]) -> tuple[str, ...]:
    """The hypotheses that every form bears out, but for loose ones; the one that rounds least is first."""
    firm = [form for form in forms if form.status != "loose"]
    return tuple(name for name in firm[0].hypotheses if all(name in form.hypotheses for form in firm)) if firm else ()


@dataclass(frozen=True, eq=False)
class LearnedFusions:
    """A rule of fusion: by kind, the kernel that the machine was seen to make of the nodes.

    Where a product keeps its sum in FP16, what follows meets a stored number: nothing is gained by one kernel.
    """

    kinds: Mapping[str, str]
    products: Mapping[str, Sequence[FormRecord]]

    def fusions(self, sites: Sites) -> Iterator[Fusion]:
        for fusion in (*chains(sites), *candidates(sites, ANY_RULE)):
            kind = _KINDS.get(fusion.kind, fusion.kind)
            hypothesis = self.kinds.get(kind, APART)
            if hypothesis == APART or any(self._sums_narrow(node) for node in fusion.nodes):
                continue
            if hypothesis == BY_SIZE and fusion.kind != SIZED:
                continue
            if kind != "attention" or fusion.kind == (SCORES if hypothesis == "scores-wide" else WHOLE):
                yield replace(fusion, kernel=fusion.kernel or fused_kernel(fusion.kind, hypothesis))

    def _sums_narrow(self, node: ir.Node) -> bool:
        forms = self.products.get(node.op_type, ())
        return bool(forms) and any(name.startswith(NARROW) for name in likely(forms, shape_class(node)))


_KINDS = {"split-product": "scaled-product", SIZED: "biased-product", SCORES: "attention", WHOLE: "attention"}
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
