"""What `bisect` was asked, and what follows from it before anything is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.backends import Backend, BackendOptions
from halfwise.core.contents import tensors_in
from halfwise.core.errors import InputError
from halfwise.core.evaluation import float_outputs
from halfwise.core.formats import Format
from halfwise.core.measures.named import measure_named
from halfwise.core.metric_identity import metric_identity
from halfwise.core.metrics import OutputMetric
from halfwise.core.notes import Note
from halfwise.core.own_code import code_identity
from halfwise.core.targets import Target
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.first_not_finite import told_where_not_finite
from halfwise.emulation.observed_ranks import with_observed_ranks
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.emulation.profiles import PROFILES, STRICT
from halfwise.emulation.stepper import Stepper
from halfwise.model.inputs.all_samples import AllSamples, all_samples
from halfwise.model.inputs.rollout import Rollout, carried
from halfwise.model.inputs.rollout_windows import windows
from halfwise.model.model import Model
from halfwise.model.outputs.kinds import facts_of, sized_anew
from halfwise.model.outputs.understood import Understood, understand
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import Plan
from halfwise.precision.sites import Sites
from halfwise.repair import check_repairs, reapplied
from halfwise.search.journal import Journal, digest
from halfwise.search.judge import Judge, Measured, Question
from halfwise.verbs.bisect.check import Checker
from halfwise.verbs.bisect.ranking import ranked

__all__ = ["JOURNAL", "UNRANKED", "Asked"]

Array = NDArray[Any]

JOURNAL = ".halfwise-bisect.jsonl"  # in the folder of results while a search runs
UNRANKED = "unranked"  # its entry: why the nodes are in the model's order


@dataclass(frozen=True, eq=False)
class Asked:
    given: Model
    told: tuple[Note, ...]  # of the file, where it is typed, or of its original
    backend: Backend | None
    inputs: Any
    out: Path | None
    folder: Path  # `out`, or one that goes away
    stated: Sequence[str] | Tolerance
    metric: OutputMetric | None
    checker: Checker | None
    plan: Plan | None
    builds: int | None
    rollout: Rollout | None
    options: BackendOptions
    notify: Callable[[str], None]

    @cached_property
    def samples(self) -> AllSamples:
        states = None if self.rollout is None else self.rollout.states
        if self.rollout is not None:
            self.rollout.check(self.given.inputs, self.given.output_names)
        return all_samples(self.given.inputs, self.inputs, sizes=sizes_that_run(self.given, self.inputs), states=states)

    @cached_property
    def feeds(self) -> list[dict[str, Any]]:
        """What FP32 is fed; each step of a rollout with the state that FP32 itself came to."""
        frames = [widen_feeds(feed) for feed in self.samples.feeds]
        if self.rollout is None:
            return frames
        parts, run = windows(frames, self.rollout.steps, self.rollout.states), self._runs(self.given)
        return [dict(feed) for part in parts for feed, _ in carried(self.rollout, part, run)]

    @cached_property
    def sites(self) -> Sites:
        return Sites(self.model)

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.folder / JOURNAL, self._identity(self.question))

    @cached_property
    def fitted(self) -> Plan | None:
        """What the plan says of this model, which may have other weights than the plan was made for."""
        return None if self.plan is None else self.plan.fitted(self.given)

    @cached_property
    def model(self) -> Model:
        """With the repairs of the plan."""
        if self.fitted is None:
            return self.given
        check_repairs(self.fitted.repairs, Target.parse(self.fitted.target))
        given = self.given
        if self.fitted.repairs:
            given, _ = with_observed_ranks(given, self.samples.feeds[:1], self.emulator)
        return reapplied(given, self.fitted.repairs)

    @property
    def kept(self) -> tuple[str, ...]:
        """What the plan keeps out of FP16."""
        return tuple(node.name for node in self.plan.nodes) if self.plan is not None else ()

    @cached_property
    def nodes(self) -> tuple[ir.Node, ...]:
        """What may be FP16: every free node but those that the plan keeps."""
        missing = next((name for name in self.kept if name not in self.model.node_by_name), None)
        if missing is not None:
            told = f"the plan names node {missing!r}, which the model does not have after the plan's repairs"
            raise InputError(f"{told}: run `halfwise fix` again for this model, or give the model of the plan")
        return tuple(site.node for site in self.sites.free if site.name not in set(self.kept))

    def planned(self) -> dict[ir.Node, Format]:
        """The plan's own nodes that are neither FP16 nor FP32."""
        nodes = self.plan.nodes if self.plan is not None else ()
        return {self.model.node_by_name[n.name]: n.format for n in nodes if n.format is not Format.FP32}

    def _run(self, model: Model) -> list[dict[str, Array]]:
        """The answers of a model on this machine's CPU, without TF32, to what FP32 is fed."""
        run = self._runs(model)
        return [run(feed) for feed in self.feeds]

    def _runs(self, model: Model) -> Callable[[Mapping[str, Any]], dict[str, Array]]:
        session = self.emulator.session(Assignment(Sites(model), {}))
        return lambda feed: session.run({name: feed[name] for name in session.input_names})

    @cached_property
    def _understood(self) -> Understood | None:
        """None where the tolerance is given as a whole, or a command of the user's judges what no backend ran."""
        if isinstance(self.stated, Tolerance) or (not self.stated and (self.plan or self.checker) is not None):
            return None
        facts = facts_of(self.given)
        return understand(facts, self.stated, self.metric, self._run(replace(self.given, watched=facts.inner)))

    @cached_property
    def references(self) -> list[dict[str, Array]]:
        """The FP32 answers of the model as given, and of the tensors inside it that judge."""
        return self._run(self.given) if self._understood is None else list(self._understood.answers)

    @cached_property
    def floats(self) -> frozenset[str]:
        floats = float_outputs({name: self.references[0][name] for name in self.given.output_names})
        return self._understood.tolerance.floats_among(floats) if self._understood is not None else floats

    @cached_property
    def lost(self) -> tuple[Note, ...]:
        """What is said where FP32 answers with nothing finite; refuses what says nothing at all."""
        sites = Sites(self.given)
        return told_where_not_finite(self.references, self.samples.notes, sites, Stepper(self.emulator), self.feeds[0])

    @cached_property
    def question(self) -> Question | None:
        """None where a command of the user's judges what no backend ran."""
        if self.checker is not None and not self.stated:
            return None if self.backend is None else Question(Tolerance.default())
        if self._understood is not None:
            return Question(self._understood.tolerance, self.metric)
        tolerance = self.stated if isinstance(self.stated, Tolerance) or self.plan is None else self.plan.tolerance
        assert isinstance(tolerance, Tolerance)
        if tolerance is not self.stated and self.fitted is not None and not self.fitted.sha256:
            tolerance = replace(tolerance, kinds=sized_anew(tolerance.kinds, self.references))
        tolerance.check_outputs(self.references[0])
        metric = self.metric or (measure_named(tolerance.measure) if tolerance.measure else None)
        if tolerance.uses_user_metric and metric is None:
            raise InputError("the plan's tolerance bounds your own metric: name its function with --metric")
        return Question(tolerance, metric)

    def _identity(self, question: Question | None) -> str:
        """What must be the same for earlier steps to count."""
        feeds = [
            f"{name} {array.dtype} {array.shape} {_content(array)}"
            for feed in self.samples.feeds
            for name in sorted(feed)
            for array in tensors_in([feed[name]])
        ]
        return digest(
            code_identity(),
            self.given.sha256,
            self.given.data_sha256,
            self.told,
            self.backend.name if self.backend is not None else "",
            self.options,
            self.rollout,
            question.tolerance.to_json() if question is not None else "",
            metric_identity(self.metric),
            self.checker.command if self.checker is not None else "",
            self.plan.text() if self.plan is not None else "",
            *feeds,
        )

    @property
    def io(self) -> Format:
        return self.plan.io_types if self.plan is not None else Format.FP32

    @cached_property
    def emulator(self) -> Emulator:
        name = self.backend.name if self.backend is not None else STRICT.name
        return Emulator(PROFILES.get(name, STRICT), in_a_row=self.rollout is not None)

    @cached_property
    def order(self) -> tuple[ir.Node, ...]:
        """The nodes by suspicion; a resumed search keeps the order it began with."""
        by_name = {node.name or "": node for node in self.nodes}
        known = self.journal.get("order", tuple[str, ...], lambda names: sorted(names) == sorted(by_name))
        if known is None:
            self.notify("ranking the nodes by emulation")
            feed = max(range(len(self.feeds)), key=lambda i: (self.emulated.ratios[i], -i))
            try:
                order = ranked(self.sites, Stepper(self.emulator), self.feeds[feed], self.nodes)
            except InputError as error:  # a node that does not run alone
                self.journal.put(UNRANKED, str(error))
                order = self.nodes
            known = tuple(node.name or "" for node in order)
            self.journal.put("order", known)
        return tuple(by_name[name] for name in known)

    @cached_property
    def emulated(self) -> Measured:
        """What the emulator says of the first build."""
        judge = Judge(self.sites, self.emulator, Question(Tolerance.default()), self.feeds)
        formats = {**dict.fromkeys(self.nodes, self.sites.fmt), **self.planned()}
        return judge.measure(Assignment(self.sites, formats, self.io))


def _content(array: Array) -> str:
    return digest(array.tolist() if array.dtype.kind == "O" else array.tobytes())
