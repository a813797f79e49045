"""What each node is part of, of the patterns that people know as one thing."""

from __future__ import annotations

from halfwise.model.model import Model
from halfwise.model.patterns import find_patterns
from halfwise.model.patterns.pattern import Pattern

__all__ = ["things"]

# Of two that share a node, the first here counts.
_THINGS = (
    "layernorm rmsnorm instancenorm groupnorm variance-by-moments l2norm softmax logsumexp log-epsilon "
    "inverse-sigmoid attention sincos-embedding gram cumsum"
).split()


def things(model: Model) -> dict[str, tuple[int, str]]:
    """By the name of a node: the number of its thing, and its kind."""
    kinds: dict[str, list[Pattern]] = {kind: [] for kind in _THINGS}
    for pattern in find_patterns(model):
        if pattern.kind in kinds:
            kinds[pattern.kind].append(pattern)
    found: dict[str, tuple[int, str]] = {}
    for number, pattern in enumerate(each for alike in kinds.values() for each in alike):
        for name in pattern.nodes:
            found.setdefault(name, (number, pattern.kind))
    return found
