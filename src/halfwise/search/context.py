"""What every attempt of one job shares: the emulators, the question, the FP32 answers, and the counter of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import Format
from halfwise.core.set_aside import set_aside
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.profiles import Profile
from halfwise.emulation.stepper import Stepper
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout import Trajectory, ends_of
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.choices import Choices
from halfwise.precision.sites import Sites
from halfwise.repair import Ranges, Repair, Rule, found_by, repaired
from halfwise.search.failures import Failures
from halfwise.search.judge import Judge, Measured, Memory, Question, over_all
from halfwise.search.overflows import Harmful, Headroom, Nodes, harmful_overflows, headroom, may_overflow, suspects
from halfwise.search.references import References
from halfwise.search.run_counter import RunCounter
from halfwise.search.speed import Speed, TimeTable, time_table
from halfwise.search.tensor_statistics import BESIDE, TensorStatistics, beside_one_another, merged, tensor_statistics
from halfwise.search.walks import CLOSE, Walks

__all__ = ["EvaluationContext"]

WALKED = 4  # samples in which overflows are looked for

Array = NDArray[Any]
_Asked = tuple[Model, tuple[tuple[str, Repair], ...]]  # repairs of a model, with the rule of each


@dataclass(frozen=True, eq=False)
class EvaluationContext:
    """Makes judges that know the FP32 answers already, so that nothing is run twice."""

    emulator: Emulator
    stepper: Stepper
    question: Question
    io: Format
    references: References
    counter: RunCounter
    also: tuple[Emulator, ...] = ()  # the same under other profiles that the target may meet
    failures: Failures = field(default_factory=Failures)
    speed: Speed | None = None  # what nodes cost, where that is their time
    finite: bool = False  # whether values stay finite that are so in FP32, however small the error
    walks: Walks = CLOSE
    _judges: dict[tuple[Sites, tuple[int, ...]], Judge] = field(default_factory=dict)
    _overflows: dict[tuple[Sites, tuple[int, ...], Nodes], frozenset[Nodes]] = field(default_factory=dict)
    _repaired: dict[_Asked, tuple[Model, tuple[Repair, ...]]] = field(default_factory=dict)
    _memories: dict[tuple[Model, Format], Memory] = field(default_factory=dict)
    _sites: dict[tuple[Model, Choices], Sites] = field(default_factory=dict)
    _found: dict[tuple[Rule, Model, frozenset[int], bool], tuple[Repair, ...]] = field(default_factory=dict)

    def sites(self, model: Model, choices: Choices) -> Sites:
        """Those of a model, made once."""
        key = (model, choices)
        if key not in self._sites:
            self._sites[key] = Sites(model, choices=choices)
        return self._sites[key]

    def apart(self, known: Mapping[int, Mapping[str, Array]] | None = None) -> EvaluationContext:
        """For many inputs that are asked about once, by the first profile: what is held of them ends with it. `known`
        are FP32's answers to some of them."""
        return replace(self, references=self.references.apart(known), also=(), _judges={}, _memories={})

    def repaired(self, model: Model, repairs: Sequence[tuple[Rule, Repair]]) -> tuple[Model, tuple[Repair, ...]]:
        """With the repairs made, and those that could be made. Of repairs that throw, one rule's loss is not the job's.
        Where the same could be made it is the same model, of which what was measured is known."""
        if not repairs:
            return model, ()
        made, key = self._repaired, _key(model, repairs)
        if key not in made:
            found = repaired(model, repairs, self.failures.rule)
            made[key] = made.setdefault(_key(model, [each for each in repairs if each[1] in found[1]]), found)
        return made[key]

    def found(self, rule: Rule, model: Model, ranges: Ranges, feeds: Sequence[Feed]) -> tuple[Repair, ...]:
        """Where a rule holds by what these samples showed. The same is asked before and after each repair that is
        tried, and by each search: it is worked out once."""
        key = rule, model, frozenset(feed.id for feed in feeds), ranges.ends
        if key not in self._found:
            self._found[key] = tuple(found_by(rule, model, ranges, self.failures.rule))
        return self._found[key]

    def judge(self, sites: Sites, feeds: Sequence[Feed]) -> Judge:
        """The judge of these samples; the same question gets the same judge, who remembers."""
        given = tuple(feed.id for feed in feeds)
        key = (sites, given)
        if key not in self._judges:
            answers = self.references.of(feeds)
            steps = [self.references.of(feed.steps) for feed in feeds if isinstance(feed, Trajectory)]
            self._judges[key] = Judge(
                sites,
                self.emulator,
                self.question,
                feeds,
                answers,
                self.also,
                self.counter,
                self.failures,
                self._memory(sites),
                steps,
            )
        return self._judges[key]

    def over_all(self, sites: Sites, samples: Samples, decision: Assignment) -> dict[str, Measured]:
        """The error over all samples, searched and held out, as each profile sees it."""
        searched = [] if set(samples.search) <= set(samples.validation) else [samples.search]
        given = [feed for feeds in (*searched, samples.validation) for feed in feeds]
        self.judge(sites, list(dict.fromkeys(given))).by_profile(decision)  # a session for all
        judges = [self.judge(sites, feeds) for feeds in (*searched, samples.validation) if feeds]
        seen = [judge.by_profile(decision) for judge in judges]
        return {name: over_all([each[name] for each in seen]) for name in seen[0]}

    def at_once(self, sites: Sites, feeds: Sequence[Feed], decision: Assignment) -> Measured | None:
        """Measure what will be asked later: of a large model each weight is read once for all samples. None of others,
        which are asked sample by sample."""
        return self.judge(sites, feeds).measure(decision) if self.emulator.streams(sites.model) else None

    def statistics(self, sites: Sites, feeds: Sequence[Feed]) -> list[TensorStatistics]:
        """What the tensors of a model hold over each sample; those of a large one go through it together."""
        memory = self._memory(sites)
        asked = {feed.id: feed for feed in feeds if feed.id not in memory.statistics}
        ends = {number: [widen_feeds(each) for each in ends_of(feed)] for number, feed in asked.items()}
        walks = iter(self._walks(sites, [each for several in ends.values() for each in several]))
        for number, several in ends.items():
            found = [next(walks) for _ in several]
            memory.statistics[number] = merged([each for each, _ in found])
            if len(several) == 1 and found[0][1]:  # not of two steps of a stream
                memory.answers[number] = set_aside(found[0][1])
            self.counter.add(len(several))
        return [memory.statistics[feed.id] for feed in feeds]

    def _walks(
        self, sites: Sites, feeds: Sequence[Mapping[str, Array]]
    ) -> Iterable[tuple[TensorStatistics, Mapping[str, Array]]]:
        if self.emulator.streams(sites.model):
            return beside_one_another(self.stepper, sites, feeds)
        return ((tensor_statistics(self.stepper, sites, feed), {}) for feed in feeds)

    def answers(self, sites: Sites) -> Mapping[int, Mapping[str, Array]]:
        """What a large model answers in FP32, by sample, where a walk that looked at its tensors told it."""
        return self._memory(sites).answers

    def seen(self, sites: Sites, feeds: Sequence[Feed]) -> TensorStatistics:
        """The same of one of several samples, of one that was walked for the search where there is one. With the first
        of a large model go those that are asked about next, wherever something may overflow."""
        memory = self._memory(sites)
        walked = [feed for feed in feeds if feed.id in memory.walked] or feeds[:1]
        anew = walked[0].id not in memory.statistics and self.emulator.streams(sites.model)
        return self.statistics(sites, feeds[:BESIDE] if anew and walked[0] is feeds[0] else walked[:1])[0]

    def looked_at(self, sites: Sites, feeds: Sequence[Feed]) -> tuple[Feed, ...]:
        """Those of which it is known what the tensors hold."""
        return tuple(feed for feed in feeds if feed.id in self._memory(sites).statistics)

    def _memory(self, sites: Sites) -> Memory:
        return self._memories.setdefault((sites.model, sites.fmt), Memory())

    def table(self, sites: Sites, feeds: Sequence[Feed]) -> TimeTable | None:
        """What each node takes, where time is what counts."""
        if self.speed is None or not self.speed.guides or not feeds:
            return None
        return time_table(self.speed, sites, self.statistics(sites, feeds[:1])[0].shapes, self.io)

    def overflows(self, sites: Sites, feeds: Sequence[Feed], kept: Nodes = frozenset()) -> frozenset[Nodes]:
        """Sets of nodes, each of which has to be in FP32 for no value to be lost inside, from some of the samples.

        Those of nodes in `kept` alone need not be told.

        A value that other inputs may be expected to lose counts as lost, from how values spread over these samples.
        """
        if not feeds or not may_overflow(sites, self.seen(sites, feeds)):
            return frozenset()
        walked = feeds[:WALKED]
        key = (sites, tuple(feed.id for feed in walked), kept)
        if key not in self._overflows:
            seen = self.statistics(sites, feeds)
            room = headroom(sites, seen)
            among = suspects(sites, seen, room, kept)
            if not among:
                return frozenset()
            ends = [widen_feeds(each) for feed in walked for each in ends_of(feed)]
            beside = BESIDE if self.emulator.streams(sites.model) else 1
            groups = [ends[start : start + beside] for start in range(0, len(ends), beside)]
            found = [each for group in groups for each in self._harmful(sites, group, room, kept, among)]
            self._overflows[key] = frozenset(nodes for each in found for nodes in each)
        return self._overflows[key]

    def _harmful(
        self,
        sites: Sites,
        feeds: Sequence[Mapping[str, Array]],
        room: Headroom,
        kept: Nodes,
        among: frozenset[ir.Value],
    ) -> Iterator[set[Nodes]]:
        """Those of samples that go through the model beside one another. A walk that was kept is not walked again, and
        counts nevertheless."""
        walked = list[Harmful]()

        def walk(number: int) -> list[Any]:
            if not walked:
                walked.extend(harmful_overflows(self.stepper, sites, feeds, self.io, room, kept, among))
            each = walked[number]
            return [[[node.name for node in nodes] for nodes in each.found], each.executed]

        def read(held: Any) -> tuple[set[Nodes], float]:
            told, executed = held
            return {frozenset(sites.model.node_by_name[name] for name in each) for each in told}, float(executed)

        spreads = [sorted((v.name or "", by) for v, by in each.items()) for each in (room.louder, room.quieter)]
        names = sorted(node.name or "" for node in kept)
        for number, feed in enumerate(feeds):
            key = ""
            if self.emulator.keeps(sites.model):
                key = self.emulator.walk_key(Assignment(sites, {}), feed, "overflows", self.io.value, spreads, names)
            found, executed = self.emulator.kept.document(key, partial(walk, number), read)
            self.counter.add(executed / max(len(sites.all), 1))
            yield found

    def required(self, sites: Sites, feeds: Sequence[Feed]) -> Nodes:
        """The nodes that stay in FP32 for that, where it is asked for and the user does not force them."""
        if not self.finite:
            return frozenset()
        return frozenset(node for needs in self.overflows(sites, feeds) if not needs & sites.forced for node in needs)

    def under(self, profile: Profile) -> EvaluationContext:
        """The same context where one more profile counts, instead of the one of that name."""
        others = tuple(each for each in self.also if each.profile.name != profile.name)
        return replace(self, also=(*others, self.emulator.under(profile)), _judges={})


def _key(model: Model, repairs: Sequence[tuple[Rule, Repair]]) -> _Asked:
    return model, tuple((rule.id, repair) for rule, repair in repairs)
