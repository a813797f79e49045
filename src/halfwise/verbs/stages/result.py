"""What running a model stage by stage showed: of each stage its error alone and chained, and its culprits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from halfwise.core.document import Documented
from halfwise.core.english import documented, say
from halfwise.core.english.outputs_told import outputs_told
from halfwise.core.english.stages import STAGE_FINDINGS
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note
from halfwise.core.summary import Summary
from halfwise.core.tolerance import Tolerance, Verdict
from halfwise.core.wording import counted
from halfwise.model.inputs.all_samples import UsedInputs
from halfwise.precision.plan import Plan, PlannedNode
from halfwise.verbs.stages.document import FindingOfStage, RunRecord, StageRecord, StagesDocument, UptoRecord

__all__ = ["GOOD", "INHERITS", "IN_COMBINATION", "SPREADS", "WRONG", "Run", "Stage", "StagesResult", "Upto"]

GOOD: Final = "good"
WRONG: Final = "wrong by itself"
IN_COMBINATION: Final = "only in company"
SPREADS: Final = "spreads"
INHERITS: Final = "inherits"


@dataclass(frozen=True)
class Run:
    """The outputs of one way of running a stage, against FP32. `ratio`: the error over the allowed error."""

    outputs: Mapping[str, Metrics]
    verdict: Verdict

    @property
    def ratio(self) -> float:
        return self.verdict.ratio

    def document(self) -> RunRecord:
        return RunRecord(self.ratio, outputs_told(self.outputs))


@dataclass(frozen=True)
class Stage:
    """One stage. `alone`: in FP16 on FP32 inputs. `chained`: in FP16 on what the FP16 stages before it gave.
    `propagated`: in FP32 on that, so what came in and nothing else.

    `finding`: WRONG (alone it misses the tolerance); IN_COMBINATION (alone and every input meet it, and the chained
    result does not); SPREADS (the same, and the stage would do so in FP32, too: it amplifies the error of its inputs);
    INHERITS (an input misses it already); GOOD. The values are the document's; `core.english` has the words.
    """

    name: str
    nodes: int
    compute_nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    alone: Run
    chained: Run
    propagated: Run
    finding: FindingOfStage
    culprits: tuple[PlannedNode, ...] = ()  # the nodes that have to be FP32 for the stage to be right by itself
    corrected: float | None = None  # the tolerance ratio of the stage alone, with the culprits in FP32
    onnx: Path | None = None

    def document(self) -> StageRecord:
        return StageRecord(
            name=self.name,
            nodes=self.nodes,
            compute_nodes=self.compute_nodes,
            inputs=self.inputs,
            outputs=self.outputs,
            finding=self.finding,
            alone=self.alone.document(),
            chained=self.chained.document(),
            propagated=self.propagated.document(),
            culprits=[node.document() for node in self.culprits],
            corrected=self.corrected,
            onnx=str(self.onnx) if self.onnx else None,
        )


@dataclass(frozen=True)
class Upto:
    """The model with all stages up to one in FP16 and everything after it in FP32: its plan and its error."""

    stage: str
    plan: Plan
    whole: Run
    path: Path | None = None

    def document(self) -> UptoRecord:
        return UptoRecord(
            stage=self.stage,
            fp32_nodes=[node.name for node in self.plan.nodes],
            met=self.whole.verdict.met,
            ratio=self.whole.ratio,
            outputs=outputs_told(self.whole.outputs),
            plan=str(self.path) if self.path else None,
        )


@dataclass(frozen=True, repr=False)
class StagesResult(Documented):
    """Every stage in the order in which they run; `whole` is the whole model in FP16, against the tolerance."""

    stages: tuple[Stage, ...]
    whole: Run
    floats: frozenset[str]
    tolerance: Tolerance
    profile: str
    samples: int
    inputs: str  # where the samples come from
    notes: tuple[Note, ...] = ()
    upto: Upto | None = None
    model: str = ""

    @property
    def met(self) -> bool:
        return self.whole.verdict.met

    @property
    def wrong(self) -> tuple[Stage, ...]:
        return tuple(stage for stage in self.stages if stage.finding == WRONG)

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def summary(self) -> Summary:
        """Each stage with its error over the allowed error."""
        rows = tuple(
            (s.name, s.nodes, s.alone.ratio, s.chained.ratio, s.propagated.ratio, STAGE_FINDINGS[s.finding])
            for s in self.stages
        )
        verb = "keeps" if self.met else "misses"
        headline = f"{self.model or 'the model'} in FP16 {verb} the tolerance: {say(self.whole.verdict.because)}"
        headline += (
            f"; {counted(len(rows), 'stage')}, {counted(len(self.wrong), 'of them fails', 'of them fail')} alone"
        )
        columns = ("stage", "nodes", "alone", "chained", "propagated", "finding")
        return Summary(headline, columns, rows, self.met)

    def document(self) -> StagesDocument:
        return StagesDocument(
            status="met" if self.met else "not-met",
            model=self.model,
            profile=self.profile,
            tolerance=self.tolerance.to_json(),
            inputs=UsedInputs(self.inputs, self.samples),
            stages=[stage.document() for stage in self.stages],
            outputs=outputs_told(self.whole.outputs),
            upto=self.upto.document() if self.upto else None,
            **documented(self.notes),
        )
