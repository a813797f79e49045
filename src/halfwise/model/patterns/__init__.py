"""Patterns: LayerNorm, softmax, attention and other known groups of nodes, found by structure in any spelling."""

from __future__ import annotations

from halfwise.model.model import Model
from halfwise.model.patterns.attention import find_attentions
from halfwise.model.patterns.coordinates import find_large_coordinates, find_sincos
from halfwise.model.patterns.l2norm import find_l2norms
from halfwise.model.patterns.logarithms import find_inverse_sigmoids, find_log_epsilons
from halfwise.model.patterns.norms import find_moments, find_norms
from halfwise.model.patterns.pattern import KINDS, Pattern
from halfwise.model.patterns.reductions import find_cumsums, find_grams, find_large_reductions
from halfwise.model.patterns.selections import find_id_casts, find_selections
from halfwise.model.patterns.softmax import find_logsumexps, find_softmaxes
from halfwise.model.patterns.view import View

__all__ = ["KINDS", "Pattern", "find_patterns"]

_FINDERS = (
    find_norms,
    find_moments,
    find_l2norms,
    find_softmaxes,
    find_logsumexps,
    find_attentions,
    find_log_epsilons,
    find_inverse_sigmoids,
    find_large_reductions,
    find_grams,
    find_cumsums,
    find_large_coordinates,
    find_sincos,
    find_selections,
    find_id_casts,
)


def find_patterns(model: Model) -> tuple[Pattern, ...]:
    """Every pattern of a model, in the order of their anchors; a node may be part of several."""
    view = View(model)
    found = [pattern for find in _FINDERS for pattern in find(view)]
    place = {node.name or "": index for node, index in view.order.items()}
    return tuple(sorted(found, key=lambda pattern: place[pattern.anchor]))
