"""What `bisect` found, as its result, and as a typed model and a plan on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.core.measures.blind import blind_notes, sees_nothing
from halfwise.core.metrics import Metrics
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.targets import DEFAULT_TARGET
from halfwise.core.tolerance import Tolerance
from halfwise.core.whole_files import WholeFiles
from halfwise.emulation.profiles import STRICT
from halfwise.model.fingerprint import graph_sha256
from halfwise.model.inputs.rollout_growth import rollout_notes
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import Plan, PlannedNode
from halfwise.precision.typed_onnx import write_typed
from halfwise.search.judge import Question
from halfwise.search.quantiser_steps import own_steps
from halfwise.verbs.bisect.asked import UNRANKED, Asked
from halfwise.verbs.bisect.culprits import Found
from halfwise.verbs.bisect.result import BisectResult, Culprit
from halfwise.verbs.bisect.trials import Trials
from halfwise.verbs.fix.runnable import known_kernels

__all__ = ["result_of"]


def result_of(
    asked: Asked,
    found: Found,
    trials: Trials,
    question: Question | None,
    folder: Path,
) -> BisectResult:
    everything = frozenset(asked.nodes)
    wide: set[ir.Node] = set()
    if found.ending in ("found", "budget"):
        wide = {asked.order[rank] for rank in (*found.culprits, *found.unbuildable, *found.unproven)}
    narrow = everything - wide
    culprits = _culprits(asked, found) if wide else ()
    onnx_path, plan_path = None, None
    if asked.out is not None and wide and found.measured:
        onnx_path, plan_path = _write(asked, folder, trials.assignment(narrow), wide, found, question)
    emulated: Mapping[str, Metrics] = {}
    if asked.backend is not None and found.ending != "none":
        asked.notify("measuring the errors by emulation")
        emulated = asked.emulated.outputs
    return BisectResult(
        model=str(asked.given.path or ""),
        backend=asked.backend.name if asked.backend is not None else "",
        ending=found.ending,
        culprits=culprits,
        unbuildable=tuple(asked.order[rank].name or "" for rank in found.unbuildable),
        unproven=tuple(asked.order[rank].name or "" for rank in found.unproven) if wide else (),
        kept=asked.kept,
        sum=found.sum,
        nodes=len(asked.nodes),
        steps=tuple(trials.steps),
        samples=len(asked.samples.feeds),
        inputs=asked.samples.origin,
        tolerance=question.tolerance if question is not None and asked.checker is None else None,
        baseline=trials.measured.get(everything, {}),
        fixed=trials.measured.get(narrow, {}) if wide else {},
        emulated=emulated,
        floats=asked.floats,
        record=trials.record,
        onnx=onnx_path,
        plan=plan_path,
        notes=_notes(asked, found, trials, emulated, question),
    )


def _culprits(asked: Asked, found: Found) -> tuple[Culprit, ...]:
    """In execution order; those that feed each other are one region."""
    ranks = {asked.order[rank]: rank + 1 for rank in found.culprits}
    nodes = [node for node in asked.nodes if node in ranks]
    region: dict[ir.Node, int] = {}
    for node in nodes:
        if node in region:
            continue
        region[node] = number = max(region.values(), default=0) + 1
        stack = [node]
        while stack:
            at = stack.pop()
            for other in (*at.predecessors(), *at.successors()):
                if other in ranks and other not in region:
                    region[other] = number
                    stack.append(other)
    return tuple(Culprit(node.name or "", node.op_type, ranks[node], region[node]) for node in nodes)


def _write(
    asked: Asked, folder: Path, assignment: Assignment, wide: set[ir.Node], found: Found, question: Question | None
) -> tuple[Path, Path]:
    stem = asked.given.path.stem if asked.given.path is not None else "model"
    proven = {asked.order[rank] for rank in found.culprits}
    on = f"on {asked.backend.name}" if asked.backend is not None else "by your own command"
    wrong, open_ = Note.of(NoteKind.BACKEND_WRONG, on=on), Note.of(NoteKind.NOT_CLEARED)
    nodes = [
        PlannedNode(
            node.name or "",
            node.op_type,
            Format.FP32,
            Reason.BACKEND if node in proven else Reason.UNPROVEN,
            (wrong if node in proven else open_,),
        )
        for node in asked.nodes
        if node in wide
    ]
    earlier = asked.plan
    plan = Plan(
        model=asked.given.path.name if asked.given.path else "",
        sha256=asked.given.sha256,
        data_sha256=asked.given.data_sha256,
        graph_sha256=graph_sha256(asked.given),
        node_count=asked.given.stored_nodes,
        target=earlier.target if earlier is not None else str(DEFAULT_TARGET),
        profile=earlier.profile if earlier is not None else STRICT.name,
        tolerance=question.tolerance if question is not None else Tolerance.default(),
        io_types=asked.io,
        inputs=asked.samples.origin,
        nodes=(*(earlier.nodes if earlier is not None else ()), *nodes),
        repairs=earlier.repairs if earlier is not None else (),
        io_formats=earlier.io_formats if earlier is not None else {},
        profile_sha256=earlier.profile_sha256 if earlier is not None else "",
        rollout=asked.rollout,
    )
    path = folder / f"{stem}.bisect.plan.json"
    with WholeFiles() as files:
        typed = write_typed(assignment, folder / f"{stem}.bisect.onnx", files)
        files.text(path, plan.text(folder))
    return typed.path, path


def _notes(
    asked: Asked, found: Found, trials: Trials, emulated: Mapping[str, Metrics], question: Question | None
) -> tuple[Note, ...]:
    notes: list[Note] = [
        *asked.told,
        *(asked.lost if question is not None else ()),
        *asked.samples.notes,
        *(asked.backend.cautions if asked.backend is not None else ()),
        *_unseen(asked, question),
    ]
    rolled = trials.ratios.get(frozenset(asked.nodes))
    if asked.rollout is not None and rolled is not None:
        notes += rollout_notes(asked.rollout, len(asked.samples.feeds), rolled)
    if trials.record is not None:
        notes += trials.record.remarks
    if (error := asked.journal.get(UNRANKED, str)) is not None:
        notes.append(Note.of(NoteKind.NOT_RANKED, error=error))
    judged = question if asked.checker is None and asked.metric is None else None
    if judged is not None and found.ending != "none":
        notes += _whatever_the_formats(asked, found, trials, judged)
    wrong = found.ending in ("found", "budget")
    if wrong and emulated and judged is not None and judged.tolerance.verdict(emulated, asked.floats).met:
        notes.append(Note.of(NoteKind.EMULATOR_AGREES, profile=asked.emulator.profile.name))
    return tuple(notes)


def _unseen(asked: Asked, question: Question | None) -> tuple[Note, ...]:
    """On which inputs the metric sees nothing."""
    if question is None or question.metric is None or not question.tolerance.uses_user_metric:
        return ()
    names = asked.given.output_names
    answers = ({name: answer[name] for name in names} for answer in asked.references)
    return blind_notes(question.metric, [sees_nothing(question.metric, answer) for answer in answers])


def _whatever_the_formats(asked: Asked, found: Found, trials: Trials, question: Question) -> list[Note]:
    """What FP32 misses the tolerance by, too: steps of quantisers, and kernels that compute something else."""
    notes = []
    control = trials.measured.get(frozenset())
    if found.ending == "control" and control and asked.backend is not None and asked.backend.name == "ort-cpu":
        verdict, why = question.tolerance.verdict(control, asked.floats), known_kernels(asked.given)
        if why.kind is not NoteKind.KERNELS_DECIDE:
            notes.append(Note.of(NoteKind.DELIVERED_MISSES_IN_FP32, error=verdict.because, why=why))
    ratios = [step.ratio for step in trials.steps if step.ratio is not None]
    moves = own_steps(asked.sites, asked.emulator, question, asked.feeds, asked.references) if ratios else None
    moved = moves.note(ratios[0]) if moves is not None else None
    return [*notes, *([moved] if moved is not None else [])]
