"""The error of a typed file as it stands, beside its own numbers in FP32."""

from __future__ import annotations

from dataclasses import replace

from halfwise.core.formats import round_to
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.judge import Judge, Measured

__all__ = ["as_typed"]


def as_typed(model: Model, judge: Judge) -> Measured | None:
    """On the samples of `judge`, under all its profiles; None of a model whose file is in FP32."""
    if model.given is None:
        return None
    sites = Sites(replace(model.given, watched=model.watched))
    types = model.interface
    feeds = [
        {name: round_to(array, types[name]) if name in types else array for name, array in feed.items()}
        for feed in judge.feeds
    ]
    own = Judge(sites, judge.emulator, judge.question, feeds, judge.references, judge.also, judge.counter)
    return own.measure(Assignment(sites, {}))
