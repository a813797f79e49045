"""Compares any two runners output by output: a model, a typed model under a profile, or saved outputs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from halfwise.backends import Backend, BackendOptions, BackendRecord
from halfwise.backends.named import installed_backend
from halfwise.backends.runner import BackendAnswers, BackendModel
from halfwise.backends.saved_files import holds_outputs
from halfwise.core.answers import suspects
from halfwise.core.contents import tensors_in
from halfwise.core.document import LEFT_OUT, Answer, Document, Documented, Left, Number, about
from halfwise.core.english import documented, say
from halfwise.core.english.outputs_told import outputs_told
from halfwise.core.errors import InputError
from halfwise.core.evaluation import Evaluation, SampleError, float_outputs, missing_output, sample_error
from halfwise.core.files.bindings import named
from halfwise.core.measures.blind import blind_notes, sees_nothing
from halfwise.core.measures.named import measure_named, spec_of, with_measure
from halfwise.core.metrics import Metrics, OutputMetric, Outputs, is_float
from halfwise.core.notes import Messages, Note, NoteKind
from halfwise.core.output_kinds import kind_notes
from halfwise.core.summary import Summary
from halfwise.core.tolerance import Bounds, Tolerance, Verdict
from halfwise.core.wording import counted
from halfwise.emulation.cached_walks import cached_walks
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.first_not_finite import lost_from
from halfwise.emulation.kept_walks import KeptWalks
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.emulation.stepper import Stepper
from halfwise.model.fp32_model import fp32_model, typed_notes
from halfwise.model.inputs.all_samples import AllSamples, UsedInputs, all_samples
from halfwise.model.inputs.rollout import Rollout, carried, rollout_of
from halfwise.model.inputs.rollout_growth import rollout_notes
from halfwise.model.inputs.rollout_windows import windows
from halfwise.model.mistyped import mistyped
from halfwise.model.model import Model, load_to_run
from halfwise.model.outputs.kinds import facts_of
from halfwise.model.outputs.settled import settled
from halfwise.model.outputs.understood import understand
from halfwise.precision.sites import Sites
from halfwise.verbs.runners import UNDERSTOOD, EmulatedRunner, Runner, SavedOutputs
from halfwise.verbs.samples_done import SamplesDone
from halfwise.verbs.saved_order import Mark, mark_of, order_note

__all__ = ["Verification", "VerifyDocument", "verify"]

Array = NDArray[Any]
Feed = Mapping[str, Array]


Runnable = str | Path | onnx.ModelProto | Model | Runner


class VerifyDocument(Document, frozen=True, tag="halfwise.verify/1"):
    """What `halfwise verify --json` prints: B judged by A, output by output."""

    status: Answer
    tolerance: Bounds
    inputs: UsedInputs
    outputs: Outputs
    notes: Sequence[str]
    messages: Messages = ()
    backend: BackendRecord | Left = LEFT_OUT
    profiles: Annotated[
        Mapping[str, Number] | Left,
        about("Error over allowed error where B was emulated; the worst counts."),
    ] = LEFT_OUT


@dataclass(frozen=True, repr=False)
class Verification(Documented):
    """The verdict on B, with A as the reference. `inputs` says where the samples come from."""

    tolerance: Tolerance
    verdict: Verdict
    outputs: Mapping[str, Metrics]
    floats: frozenset[str]  # the outputs that hold real numbers
    samples: int
    inputs: str
    notes: tuple[Note, ...] = ()
    record: BackendRecord | None = None  # what ran B, where that was a real backend
    by_profile: Mapping[str, float] = field(default_factory=dict)  # error over allowed error, where B was emulated

    @property
    def met(self) -> bool:
        return self.verdict.met

    def summary(self) -> Summary:
        """The verdict, and each output."""
        answer = "the tolerance is kept" if self.met else "the tolerance is missed"
        columns = ("output", "rel_l2", "max_abs", "cosine", "exact", "nonfinite")
        rows = tuple((name, m.rel_l2, m.max_abs, m.cosine, m.exact, m.nonfinite) for name, m in self.outputs.items())
        return Summary(
            f"{answer} on {counted(self.samples, 'input')}: {say(self.verdict.because)}", columns, rows, self.met
        )

    def document(self) -> VerifyDocument:
        return VerifyDocument(
            status="met" if self.met else "not-met",
            tolerance=self.tolerance.to_json(),
            inputs=UsedInputs(self.inputs, self.samples),
            outputs=outputs_told(self.outputs),
            **documented(self.notes),
            backend=LEFT_OUT if self.record is None else self.record,
            profiles=self.by_profile or LEFT_OUT,
        )


def verify(
    reference: Runnable,
    other: Runnable,
    inputs: str | Path | Iterable[Any] | None = None,
    *,
    tolerance: Sequence[str] | Tolerance = (),
    metric: OutputMetric | str | None = None,
    profile: str = "strict",
    backend: str | Backend | None = None,
    options: BackendOptions | None = None,
    rollout: int | None = None,
    feedback: str | Sequence[str] = (),
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Run both on every sample and judge the second by the first.

    Each is a model (a file, a ModelProto or a loaded Model), saved outputs (`.npz` files, one a sample, in the order
    of the samples; what Polygraphy's --save-outputs, trtexec's --exportOutput or --dumpRawBindingsToFile wrote), or
    any object with a method `run(index, feed)`. FP16 and BF16 tensors are widened to FP32 in the first model, and
    rounded under `profile` and under `wide` in the second; the worst counts. `inputs` are files or folders, or
    samples as dictionaries of arrays; none makes synthetic ones. With `backend`, the second is a model file that
    runs there for real; `options` say how. With `rollout`, the samples in
    order are the steps of a stream, and so many in a row take the state that the same model gave before: `feedback`
    names each as "OUTPUT=INPUT". `notify` gets the samples done and their total.
    """
    with cached_walks("verify", reference, other) as kept:
        done = SamplesDone(notify)
        made_of = partial(_runner, profile=profile, walked=done.walked, kept=kept, in_a_row=rollout is not None)
        judged = made_of(other) if backend is None else _on_backend(other, backend, options)
        tolerance, metric = with_measure(tolerance, metric)
        first = made_of(reference, widened=True)
        made = [each.model.output_names for each in (first, judged) if isinstance(each, (EmulatedRunner, BackendModel))]
        stream = rollout_of(rollout, feedback, made[0] if made else ())
        samples = _samples((first, judged), inputs, stream)
        emulated: Mapping[str, Runner] = judged.judges if isinstance(judged, EmulatedRunner) else {}
        walks = len(samples.feeds) if stream is not None else math.ceil(len(samples.feeds) / UNDERSTOOD)
        done.expect(len(samples.feeds), walks * (len(emulated) + isinstance(first, EmulatedRunner)))
        asked = _asked(first, samples.feeds, tolerance, metric, stream)
        return _verified(asked, first, judged, emulated, samples, stream, done)


def _verified(
    asked: _Asked,
    first: Runner,
    judged: Runner | BackendModel,
    emulated: Mapping[str, Runner],
    samples: AllSamples,
    stream: Rollout | None,
    done: SamplesDone,
) -> Verification:
    second = judged.answers(samples.feeds, stream) if isinstance(judged, BackendModel) else judged
    judges = emulated or {"": second}
    each: dict[str, list[SampleError]] = {name: [] for name in judges}
    floats: frozenset[str] = frozenset()
    values = finite = 0
    marks, blind = list[tuple[Mark, Mark]](), list[bool]()
    runs = {name: _answers(asked, judge, samples.feeds, stream) for name, judge in judges.items()}
    for index, pairs in enumerate(zip(*runs.values(), strict=True)):
        wanted = pairs[0][0]
        answers = dict(zip(runs, (named(answer, wanted) for _, answer in pairs), strict=True))
        own = [name for name in wanted if name not in asked.tolerance.inner]
        floats = float_outputs({name: wanted[name] for name in own})
        arrays = tensors_in(wanted[name] for name in own)
        values += sum(array.size for array in arrays)
        finite += sum(int(np.isfinite(array).sum()) if is_float(array.dtype) else array.size for array in arrays)
        missing = missing_output({name: wanted[name] for name in own}, list(answers.values()))
        if missing is not None:
            got = next(iter(answers.values()))
            raise InputError(
                f"the second has no output {missing!r}, which the first has; "
                + (f"its outputs are {', '.join(got)}" if got else "it has none")
            )
        if isinstance(first, SavedOutputs) or isinstance(second, SavedOutputs):
            marks.append((mark_of(wanted, own), mark_of(next(iter(answers.values())), own)))
        if asked.metric is not None:
            blind.append(sees_nothing(asked.metric, {name: wanted[name] for name in own}))
        for name, got in answers.items():
            each[name].append(sample_error(wanted, got, asked.metric, kinds=asked.tolerance.kinds))
        done.judged(index + 1)
    fixed = isinstance(first, EmulatedRunner) and settled(first.model)
    if not values and not fixed:
        raise InputError("the outputs of the first are empty for every input: nothing can be compared; give others")
    if not finite and not fixed:
        told = f"the outputs of the first hold no finite value for any input{_lost_from(first, samples)}"
        raise InputError(f"{told}: check {suspects(samples.notes)}")
    found = Evaluation(asked.tolerance, floats, tuple(error for errors in each.values() for error in errors))
    seen = {name: Evaluation(asked.tolerance, floats, tuple(errors)).ratios for name, errors in each.items()}
    ratios = {name: max(each) for name, each in seen.items()}
    near_zero = asked.tolerance.decided_by_floor(found.outputs)
    floors = (Note.of(NoteKind.OUTPUT_FLOOR, name, error=error) for name, error in near_zero.items())
    void = () if finite else (Note.of(NoteKind.NOTHING_FINITE),)
    worst = tuple(map(max, zip(*seen.values(), strict=True)))
    steps = () if stream is None else rollout_notes(stream, len(samples.feeds), worst)
    notes: tuple[Note, ...] = (
        *kind_notes(asked.tolerance.kinds, found.outputs),
        *floors,
        *void,
        *(() if asked.metric is None else blind_notes(asked.metric, blind)),
        *samples.notes,
        *steps,
    )
    if not found.verdict.met and (other := order_note(marks)) is not None:
        notes = (other, *notes)
    if isinstance(first, EmulatedRunner):
        notes = (*typed_notes(first.model), *notes)
    if isinstance(second, EmulatedRunner):
        notes = (*notes, *second.caveats)
    for each_model in _models((first, judged)):
        each_model.stamps.check()
    record = None
    if isinstance(second, BackendAnswers):
        notes, record = (*notes, *second.notes), second.done.record
    count, origin = len(samples.feeds), samples.origin
    profiles = ratios if isinstance(second, EmulatedRunner) and len(ratios) > 1 else {}
    bounded = asked.tolerance.floats_among(floats)
    return Verification(asked.tolerance, found.verdict, found.outputs, bounded, count, origin, notes, record, profiles)


@dataclass(frozen=True, eq=False)
class _Asked:
    """The question, and the first runner's answers as far as they are known."""

    tolerance: Tolerance
    metric: OutputMetric | None
    runner: Runner
    known: tuple[dict[str, Array], ...] = ()
    names: tuple[str, ...] = ()  # what of an answer judges; empty: all of it

    def reference(self, index: int, feed: Feed) -> dict[str, Array]:
        if index < len(self.known):
            return self.known[index]
        return self._judged(self.runner.run(index, feed))

    def references(self, feeds: Sequence[Feed]) -> Iterator[dict[str, Array]]:
        """Those of all samples."""
        left = feeds[len(self.known) :]
        yield from self.known
        if isinstance(self.runner, EmulatedRunner):
            yield from map(self._judged, self.runner.all(left))
        else:
            yield from (self.reference(index, feed) for index, feed in enumerate(left, len(self.known)))

    def _judged(self, answer: dict[str, Array]) -> dict[str, Array]:
        return {name: answer[name] for name in self.names} if self.names else answer


def _asked(
    first: Runner,
    feeds: Sequence[Feed],
    tolerance: Sequence[str] | Tolerance,
    metric: OutputMetric | None,
    stream: Rollout | None,
) -> _Asked:
    """Outputs of a model are understood from its first answers; saved ones are compared as they are."""
    if isinstance(tolerance, Tolerance):
        metric = metric or (measure_named(tolerance.measure) if tolerance.measure else None)
        if tolerance.uses_user_metric and metric is None:
            raise InputError("the tolerance bounds your own metric: name its function with --metric")
        return _Asked(tolerance, metric if tolerance.uses_user_metric else None, first)
    if isinstance(first, EmulatedRunner):
        facts = facts_of(first.model)
        first = first.watching(facts.inner)
        found = understand(facts, tolerance, metric, list(_first_answers(first, feeds, stream)))
        return _Asked(found.tolerance, metric, first, found.answers if stream is None else (), found.names)
    answer = first.run(0, feeds[0])
    user, measure = metric is not None, spec_of(metric)
    stated = Tolerance.parse(tolerance, answer, float_outputs(answer), user_metric=user, measure=measure)
    return _Asked(stated, metric, first, (answer,))


def _first_answers(first: EmulatedRunner, feeds: Sequence[Feed], stream: Rollout | None) -> Iterator[dict[str, Array]]:
    """To a few samples; steps of a stream have the state that the model itself gave, without which they may not run."""
    if stream is None:
        yield from first.all(feeds[:UNDERSTOOD])
        return
    steps = carried(stream, windows(feeds, stream.steps, stream.states)[0], lambda feed: first.run(0, feed))
    yield from (dict(answer) for _, answer in itertools.islice(steps, UNDERSTOOD))


def _answers(
    asked: _Asked, second: Runner, feeds: Sequence[Feed], stream: Rollout | None
) -> Iterator[tuple[dict[str, Array], Mapping[str, Array]]]:
    """Of both on every sample; with a stream on every step, each with the state that the same runner gave before."""
    if stream is None:
        each = second.all(feeds) if isinstance(second, EmulatedRunner) else map(second.run, itertools.count(), feeds)
        yield from zip(asked.references(feeds), each, strict=True)
        return
    for index, part in enumerate(windows(feeds, stream.steps, stream.states)):
        wanted = carried(stream, part, lambda feed: asked.reference(len(feeds), feed))
        if isinstance(second, BackendAnswers):
            start = index * stream.steps
            got: Iterable[Mapping[str, Array]] = second.done.outputs[start : start + stream.steps]
        else:
            got = (answer for _, answer in carried(stream, part, lambda feed: second.run(0, feed)))
        yield from zip((dict(answer) for _, answer in wanted), got, strict=True)


def _lost_from(first: Runner, samples: AllSamples) -> str:
    if not isinstance(first, EmulatedRunner):
        return ""
    return lost_from(Sites(first.model), Stepper(Emulator()), widen_feeds(samples.feeds[0]), samples.notes)


def _runner(
    source: Runnable,
    *,
    profile: str,
    walked: Callable[[int, int], None],
    kept: KeptWalks,
    in_a_row: bool,
    widened: bool = False,
) -> Runner:
    if isinstance(source, Runner):
        if hasattr(source, "get_outputs"):
            raise InputError("give an InferenceSession's file, and backend='ort-cpu' or 'ort-cuda' to run it there")
        return source
    if isinstance(source, (str, Path)) and holds_outputs(Path(source)):
        return SavedOutputs(Path(source))
    model = source if isinstance(source, Model) else load_to_run(source)
    if widened:
        model = fp32_model(model)
    elif (wrong := mistyped(model)) is not None:
        raise InputError(
            f"no runtime loads {model.path or 'the second model'}: ONNX defines no {wrong.op_type} with the types of "
            f"node {wrong.name!r}; convert it again, or give it to `halfwise fix`"
        )
    return EmulatedRunner(model, profile, walked=walked, kept=kept, in_a_row=in_a_row)


def _on_backend(source: Runnable, backend: str | Backend, options: BackendOptions | None) -> BackendModel:
    return BackendModel.of(source, installed_backend(backend, options) if isinstance(backend, str) else backend)


def _models(runners: Sequence[Runner | BackendModel]) -> list[Model]:
    return [runner.model for runner in runners if isinstance(runner, (EmulatedRunner, BackendModel))]


def _samples(runners: Sequence[Runner | BackendModel], inputs: Any, stream: Rollout | None) -> AllSamples:
    """What both are run on; saved outputs must have been computed from just these samples, in this order."""
    saved = [runner for runner in runners if isinstance(runner, SavedOutputs)]
    models = _models(runners)
    if len(saved) == len(runners):
        if inputs is not None:
            raise InputError("two sets of saved outputs are compared as they are: leave --inputs out")
        samples = AllSamples(({},) * len(saved[0].samples), "given", ())
    elif not models:
        feeds: list[Any] = [inputs] if isinstance(inputs, (str, Path, Mapping)) else list(inputs or ())
        if not feeds or not all(isinstance(feed, Mapping) for feed in feeds):
            raise InputError("with no model among the two, the inputs must be samples as dictionaries of arrays")
        samples = AllSamples(tuple(feeds), "given", ())
    elif saved and inputs is None and models[0].inputs:
        raise InputError(f"{saved[0].path} holds saved outputs: give the inputs that they were computed from")
    else:
        sizes = sizes_that_run(models[0], inputs)
        states = None if stream is None else stream.states
        samples = all_samples(models[0].inputs, inputs, most=1 << 30 if saved else None, sizes=sizes, states=states)
    if stream is not None:
        for runner in saved:
            raise InputError(f"--rollout: {runner.path} holds saved outputs, which take no state: give the model")
        for model in models:
            stream.check(model.inputs, model.output_names)
    for runner in saved:
        if len(runner.samples) != len(samples.feeds):
            raise InputError(
                f"{runner.path} holds {counted(len(runner.samples), 'saved output')} for "
                f"{counted(len(samples.feeds), 'different sample')}; "
                "save one file a sample, in the order of the samples"
            )
    return samples
