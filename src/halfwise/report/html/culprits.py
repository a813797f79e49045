"""The culprits: what the plan keeps out of FP16, and what a repair healed; alike ones are told together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.counting import Counts
from halfwise.core.formats import Format
from halfwise.core.reasons import Reason
from halfwise.precision.plan import PlannedNode
from halfwise.report.groups import Group, Grouping, kept_nodes
from halfwise.report.html.meter import Meter, meter
from halfwise.report.html.names import Names
from halfwise.report.html.places import Places
from halfwise.report.story import Story, tell
from halfwise.verbs.fix.result import FixResult

__all__ = ["Alike", "Culprit", "culprits"]

_CARRIES = 0.05  # of plain FP16's squared error, from which a repaired node is worth telling


@dataclass(frozen=True)
class Alike:
    """A node of the same kind as the one told: its name, its share and where the graph shows it."""

    name: int
    op: str
    share: float
    index: int | None


@dataclass(frozen=True)
class Culprit:
    """One card: the worst node of a kind in full, the others by name. `group`: what they are, if several."""

    name: int
    group: str
    operators: str
    op: str
    format: str
    why: str
    rule: str  # of the repair that healed it; empty where it is kept out of FP16
    algebra: str
    story: Story
    share: float
    index: int | None
    meter: Meter | None
    alike: tuple[Alike, ...]

    @property
    def count(self) -> int:
        return 1 + len(self.alike)


@dataclass(frozen=True)
class _Case:
    planned: PlannedNode
    node: ir.Node | None
    rule: str
    algebra: str


def culprits(result: FixResult, names: Names, places: Places) -> list[Culprit]:
    """Those that a repair healed are told by the model as given, which has them."""
    kept = [_Case(n, places.given(n.name), "", "") for n in kept_nodes(result)]
    cases = [*_healed(result), *kept]
    cases.sort(key=lambda case: case.planned.why is not Reason.OVERFLOW)
    by_rule: dict[str, list[_Case]] = {}
    for case in cases:
        by_rule.setdefault(case.rule, []).append(case)
    grouping = Grouping(result.model, [site.name for site in result.sites.all])
    found = []
    for each in by_rule.values():
        known = {case.planned.name: case for case in each}
        for group in grouping.groups([case.planned for case in each]):
            members = [known[node.name] for node in group.nodes]
            found.append((cases.index(members[0]), _culprit(group, members, result, names, places)))
    return [culprit for _, culprit in sorted(found, key=lambda item: item[0])]


def _healed(result: FixResult) -> list[_Case]:
    """Of each repair the nodes that broke; else those that made much of the error; else the one with the most."""
    found = result.measured.diagnosis
    if found is None:
        return []
    given = {site.name: site.node for site in found.sites.all}
    kept = {node.name for node in kept_nodes(result)}  # by another reason, in the repaired model
    cases = []
    for repair in result.plan.repairs:
        names = [name for name in repair.nodes if name in given and name not in kept]
        broke = {n for n in names if n in found.breaking or (not found.shares and _overflows(given[n], found.ranges))}
        told = [n for n in names if n in broke]
        told = told or [n for n in names if found.shares.get(n, 0.0) >= _CARRIES]
        if not told and names:
            told = [max(names, key=lambda n: found.shares.get(n, 0.0))]
        for name in told:
            planned = _seen(given[name], found.ranges, Reason.OVERFLOW if name in broke else Reason.ROUNDING)
            cases.append(_Case(planned, given[name], repair.rule, repair.algebra))
    return sorted(cases, key=_origin_first)


def _overflows(node: ir.Node, ranges: Mapping[str, Counts]) -> bool:
    """Whether it makes what FP16 cannot hold."""
    return any(ranges[v.name].max_abs > Format.FP16.max for v in node.outputs if v.name and v.name in ranges)


def _origin_first(case: _Case) -> tuple[bool, float]:
    """Where an infinity begins, before those that are handed it; the largest first."""
    numbers = case.planned.numbers
    return numbers.get("input_max_abs", 0.0) > Format.FP16.max, -numbers.get("max_abs", 0.0)


def _seen(node: ir.Node, ranges: Mapping[str, Counts], why: Reason) -> PlannedNode:
    numbers: dict[str, float] = {}
    for values, high, low in ((node.outputs, "max_abs", "min_abs"), (node.inputs, "input_max_abs", "input_min_abs")):
        counts = [ranges[v.name] for v in values if v is not None and v.name and v.name in ranges]
        numbers[high] = max((c.max_abs for c in counts), default=0.0)
        numbers[low] = min((c.min_abs for c in counts if c.min_abs), default=0.0)
    return PlannedNode(node.name or "", node.op_type, Format.FP16, why, (), {k: v for k, v in numbers.items() if v})


def _culprit(group: Group, cases: Sequence[_Case], result: FixResult, names: Names, places: Places) -> Culprit:
    worst, planned = cases[0], cases[0].planned
    ranges = (
        result.measured.diagnosis.ranges
        if worst.rule and result.measured.diagnosis is not None
        else result.measured.ranges
    )
    story = tell(planned, worst.node, ranges or result.measured.ranges)
    return Culprit(
        name=names(planned.name),
        group=group.title if len(cases) > 1 else "",
        operators=group.operators,
        op=planned.op,
        format=planned.format.value.upper(),
        why=planned.why,
        rule=worst.rule,
        algebra=worst.algebra,
        story=story,
        share=result.shares.get(planned.name, 0.0),
        index=places.index(planned.name),
        meter=meter((("reverted by itself", story.ratio),)) if story.ratio is not None else None,
        alike=tuple(
            Alike(
                names(case.planned.name),
                case.planned.op,
                result.shares.get(case.planned.name, 0.0),
                places.index(case.planned.name),
            )
            for case in cases[1:]
        ),
    )
