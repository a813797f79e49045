"""What a profile is: kernel semantics by operator, a rule of fusion, and how far it was seen to be off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import onnx
import onnx_ir as ir

from halfwise.emulation.profiles.fusion import FusionRule
from halfwise.emulation.profiles.steps import Steps

__all__ = ["Kernel", "Profile"]

# Spells one node as its kernel computes it; the name of the result before its last rounding, or None where the
# kernel rounds once and nothing else is known of it.
Kernel = Callable[[onnx.NodeProto, Steps], str | None]


@dataclass(frozen=True)
class Profile:
    """A named set of kernel semantics.

    `kernels` spell operators whose kernels round besides at their output, those of another domain under
    "domain:operator"; `loose` finds nodes whose results depend on more than is emulated. `fusion` names the rule by
    which nodes become one kernel. `spread` is by how much measured errors were seen to exceed predicted ones (or, where
    `inferred`, what is supposed), `loose_spread` the same of models that hold a loose node. `beside` are the profiles
    that judge with it, because a target may run so, too. `by_engine`: where an engine was compiled, the kernels that it
    lists judge besides. `apart`: ONNX Runtime's own operators store what their steps give, as their unfused kernels do.
    `conversion` is how FP32 becomes FP16 between nodes, where it is not as IEEE 754 has it. `two_ended` are
    operators of which a profile beside rounds less, because it is not known which kernel runs. `source` is the hash of
    what it was learned from.
    """

    name: str
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    loose: Callable[[ir.Node], bool] = lambda node: False
    fusion: str | FusionRule = ""
    spread: float = 0.0
    loose_spread: float = 0.0
    inferred: bool = False
    reverted: frozenset[str] = frozenset()
    beside: tuple[Profile, ...] = ()
    by_engine: bool = False
    apart: bool = False
    conversion: str = ""
    two_ended: frozenset[str] = frozenset()
    source: str = ""

    def spread_of(self, nodes: Iterable[ir.Node]) -> float:
        """By how much a real error of a model of these nodes may exceed the emulated one."""
        return max(self.spread, self.loose_spread) if any(self.loose(node) for node in nodes) else self.spread
