"""What a pattern is: a few nodes of a graph that together do one known thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KINDS", "Pattern"]

# Each kind, and what it is called in a sentence.
KINDS: dict[str, str] = {
    "layernorm": "decomposed LayerNorm",
    "rmsnorm": "decomposed RMSNorm",
    "instancenorm": "decomposed InstanceNorm",
    "groupnorm": "decomposed GroupNorm",
    "variance-by-moments": "variance as E[x^2] - E[x]^2",
    "l2norm": "L2 normalisation",
    "softmax": "softmax written out by hand",
    "logsumexp": "log of a sum of exponentials",
    "attention": "attention",
    "log-epsilon": "logarithm of a guarded value",
    "inverse-sigmoid": "inverse sigmoid",
    "large-reduction": "reduction over many elements",
    "gram": "product of a matrix with its own transpose",
    "cumsum": "running sum",
    "large-coordinates": "arithmetic on a grid of large values",
    "sincos-embedding": "sine and cosine embedding",
    "selection": "selection of the largest",
    "id-cast": "ids in floating point",
}


@dataclass(frozen=True)
class Pattern:
    """Nodes that together do one known thing. Which details a kind has, the function that finds it says."""

    kind: str  # one of KINDS
    nodes: tuple[str, ...]  # names, in execution order
    anchor: str  # the one of them that FP16 hurts first
    details: Mapping[str, Any] = field(default_factory=dict)
