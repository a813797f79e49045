"""The emulator's order of suspicion: nodes sorted by what their roundings do to the outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.emulation.stepper import Stepper
from halfwise.precision.sites import Sites
from halfwise.search.noise import noise_pieces
from halfwise.search.sensitivity import Sensitivity, measure_sensitivity

__all__ = ["ranked"]


def ranked(
    sites: Sites, stepper: Stepper, feed: Mapping[str, NDArray[Any]], nodes: Collection[ir.Node]
) -> tuple[ir.Node, ...]:
    """`nodes`, the most suspicious first: overflows, then by the squared error that being FP32 would take away.

    Equal ones stay in execution order. It is an opinion and no more: a backend with kernels of its own may differ.
    """
    measured = Sensitivity()
    measure_sensitivity(stepper, sites, feed, measured)
    fatal: dict[ir.Node, int] = {}
    energy: dict[ir.Node, float] = {}
    for piece in noise_pieces(sites, measured):
        for node in piece.needs:
            fatal[node] = fatal.get(node, 0) + piece.fatal
            energy[node] = energy.get(node, 0.0) + piece.energy
    order = {site.node: site.index for site in sites.all}
    return tuple(sorted(nodes, key=lambda n: (-fatal.get(n, 0), -energy.get(n, 0.0), order[n])))
