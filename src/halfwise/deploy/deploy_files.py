"""What a target is given, what it gets back, and the known defects that it can meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from halfwise.compiler.attention_regions import RegionRecord
from halfwise.compiler.audit_document import CoverageRecord, EngineRecord, Violation
from halfwise.compiler.compiled import TIME_LIMIT_S, Compiled
from halfwise.core.document import Count, Record
from halfwise.core.english import documented
from halfwise.core.notes import Messages, Note
from halfwise.core.targets import Target
from halfwise.deploy.advisories import Advisory, facts_of_nodes, match
from halfwise.deploy.layouts import Layouts
from halfwise.model.model import Model
from halfwise.precision.decision import Decision

if TYPE_CHECKING:
    from halfwise.compiler.audit import Audit
    from halfwise.model.inputs.samples import Samples

__all__ = ["CompiledRecord", "DeployFiles", "Handover", "advisories_for"]


class CompiledRecord(Record, frozen=True):
    """What the compiler made of the model."""

    compiler: str
    builds: Count
    seconds: float
    added: Sequence[str]
    region: RegionRecord | None = msgspec.field(name="island")
    engine: EngineRecord
    coverage: CoverageRecord
    unproven: Sequence[Violation]
    notes: Sequence[str]
    messages: Messages = ()


@dataclass(frozen=True)
class Handover:
    """What a target is given: the decision with what is known of it, and the model and the plan where written."""

    target: Target
    decision: Decision
    samples: Samples
    typed: Path | None
    plan: Path | None
    repaired: bool = False
    compiled: Compiled | None = None
    advisories: tuple[Advisory, ...] = ()
    layouts: Layouts | None = None
    notify: Callable[[str], None] = lambda text: None
    time_limit_s: float = TIME_LIMIT_S


@dataclass(frozen=True)
class DeployFiles:
    """What a target gets. Paths are None where nothing was written; `notes` say why, and the way out."""

    command: Path | None = None
    script: Path | None = None
    model: Path | None = None  # the FP32 model with a name for every node, where the given one lacks them
    build: tuple[str, ...] = ()  # the words that build the engine: by the command, or else by the script
    audit_command: str = ""
    outputs: Path | None = None  # where the script writes what the engine answers to samples
    compiled: Compiled | None = None
    advisories: tuple[Advisory, ...] = ()
    notes: tuple[Note, ...] = ()
    others: Mapping[str, Path] = field(default_factory=dict)  # further files, each under a word for it
    refusal: str = ""  # why the target's own compiler takes no such model; another's refusal is a note

    @property
    def audit(self) -> Audit | None:
        """What the compiler made of the model, where one was asked and took it."""
        return self.compiled.audit if self.compiled else None

    def audited(self) -> CompiledRecord | None:
        """The same for a document."""
        if self.compiled is None or self.audit is None:
            return None
        return CompiledRecord(
            compiler=self.compiled.compiler,
            builds=self.compiled.builds,
            seconds=round(self.compiled.seconds, 3),
            added=[node.name for node in self.compiled.added],
            region=self.compiled.region.document() if self.compiled.region else None,
            engine=self.audit.engine(),
            coverage=self.audit.document().coverage,
            unproven=self.audit.unproven,
            **documented(self.audit.notes),
        )


def advisories_for(target: Target, model: Model) -> tuple[Advisory, ...]:
    """The known defects of the target that this model's operators can meet; none for a target without versions."""
    if target.runtime.builder is None:
        return ()
    return match(target, facts_of_nodes(model.nodes))
