"""`advise`: the known precision defects of a target's version that a model or an engine can meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from halfwise.compiler.attention_advice import keep_kernel_out
from halfwise.compiler.attention_regions import Fp32Region
from halfwise.core.document import Documented
from halfwise.core.errors import HalfwiseError
from halfwise.core.summary import Summary
from halfwise.core.targets import Target
from halfwise.core.wording import counted
from halfwise.deploy.advisories import AdviseDocument, Advisory, facts_of_file, match
from halfwise.deploy.advisories.suspect_kernels import suspect_kernels

__all__ = ["Advice", "advise"]


@dataclass(frozen=True, repr=False)
class Advice(Documented):
    """`region`: the FP32 nodes that keep a suspect attention kernel out; `note` says why none is shown."""

    target: Target
    source: str
    advisories: tuple[Advisory, ...]
    region: Fp32Region | None = None
    note: str = ""

    def summary(self) -> Summary:
        """Each advisory, the most certain first."""
        rows = tuple(
            (
                each.entry.id,
                "may apply" if each.open_questions else "applies",
                each.entry.symptom,
                each.entry.workaround,
            )
            for each in self.advisories
        )
        sure = sum(not each.open_questions for each in self.advisories)
        what = f" and {self.source}" if self.source else ""
        headline = f"{self.target}{what}: {counted(sure, 'advisory applies', 'advisories apply')}"
        return Summary(f"{headline}, {len(rows) - sure:,} may apply", ("id", "applies", "symptom", "workaround"), rows)

    def document(self) -> AdviseDocument:
        return AdviseDocument(
            target=str(self.target),
            source=self.source or None,
            advisories=[advisory.document() for advisory in self.advisories],
            region=self.region.document() if self.region is not None else None,
        )


def advise(target: str | Target, source: str | Path | None = None, *, time_limit_s: float = 300.0) -> Advice:
    """List the known precision defects of a version, the most certain first.

    `source` is an ONNX model, an engine's layers or a build log; without it every defect of the version is listed.
    `time_limit_s` is for each build that looks for an FP32 region, where an attention kernel is the suspect.
    """
    parsed = target if isinstance(target, Target) else Target.parse(target)
    path = Path(source) if source is not None else None
    facts = facts_of_file(path) if path is not None else None
    advisories = tuple(match(parsed, facts))
    region, note = None, ""
    if path is not None and facts is not None and facts.nodes is not None:
        region, note = _region(path, advisories, time_limit_s)
    return Advice(parsed, str(path) if path is not None else "", advisories, region, note)


def _region(source: Path, advisories: Sequence[Advisory], time_limit_s: float) -> tuple[Fp32Region | None, str]:
    """Where a fused attention kernel is the suspect: the FP32 region that keeps it out, or why none is shown."""
    suspects = suspect_kernels(advisories, ("defect", "report"))
    if not suspects:
        return None, ""
    try:
        return keep_kernel_out(source, suspects, time_limit_s), ""
    except HalfwiseError as error:
        return None, f"how to keep {' or '.join(suspects)} out is not shown: {error}"
