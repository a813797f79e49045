"""All graphs of the corpus that the packages at hand can make."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

from benchmarks.thousand import backend, control, language, on_top, packaged, vision, written
from benchmarks.thousand.graph import Graph

__all__ = ["corpus", "missing"]


def corpus(*, made_from_code: bool = True) -> list[Graph]:
    """Backend cases, what is written by hand, what tools make of it; with `made_from_code` models of packages, too."""
    by_hand = list(control.graphs())
    found = [*backend.graphs(), *by_hand]
    below = by_hand
    if made_from_code:
        below = [*vision.graphs(), *language.graphs(), *written.graphs()]
        found += [*packaged.graphs(), *below]
        below = [*by_hand, *below]
    found += on_top.graphs(below)
    return [graph for graph in found if not missing(graph.needs)]


def missing(packages: Iterable[str]) -> list[str]:
    return [name for name in packages if importlib.util.find_spec(name) is None]
