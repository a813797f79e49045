"""The error along the model: each node's share of what plain FP16 does to the outputs, in execution order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from halfwise.fix_result import FixResult
from halfwise.plan import PlannedNode
from halfwise.report.html.embed import digits
from halfwise.report.html.graph import STATES, state_of
from halfwise.report.html.names import Names
from halfwise.report.html.places import Places

__all__ = ["Along", "Part", "along"]

_LISTED = 8  # nodes in the list beside the picture
_DRAWN = 1e-9  # of the whole; less is not drawn


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
class Along:
    """`rows` are what the picture draws: place, name, operator, share, state, breaks, where the graph shows it."""

    nodes: int
    parts: tuple[Part, ...]
    together: float  # the share of the nodes in the list
    breaking: int
    out: float  # the share of what no longer runs in FP16 as it was
    kinds: frozenset[str]  # the states that occur
    rows: list[list[Any]]


def along(result: FixResult, names: Names, places: Places, planned: Mapping[str, PlannedNode]) -> Along | None:
    """None where the shares are not known."""
    found = result.diagnosis
    if found is None or not found.shares:
        return None
    healed = {str(name) for repair in result.plan.repairs for name in repair.get("nodes", ())}
    keys = [state.key for state in STATES]
    states = {site.name: "repaired" if site.name in healed else state_of(site, planned) for site in found.sites.all}
    rows: list[list[Any]] = []
    for site in found.sites.all:
        share, breaks = found.shares.get(site.name, 0.0), site.name in found.breaking
        if share < _DRAWN and not breaks:
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
    worst = sorted(found.shares, key=lambda name: (-found.shares[name], known[name].index))[:_LISTED]
    done = {"fp32": "kept in FP32", "bf16": "kept in BF16", "repaired": "repaired", "pinned": "cannot be FP16"}
    return Along(
        nodes=len(found.sites.all),
        parts=tuple(
            Part(
                names(name),
                known[name].op,
                found.shares[name],
                states[name],
                done.get(states[name], "stays in FP16"),
                places.index(name),
            )
            for name in worst
        ),
        together=sum(found.shares[name] for name in worst),
        breaking=len(found.breaking),
        out=sum(share for name, share in found.shares.items() if states[name] in ("fp32", "bf16", "repaired")),
        kinds=frozenset(keys[row[4]] for row in rows),
        rows=rows,
    )
