"""The error along the model: each node's share of what plain FP16 does to the outputs, in execution order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halfwise.core.float_sum import float_sum
from halfwise.precision.plan import PlannedNode
from halfwise.report.html.embed import digits
from halfwise.report.html.graph import STATES, state_of
from halfwise.report.html.names import Names
from halfwise.report.html.places import Places
from halfwise.verbs.fix.result import FixResult

__all__ = ["Along", "Part", "View", "along"]

_LISTED = 8  # nodes in the list beside the picture
_DRAWN = 1e-9  # of the whole; less is not drawn
_DRAWN_OF_ONE = 1e-6  # of one output's error: the least that the picture's scale shows


@dataclass(frozen=True)
class Part:
    """One node of the list: its share, and what was done about it."""

    name: int
    op: str
    share: float
    state: str
    done: str
    index: int | None


@dataclass(frozen=True)
class View:
    """The shares of one output's error, or of all of them together where `output` is None."""

    output: int | None
    parts: tuple[Part, ...]
    together: float  # the share of the nodes in the list
    out: float  # the share of what no longer runs in FP16 as it was


@dataclass(frozen=True)
class Along:
    """`rows` are what the picture draws: place, name, operator, share, state, breaks, where the graph shows it.

    Of each view but the first, `by_output` has the places and shares.
    """

    nodes: int
    views: tuple[View, ...]
    breaking: int
    kinds: frozenset[str]  # the states that occur
    rows: list[list[Any]]
    by_output: list[list[list[Any]]]


def along(
    result: FixResult,
    names: Names,
    places: Places,
    planned: Mapping[str, PlannedNode],
    by_output: Mapping[str, Mapping[str, float]],
) -> Along | None:
    """None where neither shares are known nor any node that breaks."""
    found = result.measured.diagnosis
    if found is None or not (found.shares or found.breaking):
        return None
    healed = {name for repair in result.plan.repairs for name in repair.nodes if name not in planned}
    keys = [state.key for state in STATES]
    states = {site.name: "repaired" if site.name in healed else state_of(site, planned) for site in found.sites.all}
    rows: list[list[Any]] = []
    for site in found.sites.all:
        share, breaks = found.shares.get(site.name, 0.0), site.name in found.breaking
        of_one = max((shares.get(site.name, 0.0) for shares in by_output.values()), default=0.0)
        if share < _DRAWN and of_one < _DRAWN_OF_ONE and not breaks:
            continue
        place = places.index(site.name)
        rows.append(
            [
                site.index,
                names(site.name),
                names(site.op),
                digits(share),
                keys.index(states[site.name]),
                int(breaks),
                -1 if place is None else place,
            ]
        )
    known = {site.name: site for site in found.sites.all}
    done = {"fp32": "kept in FP32", "bf16": "kept in BF16", "repaired": "repaired", "pinned": "cannot be FP16"}

    def view(output: int | None, shares: Mapping[str, float]) -> View:
        worst = sorted(shares, key=lambda name: (-shares[name], known[name].index))[:_LISTED]
        parts = (
            Part(
                names(name),
                known[name].op,
                shares[name],
                states[name],
                done.get(states[name], "stays in FP16"),
                places.index(name),
            )
            for name in worst
        )
        out = float_sum(share for name, share in shares.items() if states[name] in ("fp32", "bf16", "repaired"))
        return View(output, tuple(parts), float_sum(shares[name] for name in worst), out)

    drawn = [
        [[known[name].index, digits(share)] for name, share in shares.items() if share >= _DRAWN_OF_ONE]
        for shares in by_output.values()
    ]
    return Along(
        nodes=len(found.sites.all),
        views=(view(None, found.shares), *(view(names(name), shares) for name, shares in by_output.items())),
        breaking=len(found.breaking),
        kinds=frozenset(keys[row[4]] for row in rows),
        rows=rows,
        by_output=drawn,
    )
