"""Keeps norms in one kernel of ONNX Runtime, and off placements of FP32 with which it refuses to load a model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from halfwise.compiled import Decision
from halfwise.decide import assignment_of
from halfwise.formats import Format
from halfwise.plan import PlannedNode
from halfwise.precision import Assignment
from halfwise.profiles.norm_fusions import Norm, Outcome, norms_of, outcome
from halfwise.sites import Sites
from halfwise.target import Runtime, Target

__all__ = ["About", "Settled", "refusal_note", "settle_for", "settle_norms"]

_LOADS = "ONNX Runtime makes one kernel of this norm before it looks at types, and would refuse to load the model"
_ONE = "keeps the norm at {!r} in one kernel of ONNX Runtime, which takes its statistics in FP32"

Formats = dict[ir.Node, Format]


@dataclass(frozen=True)
class Settled:
    """The formats of the nodes that do not narrow, what was added to them, and what there is to say."""

    formats: Formats
    added: tuple[PlannedNode, ...] = ()
    notes: tuple[str, ...] = ()


def settle_for(
    target: Target,
    decision: Decision,
    aim: Callable[[Assignment], float],
    *,
    stated: Collection[str] = (),
    given: bool = False,
) -> Settled:
    """What suits a target that may be ONNX Runtime; of a decision that is `given`, only what there is to say.

    `aim` measures: what is changed may not come out worse than before, or than what is allowed. Nodes that are
    `stated` by the user stay as they are.
    """
    if target.runtime not in (Runtime.ONNX, Runtime.ORT_CUDA):
        return Settled(dict(decision.formats))
    found = Settled(dict(decision.formats))
    if not given:

        def holds(other: Assignment) -> bool:
            return aim(other) <= max(1.0, aim(decision.assignment))

        about = About(decision.sites, decision.io_types, frozenset(stated), holds)
        found = settle_norms(about, found, fused=target.runtime is Runtime.ORT_CUDA)
    note = refusal_note(assignment_of(decision.sites, found.formats, decision.io_types))
    return replace(found, notes=(*found.notes, note)) if note else found


def settle_norms(about: About, found: Settled, *, fused: bool) -> Settled:
    """Change as few nodes as it takes for every norm to load and, where norms are `fused`, to run in one kernel.

    What would not hold is not done, unless the model could not be loaded without it.
    """
    return _loadable(about, _in_one_kernel(about, found) if fused else found)


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


@dataclass(frozen=True)
class About:
    """What formats are decided about, which nodes the user stated, and whether a decision holds."""

    sites: Sites
    io: Format
    stated: frozenset[str]
    holds: Callable[[Assignment], bool]

    @property
    def norms(self) -> tuple[Norm, ...]:
        return norms_of(self.sites.model)

    def assignment(self, formats: Formats) -> Assignment:
        return assignment_of(self.sites, formats, self.io)

    def outcome(self, norm: Norm, formats: Formats) -> Outcome:
        return outcome(norm, self.assignment(formats))

    def is_wide(self, node: ir.Node, formats: Formats) -> bool:
        return formats.get(node) is Format.FP32 or not self.sites.of[node].free

    def widened(self, nodes: Iterable[ir.Node], formats: Formats) -> Formats | None:
        """With these nodes in FP32; None where one may not be."""
        more = [node for node in nodes if not self.is_wide(node, formats)]
        if any(node in formats or not self._is_free(node) for node in more):
            return None
        return {**formats, **dict.fromkeys(more, Format.FP32)}

    def narrowed(self, nodes: Iterable[ir.Node], formats: Formats) -> Formats | None:
        """With these nodes in the narrow format; None where one may not be."""
        less = [node for node in nodes if self.is_wide(node, formats)]
        if not all(self._is_free(node) for node in less):
            return None
        return {node: fmt for node, fmt in formats.items() if node not in less}

    def _is_free(self, node: ir.Node) -> bool:
        return self.sites.of[node].free and node not in self.sites.forced and (node.name or "") not in self.stated


def _in_one_kernel(about: About, start: Settled) -> Settled:
    """Norms that FP32 nodes, or an epsilon too small for FP16, take apart: each of their parts in one format."""
    pieces = [norm for norm in about.norms if all(_two(node, start.formats) for node in norm.nodes)]
    for narrowing in (True, False):
        formats, norms = dict(start.formats), []
        for norm in pieces:
            if about.outcome(norm, formats) is Outcome.FUSED:
                continue
            for changed in _whole_parts(about, norm, formats, narrowing=narrowing):
                if about.outcome(norm, changed) is Outcome.FUSED:
                    formats = changed
                    norms.append(norm)
                    break
        if not norms:
            return start
        if about.holds(about.assignment(formats)):
            added = tuple(_added(start.formats, formats, norms, _ONE))
            note = f"norms kept in one kernel each of ONNX Runtime: {len(norms)}, by {len(added)} more nodes in FP32"
            return Settled(formats, (*start.added, *added), (*start.notes, note))
    return start


def _whole_parts(about: About, norm: Norm, formats: Formats, *, narrowing: bool) -> Iterator[Formats]:
    """Every part of the norm in one format, from the fewest changes on."""
    begun = [part for part in norm.parts if any(about.is_wide(node, formats) for node in part)]
    for more in ((), (norm.body,), (norm.tail,), (norm.body, norm.tail)):
        wide = about.widened((node for part in (*begun, *more) for node in part), formats)
        if wide is None:
            continue
        yield wide
        if narrowing and norm.tail in begun and norm.tail not in more:
            narrow = about.narrowed(norm.tail, wide)
            if narrow is not None:
                yield narrow


def _loadable(about: About, start: Settled) -> Settled:
    """Norms that are refused as they are, brought to what loads: at best one kernel, else their single nodes."""
    formats, norms = dict(start.formats), []
    for _ in range(2):  # what frees one norm may stand in front of another
        for norm in about.norms:
            if about.outcome(norm, formats) is not Outcome.REFUSED:
                continue
            tries = _ways_out(about, norm, formats)
            able = [changed for changed in tries if about.outcome(norm, changed) is not Outcome.REFUSED]
            chosen = next((each for each in able if about.holds(about.assignment(each))), able[0] if able else None)
            if chosen is not None:
                formats = chosen
                norms.append(norm)
    if not norms:
        return start
    added = tuple(_added(start.formats, formats, norms, _LOADS))
    note = f"norms in formats with which ONNX Runtime refuses to load a model, and given others: {len(norms)}"
    return Settled(formats, (*start.added, *added), (*start.notes, note))


def _ways_out(about: About, norm: Norm, formats: Formats) -> Iterator[Formats]:
    """From the best on: scale and bias join the rest, or what enters joins them; a part in two formats is not fused."""
    maker, single = norm.data.producer(), [(node,) for node in norm.nodes]
    tries = (
        about.widened(norm.tail, formats),
        about.narrowed(norm.tail, formats),
        about.widened((maker,), formats) if maker is not None else None,
        *(about.widened(nodes, formats) for nodes in single),
        *(about.narrowed(nodes, formats) for nodes in single),
    )
    return (each for each in tries if each is not None)


def _two(node: ir.Node, formats: Formats) -> bool:
    """Whether it is in FP32 or in the narrow format, and in no third one."""
    return formats.get(node, Format.FP32) is Format.FP32


def _added(before: Mapping[ir.Node, Format], after: Formats, norms: Iterable[Norm], why: str) -> Iterator[PlannedNode]:
    of = {node: norm for norm in norms for node in (norm.data.producer(), *norm.nodes) if node is not None}
    for node in after:
        if node not in before and node in of:
            reason = why.format(of[node].last.name)
            yield PlannedNode(node.name or "", node.op_type, Format.FP32, "compiler", reason)
