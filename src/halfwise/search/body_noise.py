"""What the nodes of a body (a branch, a loop's) do in a narrow format: the part of each, found by halving.

A body runs as a whole, so that each question costs one run of the node that holds it. All of its nodes are asked
first; a part that does much less than the whole is not taken apart further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import onnx_ir as ir

__all__ = ["Part", "body_parts"]

Nodes = tuple[ir.Node, ...]
Part = tuple[Nodes, float, bool]  # nodes, the squared error that they leave at the outputs, whether they break it

NEGLIGIBLE = 1e-9  # of the outputs' squared norms: a relative error of 3e-5
SHARE = 1 / 64  # of the whole: less is not worth asking for
MOST = 96  # questions about one body


def body_parts(nodes: Sequence[ir.Node], trial: Callable[[Nodes], tuple[float, bool]]) -> Iterator[Part]:
    """Disjoint parts, in which every node is; `trial` says what some of them do, all others being FP32."""
    asked = 0

    def ask(part: Nodes) -> tuple[float, bool]:
        nonlocal asked
        asked += 1
        return trial(part)

    def parts(part: Nodes, energy: float, broken: bool) -> Iterator[Part]:
        if len(part) == 1 or asked >= MOST or (not broken and energy <= limit):
            yield part, energy, broken
            return
        halves = part[: len(part) // 2], part[len(part) // 2 :]
        found = [ask(half) for half in halves]
        if broken and not any(each for _, each in found):  # only together
            yield part, energy, True
            found = [(each, False) for each, _ in found]
        for half, (each, breaks) in zip(halves, found, strict=True):
            yield from parts(half, each, breaks)

    whole = tuple(nodes)
    energy, broken = ask(whole)
    limit = max(NEGLIGIBLE, SHARE * energy) if math.isfinite(energy) else NEGLIGIBLE
    yield from parts(whole, energy, broken)
