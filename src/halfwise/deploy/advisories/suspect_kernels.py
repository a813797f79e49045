"""The fused kernels that known defects concern."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from halfwise.core.targets import Fit
from halfwise.deploy.advisories.matcher import Advisory

__all__ = ["suspect_kernels"]


def suspect_kernels(advisories: Iterable[Advisory], kinds: Sequence[str] = ("defect",)) -> tuple[str, ...]:
    """Parts of the names of fused attention kernels that an advisory of these kinds surely concerns."""
    return tuple(
        dict.fromkeys(
            kernel
            for advisory in advisories
            if advisory.applies is Fit.YES and advisory.entry.kind in kinds
            for kernel in advisory.entry.kernels
            if "mha" in kernel
        )
    )
