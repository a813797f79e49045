"""The error of a typed file as it stands, beside its own numbers in FP32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from halfwise.core.formats import Format, round_to
from halfwise.emulation.emulate import widen_feeds
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory
from halfwise.model.mistyped import mistyped
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.judge import Judge, Measured

__all__ = ["as_typed"]


def as_typed(model: Model, judge: Judge, feeds: Sequence[Feed]) -> Measured | None:
    """On `feeds`, which are those of `judge`, under all its profiles; None of a model whose file is in FP32,
    or that no runtime loads."""
    if model.given is None or mistyped(model.given) is not None:
        return None
    sites = Sites(replace(model.given, watched=model.watched))
    own = Judge(
        sites,
        judge.emulator,
        judge.question,
        [_rounded(feed, model.interface) for feed in feeds],
        judge.references,
        judge.also,
        judge.counter,
        trajectories=judge.trajectories,
    )
    return own.measure(Assignment(sites, {}))


def _rounded(feed: Feed, types: Mapping[str, Format]) -> Feed:
    """As the file takes its inputs; of a trajectory in every step."""
    wide = widen_feeds(feed)
    arrays = {name: round_to(array, types[name]) if name in types else array for name, array in wide.items()}
    if isinstance(feed, Trajectory):
        return replace(feed, arrays=arrays, steps=tuple(_rounded(step, types) for step in feed.steps))
    return Feed(feed.id, arrays)
