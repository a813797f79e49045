"""Keeps norms in one kernel of ONNX Runtime, and off placements of FP32 with which it refuses to load a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.compiled import Decision
from halfwise.decide import assignment_of
from halfwise.formats import Format
from halfwise.plan import PlannedNode
from halfwise.precision import Assignment
from halfwise.profiles.norm_fusions import Norm, Outcome, norms_of, outcome
from halfwise.sites import Sites
from halfwise.target import Runtime, Target

__all__ = ["Settled", "refusal_note", "settle_for", "settle_norms"]

_LOADS = "ONNX Runtime makes one kernel of this norm before it looks at types, and would refuse to load the model"
_ONE = "keeps the norm at {!r} in one kernel of ONNX Runtime, which takes its statistics in FP32"

Formats = dict[ir.Node, Format]


@dataclass(frozen=True)
class Settled:
    """The formats of the nodes that do not narrow, what was added to them, and what there is to say."""

    formats: Formats
    added: tuple[PlannedNode, ...] = ()
    notes: tuple[str, ...] = ()


def settle_for(target: Target, decision: Decision, aim: Callable[[Assignment], float], *, given: bool) -> Settled:
    """What suits a target that may be ONNX Runtime; of a decision that is `given`, only what there is to say.

    `aim` measures. What is changed may not come out worse than before, or than what is allowed.
    """
    if target.runtime not in (Runtime.ONNX, Runtime.ORT_CUDA):
        return Settled(dict(decision.formats))
    if given:
        note = refusal_note(decision.assignment)
        return Settled(dict(decision.formats), notes=(note,) if note else ())

    def holds(other: Assignment) -> bool:
        return aim(other) <= max(1.0, aim(decision.assignment))

    fused = target.runtime is Runtime.ORT_CUDA
    return settle_norms(decision.sites, decision.formats, decision.io_types, fused=fused, holds=holds)


def settle_norms(
    sites: Sites,
    formats: Mapping[ir.Node, Format],
    io: Format,
    *,
    fused: bool,
    holds: Callable[[Assignment], bool],
) -> Settled:
    """Change as few nodes as it takes for every norm to load and, where norms are `fused`, to run in one kernel.

    What would not hold is not done, unless the model could not be loaded without it.
    """
    found = Settled(dict(formats))
    if fused:
        found = _in_one_kernel(sites, found, io, holds)
    return _loadable(sites, found, io, holds)


def _in_one_kernel(sites: Sites, start: Settled, io: Format, holds: Callable[[Assignment], bool]) -> Settled:
    """Norms that FP32 nodes, or an epsilon too small for FP16, take apart: each of their parts in one format."""
    pieces = [norm for norm in norms_of(sites.model) if all(_two(node, start.formats) for node in norm.nodes)]
    for narrowing in (True, False):
        formats, norms = dict(start.formats), []
        for norm in pieces:
            if outcome(norm, assignment_of(sites, formats, io)) is Outcome.FUSED:
                continue
            for changed in _whole_parts(norm, formats, sites, narrowing):
                if outcome(norm, assignment_of(sites, changed, io)) is Outcome.FUSED:
                    formats = changed
                    norms.append(norm)
                    break
        if not norms:
            return start
        if holds(assignment_of(sites, formats, io)):
            added = tuple(_added(start.formats, formats, norms, _ONE))
            note = f"norms kept in one kernel each of ONNX Runtime: {len(norms)}, by {len(added)} more nodes in FP32"
            return Settled(formats, (*start.added, *added), (*start.notes, note))
    return start


def _whole_parts(norm: Norm, formats: Formats, sites: Sites, narrowing: bool) -> Iterator[Formats]:
    """Every part of the norm in one format, from the fewest changes on."""
    begun = [part for part in norm.parts if any(_is_wide(node, formats, sites) for node in part)]
    for more in ((), (norm.body,), (norm.tail,), (norm.body, norm.tail)):
        wide = _widened((node for part in (*begun, *more) for node in part), formats, sites)
        if wide is None:
            continue
        yield wide
        if narrowing and norm.tail in begun and norm.tail not in more:
            narrow = _narrowed(norm.tail, wide, sites)
            if narrow is not None:
                yield narrow


def _loadable(sites: Sites, start: Settled, io: Format, holds: Callable[[Assignment], bool]) -> Settled:
    """Norms that are refused as they are, brought to what loads: at best one kernel, else their single nodes."""
    formats, norms = dict(start.formats), []
    for _ in range(2):  # what frees one norm may stand in front of another
        for norm in norms_of(sites.model):
            if outcome(norm, assignment_of(sites, formats, io)) is not Outcome.REFUSED:
                continue
            able = [
                changed
                for changed in _ways_out(norm, formats, sites)
                if outcome(norm, assignment_of(sites, changed, io)) is not Outcome.REFUSED
            ]
            chosen = next((each for each in able if holds(assignment_of(sites, each, io))), able[0] if able else None)
            if chosen is not None:
                formats = chosen
                norms.append(norm)
    if not norms:
        return start
    added = tuple(_added(start.formats, formats, norms, _LOADS))
    note = f"norms in formats with which ONNX Runtime refuses to load a model, and given others: {len(norms)}"
    return Settled(formats, (*start.added, *added), (*start.notes, note))


def refusal_note(assignment: Assignment) -> str | None:
    """What to say of a model that ONNX Runtime will not load; None where it will."""
    refused = [norm for norm in norms_of(assignment.sites.model) if outcome(norm, assignment) is Outcome.REFUSED]
    if not refused:
        return None
    return (
        f"ONNX Runtime will refuse to load the typed model: the norm that ends in {refused[0].last.name!r} reads one "
        "format and is scaled in another, which it fuses before it looks; give scale and bias the format of what "
        "enters, or load with its graph optimisations disabled"
    )


def _ways_out(norm: Norm, formats: Formats, sites: Sites) -> Iterator[Formats]:
    """From the best on: scale and bias join the rest, or what enters joins them; a part in two formats is not fused."""
    maker = norm.data.producer()
    wider = [norm.tail, *([(maker,)] if maker is not None else []), *((node,) for node in norm.nodes)]
    narrower = [norm.tail, *((node,) for node in norm.nodes)]
    tries = (
        _widened(wider[0], formats, sites),
        _narrowed(narrower[0], formats, sites),
        *(_widened(nodes, formats, sites) for nodes in wider[1:]),
        *(_narrowed(nodes, formats, sites) for nodes in narrower[1:]),
    )
    return (each for each in tries if each is not None)


def _is_wide(node: ir.Node, formats: Formats, sites: Sites) -> bool:
    return formats.get(node) is Format.FP32 or not sites.of[node].free


def _two(node: ir.Node, formats: Formats) -> bool:
    """Whether it is in FP32 or in the narrow format, and in no third one."""
    return formats.get(node, Format.FP32) is Format.FP32


def _widened(nodes: Iterable[ir.Node], formats: Formats, sites: Sites) -> Formats | None:
    """With these nodes in FP32; None where one may not be."""
    more = [node for node in nodes if not _is_wide(node, formats, sites)]
    if any(node in sites.forced or node in formats for node in more):
        return None
    return {**formats, **dict.fromkeys(more, Format.FP32)}


def _narrowed(nodes: Iterable[ir.Node], formats: Formats, sites: Sites) -> Formats | None:
    """With these nodes in the narrow format; None where one may not be."""
    less = [node for node in nodes if _is_wide(node, formats, sites)]
    if not all(sites.of[node].free for node in less):
        return None
    return {node: fmt for node, fmt in formats.items() if node not in less}


def _added(before: Mapping[ir.Node, Format], after: Formats, norms: Iterable[Norm], why: str) -> Iterator[PlannedNode]:
    of = {node: norm for norm in norms for node in (norm.data.producer(), *norm.nodes) if node is not None}
    for node in after:
        if node not in before and node in of:
            reason = why.format(of[node].last.name)
            yield PlannedNode(node.name or "", node.op_type, Format.FP32, "compiler", reason)
