"""What plain FP16 does to the model on the inputs given: where it breaks, which nodes make the error, what is coarse.

A few model runs and one walk forward and back: no search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.answers import check_answers
from halfwise.core.english.finding import finding
from halfwise.core.evaluation import Evaluation, float_outputs, sample_error
from halfwise.core.finding import Finding, Where
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.first_not_finite import lost_from
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.emulation.stepper import Stepper
from halfwise.model.fp32_model import fp32_model
from halfwise.model.inputs.all_samples import AllSamples, all_samples
from halfwise.model.model import Model
from halfwise.model.outputs.kinds import facts_of
from halfwise.model.outputs.understood import understand
from halfwise.precision.sites import Sites
from halfwise.search.judge import Question
from halfwise.search.quantiser_steps import own_steps
from halfwise.verbs.doctor.culprits import Culprits, find_culprits
from halfwise.verbs.fix.model_inputs import input_effects, input_findings
from halfwise.verbs.runners import EmulatedRunner

__all__ = ["Measured", "measure"]

Array = NDArray[Any]
Outputs = Mapping[str, Array]

_MOST = 4  # samples
_NAMED = 3
_COARSE = 1.0  # a step of FP16 from which on a share of a large value hides whole units


@dataclass(frozen=True)
class Measured:
    """The findings, most telling first, the outputs whose error in their own unit is more than half a unit, and the
    error over the allowed one."""

    findings: tuple[Finding, ...]
    coarse: tuple[str, ...] = ()
    ratio: float = 0.0
    notes: tuple[Note, ...] = ()  # on how the inputs were read


def measure(model: Model, inputs: Any, notify: Callable[[int, int], None]) -> Measured:
    """Run FP32 and plain FP16 on a few samples; where FP16 is not good enough, find the nodes that make the error."""
    wide = fp32_model(model)
    samples = all_samples(wide.inputs, inputs, most=_MOST, sizes=sizes_that_run(wide, inputs))
    facts = facts_of(wide)
    reference = EmulatedRunner(wide).watching(facts.inner)
    narrow = EmulatedRunner(wide, narrow=True)
    answers: list[Outputs] = []
    steps = 2 * len(samples.feeds) + 1  # the last one asks where the error is made
    for index, feed in enumerate(samples.feeds):
        answers.append(reference.run(index, feed))
        notify(index + 1, steps)
    check_answers(answers, samples.notes, partial(_lost_from, wide, samples))
    found = understand(facts, (), None, answers)
    errors = []
    for index, (feed, wanted) in enumerate(zip(samples.feeds, found.answers, strict=True)):
        errors.append(sample_error(wanted, narrow.run(index, feed), kinds=found.tolerance.kinds))
        notify(len(samples.feeds) + index + 1, steps)
    floats = float_outputs({name: found.answers[0][name] for name in wide.output_names})
    evaluation = Evaluation(found.tolerance, floats, tuple(errors))
    measured = _judged(wide, samples, evaluation, found.tolerance, found.answers)
    notify(steps, steps)
    return measured


def _lost_from(model: Model, samples: AllSamples) -> str:
    return lost_from(Sites(model), Stepper(Emulator()), widen_feeds(samples.feeds[0]), samples.notes)


def _judged(
    model: Model, samples: AllSamples, evaluation: Evaluation, tolerance: Tolerance, answers: Sequence[Outputs]
) -> Measured:
    coarse = tuple(_coarse(evaluation, answers))
    broken = [name for name in sorted(evaluation.floats) if evaluation.outputs[name].nonfinite]
    worst = int(np.argmax([_finite(ratio) for ratio in evaluation.ratios]))
    sites, feed = Sites(model), widen_feeds(samples.feeds[worst])
    findings: list[Finding] = []
    if broken or not evaluation.verdict.met:
        culprits = find_culprits(sites, feed, tolerance.kinds)
        findings = [_breaks(name, evaluation, culprits) for name in broken]
        ratio = max(evaluation.ratios)
        findings = findings or [_steps(sites, samples, tolerance, answers, ratio) or _misses(evaluation, culprits)]
    for name in coarse[:_NAMED]:
        findings.append(_coarsely(name, evaluation, answers, find_culprits(sites, feed, tolerance.kinds, name)))
    inputs = [each for each in input_findings(input_effects(model, samples.feeds)) if each.severity != "info"]
    findings[0:0] = [each for each in inputs if each.rule == "HW312"]  # infinite where it is cast: all else follows
    findings += [each for each in inputs if each.rule != "HW312"]
    if not findings:
        ratio = max(evaluation.ratios)
        note = Note.of(NoteKind.FP16_KEEPS, count=len(samples.feeds), ratio=ratio)
        findings.append(finding("HW614", Where("model", str(model.path or "")), note, {"load": ratio}))
    return Measured(tuple(findings), coarse, max(evaluation.ratios), samples.notes)


def _finite(ratio: float) -> float:
    return ratio if np.isfinite(ratio) else float(np.finfo(np.float64).max)


def _breaks(name: str, evaluation: Evaluation, culprits: Culprits) -> Finding:
    count, nodes = evaluation.outputs[name].nonfinite, list(culprits.nodes)
    note = Note.of(NoteKind.FP16_BREAKS, name, count=count, nodes=nodes)
    return finding("HW611", Where("output", name), note, {"nodes": nodes, "nonfinite": count})


def _steps(
    sites: Sites, samples: AllSamples, tolerance: Tolerance, answers: Sequence[Outputs], ratio: float
) -> Finding | None:
    """Where quantisers make whole steps of any rounding, so that FP32 misses the tolerance as well as FP16."""
    moves = own_steps(sites, Emulator(), Question(tolerance), samples.feeds, answers)
    note = moves.note(ratio) if moves is not None else None
    if note is None:
        return None
    return finding("HW620", Where("model", str(sites.model.path or "")), note, {"load": note.values["ratio"]})


def _misses(evaluation: Evaluation, culprits: Culprits) -> Finding:
    name = evaluation.verdict.worst_output or next(iter(evaluation.outputs))
    error, ratio, nodes = evaluation.outputs[name].rel_l2, max(evaluation.ratios), list(culprits.nodes)
    inside: Note | str = ""
    if culprits.module:
        inside = Note.of(NoteKind.SHARE_OF_MODULE, culprits.module, share=culprits.of_module)
    note = Note.of(
        NoteKind.FP16_MISSES, name, error=error, ratio=ratio, nodes=nodes, share=culprits.share, inside=inside
    )
    numbers = {"error": error, "load": ratio, "nodes": nodes, "share": culprits.share, "module": culprits.module}
    return finding("HW612", Where("output", name), note, numbers)


def _coarse(evaluation: Evaluation, answers: Sequence[Outputs]) -> Iterator[str]:
    """Outputs so large that FP16 has whole numbers only: there a small relative error is one of several units."""
    for name in sorted(evaluation.floats):
        found = evaluation.outputs[name]
        if not found.nonfinite and _step(_top(name, answers)) > _COARSE and found.max_abs > _COARSE / 2:
            yield name


def _coarsely(name: str, evaluation: Evaluation, answers: Sequence[Outputs], culprits: Culprits) -> Finding:
    top, metrics, nodes = _top(name, answers), evaluation.outputs[name], list(culprits.nodes)
    step, change, error = _step(top), metrics.max_abs, metrics.rel_l2
    note = Note.of(NoteKind.FP16_COARSE, name, top=top, step=step, change=change, error=error, nodes=nodes)
    numbers = {"top": top, "step": step, "change": change, "error": error, "nodes": nodes}
    return finding("HW613", Where("output", name), note, numbers)


def _top(name: str, answers: Sequence[Outputs]) -> float:
    arrays = [np.abs(np.asarray(each[name], np.float64)) for each in answers if isinstance(each.get(name), np.ndarray)]
    return max((float(array[np.isfinite(array)].max(initial=0.0)) for array in arrays), default=0.0)


def _step(top: float) -> float:
    return float(np.spacing(np.float16(min(top, Format.FP16.max)))) if top < Format.FP16.max else 32.0
