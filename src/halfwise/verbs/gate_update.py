"""`gate --update`: what the gate compares with is written anew, to be looked at and committed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from halfwise.core.errors import InputError
from halfwise.core.metrics import OutputMetric
from halfwise.core.notes import Note, NoteKind
from halfwise.core.whole_files import WholeFiles
from halfwise.model.inputs.rollout import Rollout, rollout_of
from halfwise.model.model import load
from halfwise.precision.plan import Plan, read_plan
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.gate import Gate, gate
from halfwise.verbs.scan import scan

__all__ = ["gate_updated"]


def gate_updated(
    plan: Path,
    model: Path,
    inputs: str | Path | Iterable[Any] | None = None,
    *,
    metric: OutputMetric | str | None = None,
    baseline: Path | None = None,
    engine: Path | None = None,
    reference: Path | None = None,
    rollout: int | None = None,
    feedback: str | Sequence[str] = (),
    profile: str | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> Gate:
    """The gate, and again after an update: a plan that no longer holds is searched anew with its own question, and the
    baseline takes what `scan` finds now. A plan that holds, and one that cannot be made to, stays as it is."""
    if engine is not None:
        raise InputError("--update writes a plan that the engine of --engine was not built from; leave one of them out")

    def ask(stated: Plan | Path) -> Gate:
        return gate(
            stated,
            loaded,
            inputs,
            metric=metric,
            baseline=baseline,
            reference=reference,
            rollout=rollout,
            feedback=feedback,
            profile=profile,
            notify=notify,
        )

    def searched() -> Plan | None:
        notify("searching again")
        steps: Rollout | None = rollout_of(rollout, feedback, loaded.output_names) or stated.rollout
        result = fix(
            loaded,
            inputs,
            tolerance=stated.tolerance,
            metric=metric or stated.tolerance.measure or None,
            target=stated.target,
            profile=profile or stated.profile,
            io_types=stated.io_types,
            io_formats=[f"{name}={'+'.join(layouts)}" for name, layouts in stated.io_formats.items()],
            reference=reference,
            rollout=None if steps is None else steps.steps,
            feedback=() if steps is None else [f"{output}={read}" for output, read in steps.feedback],
            notify=notify,
        )
        return result.plan if result.good else None

    stated, loaded = read_plan(plan), load(model)
    found = ask(plan)
    broken = any(check.status == "fail" for check in found.checks if check.id != "findings")
    new = searched() if broken else None
    if broken and new is None:
        return replace(found, notes=(*found.notes, Note.of(NoteKind.PLAN_STAYS, str(plan))))
    written = list(_written(plan, stated, new, baseline, found))
    if not written:
        return found
    again = ask(plan)
    return replace(again, notes=(*written, *again.notes))


def _written(path: Path, stated: Plan, new: Plan | None, baseline: Path | None, found: Gate) -> Iterator[Note]:
    """Both files at once, and what became of each."""
    with WholeFiles() as files:
        if new is not None:
            files.text(path, new.text(path.parent))
            yield Note.of(NoteKind.PLAN_UPDATED, str(path), now=len(new.nodes), was=len(stated.nodes))
        moved = any(check.id == "findings" and len(check.also) + (check.status == "fail") for check in found.checks)
        if baseline is not None and moved:
            document = scan(found.model)
            files.text(baseline, json.dumps(document.to_json(), indent=2, allow_nan=False) + "\n")
            yield Note.of(NoteKind.BASELINE_UPDATED, str(baseline), count=len(document.findings))
