"""How many inputs like those given miss since a choice between near equals turns, of as many as would show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.measures.measure import Measure
from halfwise.core.notes import Note, NoteKind
from halfwise.core.set_aside import set_aside
from halfwise.emulation.emulate import widen_feeds
from halfwise.model.inputs.as_taken import as_taken
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.other_streams import other_streams
from halfwise.model.inputs.rollout import Trajectory, executions, trajectory
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Decision
from halfwise.search.held_out import Decided
from halfwise.search.near_choices import TRIALS, wavering
from halfwise.search.run_counter import Untried
from halfwise.search.variants import JUDGED, in_order, varied
from halfwise.verbs.fix.prepare import Prepared

__all__ = ["Turned", "turned_choices"]

Array = NDArray[Any]

LONG = 64  # steps of a stream of which as many are run as of single inputs


@dataclass(frozen=True)
class Turned:
    """`missed`: the ratios that are too large, of so many inputs. `steps`: of each that is a stream."""

    node: ir.Node
    missed: Sequence[float]
    inputs: int
    steps: int = 0

    @property
    def bound(self) -> float:
        return max(self.missed)

    def told(self, most: float) -> Note:
        """`most`: the largest ratio that is told."""
        count, inputs, steps, bound = len(self.missed), self.inputs, self.steps, min(self.bound, most)
        name, op = self.node.name or "", self.node.op_type
        if steps:
            return Note.of(NoteKind.UNSEEN_STREAMS, name, count=count, inputs=inputs, steps=steps, bound=bound, op=op)
        return Note.of(NoteKind.UNSEEN_CHOICES, name, count=count, inputs=inputs, bound=bound, op=op)


def turned_choices(prepared: Prepared, decided: Decided, decision: Decision, known: tuple[Feed, ...]) -> Turned | None:
    """None where none misses, and where no number that a choice compares has an error. A function of the user's is
    asked about none of them: it may know the inputs given alone."""
    context, given = prepared.context, in_order(decided.samples)
    missing = _missing(given)
    own = context.question.own_metric
    if missing <= 0 or (own is not None and not isinstance(own, Measure)):
        return None
    streams = [feed for feed in given if isinstance(feed, Trajectory)]
    if not streams and decided.samples.origin != "given":
        return None
    node = wavering(decision, context.emulator, given[0], context.counter)
    runs = 2 * missing * executions(given) // len(given)
    if node is None or not context.counter.free(runs, Untried.VARIANTS):
        return None
    near = _streams(prepared, decided, decision, streams) if streams else _inputs(prepared, decided, decision, known)
    found: list[float] = []
    for ratios in near:
        found += [ratio * prepared.relaxed for ratio in ratios]
        if streams and len(found) >= JUDGED and any(not ratio <= 1.0 for ratio in found):
            break  # a stream is many runs, and it is known that others miss
    missed = [ratio for ratio in found if not ratio <= 1.0]
    return Turned(node, missed, len(found), streams[0].rollout.steps if streams else 0) if missed else None


def _missing(given: Sequence[Feed]) -> int:
    """Inputs beside those given; of long streams fewer, each of which meets more choices."""
    steps = executions(given) // len(given)
    return max(min(TRIALS, TRIALS * LONG // steps), JUDGED) - len(given)


def _inputs(
    prepared: Prepared, decided: Decided, decision: Decision, known: tuple[Feed, ...]
) -> Iterator[Sequence[float]]:
    """The ratios of inputs near those given. Of large inputs few are held at a time."""
    given = in_order(decided.samples)
    missing = _missing(given)
    prepared.context.counter.check_more(missing * (2 + len(prepared.context.also)))
    prepared.request.notify("running inputs near those given")
    sources = [given[index % len(given)] for index in range(missing)]
    for start in range(0, missing, JUDGED):
        apart = prepared.context.apart()
        some = varied(sources[start : start + JUDGED], (*given, *known), apart.references, seed=TRIALS + start)
        yield apart.judge(decided.sites, some).measure(decision.assignment).ratios if some else ()


def _streams(
    prepared: Prepared, decided: Decided, decision: Decision, given: Sequence[Trajectory]
) -> Iterator[Sequence[float]]:
    """The ratios of other streams. As many are held at a time as were given."""
    prepared.request.notify("running other streams of the same tokens")
    context, rollout = prepared.context, given[0].rollout
    tokens = [spec.name for spec in prepared.request.model.inputs if spec.most > 1]
    streams = other_streams(given, tokens, _missing(given), rng=np.random.default_rng(TRIALS))
    number = 1 + max(feed.id for feed in decided.samples.all)
    while some := list(islice(streams, len(given))):
        right, made = _right(prepared), list[Trajectory]()
        known = dict[int, Mapping[str, Array]]()
        for steps in some:
            taken = [as_taken(Feed(0, step), context.references.interface) for step in steps]
            stream, answers = trajectory(rollout, taken, right, number)
            made.append(stream)
            known.update(answers)
            number = stream.id + 1
        yield context.apart(known).judge(decided.sites, made).measure(decision.assignment).ratios


def _right(prepared: Prepared) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
    """What FP32 gives, step by step."""
    session = prepared.context.emulator.session(Assignment(prepared.sites, {}))

    def run(feed: Mapping[str, Array]) -> Mapping[str, Array]:
        prepared.context.counter.add(1)
        widened = widen_feeds(feed)
        return set_aside(session.run({name: widened[name] for name in session.input_names}))

    return run
