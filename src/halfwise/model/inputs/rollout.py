"""Models with a state: several steps in a row, in which each takes what the step before gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.core.wording import counted
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.rollout_windows import windows
from halfwise.model.inputs.samples import Samples

__all__ = [
    "Rollout",
    "Trajectory",
    "carried",
    "chained",
    "ends_of",
    "executions",
    "lockstep",
    "pairs_of",
    "rollout_of",
    "steps_of",
    "told_of",
    "trajectories",
    "trajectory",
]

Array = NDArray[Any]
Arrays = Mapping[str, Array]
MOST_STEPS = 10_000
_OF_VARIANTS = {NoteKind.ONE_SAMPLE, NoteKind.ONE_CONSTANT_SAMPLE}


@dataclass(frozen=True)
class Rollout:
    """`feedback`: pairs of an output and the input that takes it in the next step."""

    steps: int
    feedback: tuple[tuple[str, str], ...]

    def check(self, specs: Sequence[InputSpec], outputs: Sequence[str]) -> None:
        """Refuse names that the model does not have."""
        inputs = [spec.name for spec in specs]
        for output, state in self.feedback:
            if output not in outputs:
                raise InputError(f"--feedback {output}={state}: the model has no output {output!r}: {_list(outputs)}")
            if state not in inputs:
                raise InputError(f"--feedback {output}={state}: the model has no input {state!r}: {_list(inputs)}")

    @property
    def states(self) -> frozenset[str]:
        """The inputs that a step takes from the step before."""
        return frozenset(state for _, state in self.feedback)


@dataclass(frozen=True, eq=False)
class Trajectory(Feed):
    """A feed of many steps; as one feed it is the last of them, with the state that FP32 had come to."""

    steps: tuple[Feed, ...] = field(kw_only=True)
    rollout: Rollout = field(kw_only=True)

    __eq__ = object.__eq__
    __hash__ = object.__hash__


def ends_of(feed: Arrays) -> tuple[Arrays, ...]:
    """What of a feed is walked node by node: a stream's first token may be as no other, and its state grows."""
    return (feed.steps[0], feed.steps[-1]) if isinstance(feed, Trajectory) else (feed,)


def rollout_of(steps: Any, feedback: Any, outputs: Sequence[str] = ()) -> Rollout | None:
    """As a user writes it: a number of steps, and OUTPUT=INPUT for every state, as one text or a list of them.

    A * stands for the same part of both names, in each of the model's `outputs` that it fits.
    """
    feedback = [feedback] if isinstance(feedback, str) else feedback
    if not isinstance(feedback, (list, tuple)) or not all(isinstance(text, str) for text in feedback):
        raise InputError(f"feedback {feedback!r}: give a text such as 'state_out=state_in', or a list of such texts")
    if steps is None:
        if feedback:
            raise InputError(f"--feedback {feedback[0]}: give the number of steps, too (--rollout N)")
        return None
    if isinstance(steps, bool) or not isinstance(steps, int) or not 2 <= steps <= MOST_STEPS:
        raise InputError(f"--rollout {steps}: give a number of steps from 2 to {MOST_STEPS:,}")
    if not feedback:
        raise InputError("--rollout needs the state: --feedback OUTPUT=INPUT, for every state that the model has")
    pairs = [pair for text in feedback for pair in pairs_of(text, outputs)]
    states = [state for _, state in pairs]
    for state in states:
        if states.count(state) > 1:
            raise InputError(f"--feedback: input {state!r} is fed by two outputs")
    return Rollout(steps, tuple(pairs))


def pairs_of(text: str, outputs: Sequence[str]) -> list[tuple[str, str]]:
    """Outputs and the inputs that take them."""
    parts = [part.strip() for part in text.split("=")]
    if len(parts) != 2 or not all(parts) or {part.count("*") for part in parts} not in ({0}, {1}):
        raise InputError(
            f"--feedback {text}: write OUTPUT=INPUT, as in state_out=state_in, or with a * in both, as in "
            "present.*=past_key_values.*"
        )
    output, state = parts
    fits = re.compile("(.+)".join(map(re.escape, output.split("*"))))
    found = [
        (name, state.replace("*", match[1])) for name in outputs if "*" in output and (match := fits.fullmatch(name))
    ]
    return found or [(output, state)]


def carried(
    rollout: Rollout, steps: Sequence[Arrays], run: Callable[[Arrays], Arrays]
) -> Iterator[tuple[Arrays, Arrays]]:
    """Each step as `run` meets it, with the state that it gave itself, and its answer."""
    state: dict[str, Array] = {}
    for step in steps:
        feed = {**step, **state}
        answer = run(feed)
        state = _next(rollout, answer, step)
        yield feed, answer


def chained(rollout: Rollout | None, feeds: Sequence[Arrays], run: Callable[[int, Arrays], Arrays]) -> Iterator[Arrays]:
    """The answers to all feeds in their order; with a rollout, so many in a row have the state that `run` gave."""
    numbers = count()
    if rollout is None:
        yield from map(run, numbers, feeds)
        return
    for start in range(0, len(feeds), rollout.steps):
        part = feeds[start : start + rollout.steps]
        yield from (answer for _, answer in carried(rollout, part, lambda feed: run(next(numbers), feed)))


def lockstep(
    rollout: Rollout, parts: Sequence[Sequence[Arrays]], run: Callable[[Sequence[Arrays]], Sequence[Arrays]]
) -> list[list[Arrays]]:
    """All parts side by side, a step of each in one call, for what starts slowly; the answers part by part."""
    states: list[dict[str, Array]] = [{} for _ in parts]
    answers: list[list[Arrays]] = [[] for _ in parts]
    for step in range(rollout.steps):
        given = run([{**part[step], **state} for part, state in zip(parts, states, strict=True)])
        for index, answer in enumerate(given):
            answers[index].append(answer)
            states[index] = _next(rollout, answer, parts[index][step])
    return answers


def trajectories(
    samples: Samples, rollout: Rollout, run: Callable[[Arrays], Arrays]
) -> tuple[Samples, dict[int, Arrays]]:
    """The samples in order are the steps of a stream, each of whose parts starts with the state given in its first.

    `run` answers as FP32 does, whose states stand in the steps; what it gave is told, by the number of the feed. Half
    of the trajectories are held out. A stream that is too short for two is read from its start again.
    """
    frames = _in_order(samples)
    made: list[Trajectory] = []
    answers: dict[int, Arrays] = {}
    number = 0
    for window in windows(frames, rollout.steps, rollout.states):
        found, told = trajectory(rollout, window, run, number)
        made.append(found)
        answers.update(told)
        number = found.id + 1
    notes = [
        *(note for note in samples.notes if note.kind not in _OF_VARIANTS),
        *told_of(rollout, len(made), len(frames)),
    ]
    origin = "given" if samples.origin == "derived" else samples.origin
    held_out = made[1::2] or made
    kind = "derived" if len(made) == 1 else origin
    return Samples(tuple(made[0::2]), tuple(held_out), kind, tuple(notes)), answers


def trajectory(
    rollout: Rollout, window: Sequence[Arrays], run: Callable[[Arrays], Arrays], number: int
) -> tuple[Trajectory, dict[int, Arrays]]:
    """One, with what `run` gave, by the number of the feed: they are numbered from `number`, the trajectory last."""
    fed = [
        (Feed(number + index, dict(feed)), answer) for index, (feed, answer) in enumerate(carried(rollout, window, run))
    ]
    last, answer = fed[-1]
    found = Trajectory(last.id + 1, last.arrays, steps=tuple(feed for feed, _ in fed), rollout=rollout)
    return found, {**{feed.id: told for feed, told in fed}, found.id: answer}


def told_of(rollout: Rollout, count: int, frames: int) -> Iterator[Note]:
    """What is judged, and whether the stream is too short for it."""
    yield Note.of(NoteKind.ROLLOUT, count=count, steps=rollout.steps, states=sorted(rollout.states))
    if frames < 2 * rollout.steps or count < 2:
        yield Note.of(NoteKind.ROLLOUT_AGAIN, frames=frames, steps=rollout.steps)


def steps_of(feeds: Sequence[Feed]) -> tuple[tuple[Feed, ...], Rollout | None]:
    """What a model runs for them, one after the other, and how the steps of a stream follow one another."""
    steps = tuple(step for feed in feeds for step in (feed.steps if isinstance(feed, Trajectory) else (feed,)))
    return steps, next((feed.rollout for feed in feeds if isinstance(feed, Trajectory)), None)


def executions(feeds: Sequence[Feed]) -> int:
    """How often a model runs for them."""
    return len(steps_of(feeds)[0])


def _in_order(samples: Samples) -> list[Feed]:
    """The samples as they were given: every second one was held out."""
    if samples.origin == "derived":  # one was given, and the others are variants of it
        return list(samples.search)
    order: list[Feed] = []
    for index in range(max(len(samples.search), len(samples.validation))):
        order += [*samples.search[index : index + 1], *samples.validation[index : index + 1]]
    return order


def _next(rollout: Rollout, answer: Arrays, step: Arrays) -> dict[str, Array]:
    return {name: _like(answer[output], step[name], output, name) for output, name in rollout.feedback}


def _like(array: Array, before: Array, output: str, state: str) -> Array:
    """A state in the type of the input that takes it, which has its rank."""
    given = np.asarray(array)
    if given.ndim != before.ndim:
        raise InputError(
            f"--feedback {output}={state}: the output has {counted(given.ndim, 'dimension')} and the input "
            f"{before.ndim}: they are not one state"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return given.astype(before.dtype)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
