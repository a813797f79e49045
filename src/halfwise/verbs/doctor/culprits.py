"""Which nodes make the error of plain FP16, from one walk over the FP32 model and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.float_sum import float_sum
from halfwise.core.output_kinds import OutputKind
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.precision.sites import Sites
from halfwise.search.diagnosis import diagnose
from halfwise.search.noise import noise_pieces
from halfwise.search.sensitivity import Sensitivity, measure_sensitivity

__all__ = ["Culprits", "find_culprits"]

_NAMED = 3
_SHARE = 0.05  # of the squared error, from which on a node is named
_MODULE = 0.9  # and from which on a module is where the error is made


@dataclass(frozen=True)
class Culprits:
    """Nodes, the worst first or, of an overflow, in execution order; `share` is their part of the squared error."""

    nodes: tuple[str, ...]
    share: float
    module: str = ""  # the innermost that makes nearly all of it
    of_module: float = 0.0


def find_culprits(
    sites: Sites, feed: Mapping[str, NDArray[Any]], kinds: Sequence[OutputKind], only: str | None = None
) -> Culprits:
    """Of all outputs, or of one."""
    others = {} if only is None else {value.name or "": 0.0 for value in sites.model.judged_values}
    others.pop(only or "", None)
    seen = Sensitivity()
    measure_sensitivity(Stepper(Emulator()), sites, feed, seen, weights=others, kinds=kinds)
    if breaking := _breaking(sites, seen):
        return Culprits(tuple(breaking[:_NAMED]), 1.0)
    shares = diagnose(sites, noise_pieces(sites, seen), {}).shares
    ranked = [(name, float(part)) for name, part in Counter(shares).most_common(_NAMED) if part >= _SHARE]
    module, most = _module(shares)
    return Culprits(tuple(name for name, _ in ranked), float_sum(part for _, part in ranked), module, most)


def _breaking(sites: Sites, seen: Sensitivity) -> list[str]:
    """The nodes that write what overflows, or compute with an input that does; after them those that break others."""
    writing: set[ir.Node] = set()
    for value in seen.overflows:
        producer, readers = value.producer(), (node for node, _ in value.uses() if sites.of[node].has_fp32)
        writing.update(readers if producer is None else [producer])
    reading = {node for node, _ in seen.breaks} - writing
    ordered = [sorted(nodes, key=lambda node: sites.of[node].index) for nodes in (writing, reading)]
    return [node.name or "" for nodes in ordered for node in nodes]


def _module(shares: Mapping[str, float]) -> tuple[str, float]:
    """By the paths in the nodes' names; no module where only the whole model makes so much."""
    modules: dict[str, float] = {}
    for name, share in shares.items():
        parts = name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            modules[path] = modules.get(path, 0.0) + share
    found = [path for path, share in modules.items() if path and share >= _MODULE]
    deepest = max(found, key=lambda path: path.count("/"), default="")
    return deepest, modules.get(deepest, 0.0)
