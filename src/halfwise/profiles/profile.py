"""What a profile is: kernel semantics by operator, a rule of fusion, and how far it was seen to be off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx

from halfwise.profiles.steps import Steps

if TYPE_CHECKING:
    from halfwise.profiles.fusions import FusionRule

__all__ = ["Kernel", "Profile"]

# Spells one node as its kernel computes it; the name of the result before its last rounding, or None where the
# kernel rounds once and nothing else is known of it.
Kernel = Callable[[onnx.NodeProto, Steps], str | None]


@dataclass(frozen=True)
class Profile:
    """A named set of kernel semantics.

    `kernels` spell operators whose kernels round besides at their output; `loose` are those whose kernels are known
    to be less exact than what is emulated. `fusion` names the rule by which nodes become one kernel. `spread` is the
    relative difference between predicted and measured errors that was seen (or, where `inferred`, that is supposed).
    """

    name: str
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    loose: frozenset[str] = frozenset()
    fusion: str | FusionRule = ""
    spread: float = 0.0
    inferred: bool = False
    taken_back: frozenset[str] = frozenset()
