"""What a repair is, what a rule promises, and the ranges that rules are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.document import LEFT_OUT
from halfwise.model.model import Model
from halfwise.precision.plan_document import RepairRecord

__all__ = ["Ranges", "Repair", "Rule"]


@dataclass(frozen=True)
class Ranges:
    """What tensors held in FP32 over the search inputs, by name; empty where nothing was run."""

    high: Mapping[str, float] = field(default_factory=dict)  # largest finite magnitude
    low: Mapping[str, float] = field(default_factory=dict)  # smallest magnitude that is not zero
    size: Mapping[str, int] = field(default_factory=dict)  # elements
    channels: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of graph inputs, `high` along fixed sizes
    ends: bool = True  # whether factors that stay in FP32 may stand behind inputs and in front of outputs
    known: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)  # what rules worked out from them
    walked: Callable[[int, int], None] = field(default=lambda *_: None, compare=False, repr=False)  # nodes, of how many


@dataclass(frozen=True)
class Repair:
    """One rewrite at one place. `nodes` are the original nodes it replaces or changes, `parameters` are plain JSON:
    with the two, the rule can do it again. `algebra` says in one line what it does; where that is an equation,
    `was` and `becomes` are its sides."""

    rule: str
    nodes: tuple[str, ...]
    algebra: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    was: str = ""
    becomes: str = ""
    wide: bool = False  # what it adds stays in FP32, so that what reads it need not
    loses: float = 0.0  # how far it may move an FP32 answer that its rule leaves as it is, relative to its norm

    @classmethod
    def equation(
        cls,
        rule: str,
        nodes: tuple[str, ...],
        sides: tuple[str, str],
        parameters: Mapping[str, Any] | None = None,
        *,
        wide: bool = False,
    ) -> Repair:
        """One whose algebra is an equation of what was there and what takes its place."""
        was, becomes = sides
        return cls(rule, nodes, f"{was} = {becomes}", parameters or {}, was, becomes, wide)

    @classmethod
    def planned(cls, entry: RepairRecord) -> Repair:
        """As a plan holds it."""
        return cls(entry.rule, entry.nodes, entry.algebra, entry.parameters, entry.was or "", entry.becomes or "")

    def document(self, saved: tuple[str, ...] = ()) -> RepairRecord:
        return RepairRecord(
            self.rule,
            self.nodes,
            self.algebra,
            self.was or LEFT_OUT,
            self.becomes or LEFT_OUT,
            self.parameters,
            len(saved),
            saved,
        )


class Rule(Protocol):
    """One kind of rewrite. Its module states the precondition, the proof of equivalence, and what it buys."""

    @property
    def id(self) -> str:
        """Stable, such as "HW402"."""
        ...

    @property
    def name(self) -> str:
        """For the command line, such as "norm-operator"."""
        ...

    @property
    def bound(self) -> float:
        """How far the repaired FP32 answer may be from the original, relative to its norm; 0 means bit-identical."""
        ...

    @property
    def lossy(self) -> bool:
        """Whether it changes the FP32 answer on purpose; such a rule is applied only when asked for by name."""
        ...

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        """Every place where the rule holds. What only looks alike is left alone."""
        ...

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        """Rewrite a copy of the model in place; False, with nothing changed, where the place is no longer there."""
        ...
