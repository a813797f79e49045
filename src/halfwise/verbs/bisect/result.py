"""What a bisection found, step by step, and the document it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from halfwise.backends.backend import BackendRecord
from halfwise.core.document import Documented
from halfwise.core.english import documented
from halfwise.core.english.outputs_told import outputs_told
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note
from halfwise.core.summary import Summary
from halfwise.core.tolerance import Tolerance
from halfwise.core.wording import counted
from halfwise.model.inputs.all_samples import UsedInputs
from halfwise.verbs.bisect.culprits import Answer, Ending
from halfwise.verbs.bisect.document import (
    Artifacts,
    BisectDocument,
    BuildsRecord,
    Culprit,
    ErrorsRecord,
    NamedBackend,
    Step,
)

__all__ = ["BisectResult", "Culprit", "Step"]


@dataclass(frozen=True, repr=False)
class BisectResult(Documented):
    """`ending`: "none" (all is well), "control" (wrong in FP32, too), "found", or "budget" (builds ran out)."""

    model: str
    backend: str
    ending: Ending
    culprits: tuple[Culprit, ...]
    unbuildable: tuple[str, ...]
    unproven: tuple[str, ...]
    kept: tuple[str, ...]  # FP32 from the beginning, by the plan
    sum: bool
    nodes: int
    steps: tuple[Step, ...]
    samples: int
    inputs: str
    tolerance: Tolerance | None
    baseline: Mapping[str, Metrics] = field(default_factory=dict)  # as the model (or the plan) was
    fixed: Mapping[str, Metrics] = field(default_factory=dict)  # with the culprits in FP32, measured on the backend
    emulated: Mapping[str, Metrics] = field(default_factory=dict)  # of the baseline, by the emulator
    floats: frozenset[str] = frozenset()
    record: BackendRecord | None = None
    onnx: Path | None = None
    plan: Path | None = None
    notes: tuple[Note, ...] = ()

    @property
    def good(self) -> bool:
        """Nothing is wrong as it is."""
        return self.ending == "none"

    @property
    def regions(self) -> tuple[tuple[str, ...], ...]:
        numbers = sorted({culprit.region for culprit in self.culprits})
        return tuple(tuple(c.name for c in self.culprits if c.region == number) for number in numbers)

    def builds(self) -> dict[str, int]:
        count = {answer.value: sum(step.answer is answer for step in self.steps) for answer in Answer}
        return {"total": len(self.steps), **count, "resumed": sum(step.resumed for step in self.steps)}

    def summary(self) -> Summary:
        """The ending, and each culprit."""
        where = self.record.title if self.record is not None else self.backend or "the given command"
        endings = {
            "none": "nothing is wrong",
            "control": "precision is not the reason: the all-FP32 model is wrong, too",
            "found": f"{counted(len(self.culprits), 'node has', 'nodes have')} to be FP32",
            "budget": f"{counted(len(self.culprits), 'culprit')} found before the builds ran out",
        }
        rows = tuple((c.name, c.op, c.region, c.rank) for c in self.culprits)
        headline = f"{self.model} on {where}: {endings[self.ending]} ({counted(len(self.steps), 'build')})"
        return Summary(headline, ("node", "operator", "region", "rank"), rows, self.good)

    def document(self) -> BisectDocument:
        return BisectDocument(
            status=self.ending,
            model=self.model,
            backend=self.record or NamedBackend(self.backend),
            tolerance=self.tolerance.to_json() if self.tolerance is not None else None,
            inputs=UsedInputs(self.inputs, self.samples),
            nodes=self.nodes,
            culprits=self.culprits,
            regions=self.regions,
            sum=self.sum,
            unbuildable=self.unbuildable,
            unproven=self.unproven,
            kept=self.kept,
            builds=BuildsRecord(**self.builds()),
            steps=self.steps,
            error=ErrorsRecord(*map(outputs_told, (self.baseline, self.emulated, self.fixed))),
            artifacts=Artifacts(str(self.onnx) if self.onnx else None, str(self.plan) if self.plan else None),
            **documented(self.notes),
        )
