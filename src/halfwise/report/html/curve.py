"""The trade-off as a picture: error over allowed error against FP32 cost, with the point chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from halfwise.core.float_sum import float_sum
from halfwise.core.formats import Format
from halfwise.core.wording import counted
from halfwise.report.numbers import number
from halfwise.search.cost import node_costs
from halfwise.verbs.fix.result import FixResult

__all__ = ["Curve", "CurvePoint", "curve"]


@dataclass(frozen=True)
class CurvePoint:
    x: float
    y: float
    nodes: int
    cost: float
    ratio: float
    text: str
    clear: bool
    label: str = ""  # the number of nodes, where there is room for it


@dataclass(frozen=True)
class Curve:
    """Positions are shares of the plot, y from its top."""

    points: tuple[CurvePoint, ...]
    chosen: CurvePoint
    path: str
    allowed: float
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    infinite: float | None  # where the band of results that are not finite ends


_BAND = 0.12  # of the height, for what is not finite
_ROOM = 0.045  # of the width, that a label takes


def curve(result: FixResult) -> Curve | None:
    """The points that were measured on request (`--curve`); None where there are not two."""
    measured = [(p.nodes, p.cost, p.measured) for p in result.curve if p.measured is not None]
    if len(measured) < 2:
        return None
    chosen = (*_cost_of_plan(result), result.verdict.ratio)
    ratios = [ratio for *_, ratio in (*measured, chosen) if math.isfinite(ratio) and ratio > 0]
    low = min(math.floor(math.log10(min(ratios, default=0.1))), -1)
    high = max(math.ceil(math.log10(max(ratios, default=10.0))), 1)
    most = max(cost for _, cost, _ in (*measured, chosen))
    endless = any(math.isinf(ratio) for *_, ratio in measured)
    top = _BAND if endless else 0.0

    def x(cost: float) -> float:  # the first nodes matter most
        return math.sqrt(cost / most) if most else 0.0

    def y(ratio: float) -> float:
        if math.isinf(ratio):
            return _BAND / 2
        share = (high - math.log10(ratio)) / (high - low) if ratio > 0 else 1.0
        return top + min(max(share, 0.0), 1.0) * (1.0 - top)

    points = tuple(_labelled([_point(*each, x(each[1]), y(each[2])) for each in sorted(set(measured), key=_by_cost)]))
    finite = [p for p in points if math.isfinite(p.ratio)]
    return Curve(
        points=points,
        chosen=_point(*chosen, x(chosen[1]), y(chosen[2])),
        path=" ".join(f"{'L' if i else 'M'}{p.x:.4f} {p.y:.4f}" for i, p in enumerate(finite)),
        allowed=y(1.0),
        x_ticks=tuple((x(step), f"{step:,}") for step in _round_steps(most)),
        y_ticks=tuple(
            (y(10.0**e), "allowed" if e == 0 else f"{number(10.0**e)}×") for e in range(low, high + (not endless))
        ),
        infinite=_BAND if endless else None,
    )


def _cost_of_plan(result: FixResult) -> tuple[int, float]:
    """How many nodes the plan keeps out of FP16, and what they cost as the search counts it."""
    kept = {node.name for node in result.plan.nodes if node.format is not Format.FP16}
    graph = result.sites.model.graph
    values = (*graph.inputs, *(value for site in result.sites.all for value in site.node.outputs))
    sizes = {
        value: result.measured.ranges[name].count
        for value in values
        if (name := value.name or "") in result.measured.ranges
    }
    costs = node_costs(result.sites, sizes)
    return len(kept), float_sum(costs[site.node] for site in result.sites.all if site.name in kept)


def _point(nodes: int, cost: float, ratio: float, x: float, y: float) -> CurvePoint:
    error = "not finite" if math.isinf(ratio) else f"{number(ratio)} × the allowed error"
    text = f"{counted(nodes, 'node')} out of FP16, cost {number(cost)}: {error}"
    return CurvePoint(x, y, nodes, cost, ratio, text, ratio <= 1)


def _by_cost(measured: tuple[int, float, float]) -> tuple[float, float]:
    return measured[1], -measured[2]


def _labelled(points: Sequence[CurvePoint]) -> Iterator[CurvePoint]:
    """From the left every point that is not too near the label before it says how many nodes it is."""
    last = -1.0
    for point in points:
        if point.x - last >= _ROOM:
            last = point.x
            yield replace(point, label=f"{point.nodes:,}")
        else:
            yield point


def _round_steps(most: float) -> list[int]:
    steps = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000]
    shown: list[int] = []
    for step in steps:
        if step <= most and (not shown or math.sqrt(step / most) - math.sqrt(shown[-1] / most) > 0.08):
            shown.append(step)
    return shown or [0]
