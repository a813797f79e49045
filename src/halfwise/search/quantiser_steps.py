"""How far a quantised model's answers move by themselves: a rounding before a quantiser may become a whole step of it.

The steps that other FP32 kernels take, or TF32, are as many as those that FP16 takes. Where they miss the tolerance
already, FP32 nodes that bring FP16 within it do so on these inputs and in this order of sums alone. A value that takes
the other step lay halfway between two: its answer is no further from the model before quantisation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.evaluation import evaluate
from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.ort import AnySession
from halfwise.emulation.segments import reads_of
from halfwise.emulation.shared import Recipe
from halfwise.emulation.streamed import answered, declared
from halfwise.model.families import STEPS
from halfwise.model.held_graphs import held_graphs
from halfwise.model.inputs.feed import Feed
from halfwise.model.ops import RANDOM
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.judge import Measured, Question, worst_of
from halfwise.search.run_counter import RunCounter

__all__ = [
    "MARGIN",
    "MOVED",
    "TF32",
    "Movement",
    "OwnMovement",
    "beyond_fp16",
    "has_quantisers",
    "own_movement",
    "own_steps",
]

MOVED = 2.0**-14  # of a value: an eighth of what TF32 rounds, a few times what another order of long sums changes
TF32 = 2.0**-11
DRAWS = 8  # of all inputs together: few values lie near half a step, others in each draw
MARGIN = 1.5  # more steps than TF32 takes are FP16's own

_NO_RANDOM_LIKE = 22  # the first opset whose RandomUniformLike ONNX Runtime does not run; seen with 1.32


def has_quantisers(sites: Sites) -> bool:
    """Whether something computed is quantised."""
    return any(
        node.op_type in STEPS and not node.domain and node.inputs[0] is not None and node.inputs[0].producer()
        for node in sites.model.nodes
    )


@dataclass(frozen=True)
class Movement:
    """The FP32 model, the samples that it runs on, and its answers."""

    sites: Sites
    emulator: Emulator
    question: Question
    feeds: Sequence[Feed]
    references: Sequence[dict[str, NDArray[Any]]]
    counter: RunCounter

    def measured(self, by: float, draws: int = 1) -> Measured:
        """The error once what enters the quantisers moves by so much: the worst of several draws, for each input."""
        model, emulator = self.sites.model, self.emulator
        written = emulator.write(Assignment(self.sites, {}))
        proto = onnx.ModelProto()
        proto.CopyFrom(written.proto)
        streams = emulator.streams(model)
        numbers = count()
        _move(proto.graph, by, model.opset(), (_Draw(each, 0 if streams else each) for each in numbers), set())
        values = declared(model) if streams else None
        recipe = Recipe(proto, tuple(written.weights), emulator.weights, values, emulator.device)
        session = recipe.session(emulator.walked, redraw=False)
        self.counter.add(draws * len(self.feeds))
        return worst_of([self._drawn(session) for _ in range(draws)])

    def _drawn(self, session: AnySession) -> Measured:
        wide = [widen_feeds(feed) for feed in self.feeds]
        answers = answered(session, [{name: feed[name] for name in session.input_names} for feed in wide])
        question = self.question
        return Measured.of(evaluate(list(self.references), answers, question.tolerance, question.metric), question)


@dataclass(frozen=True)
class OwnMovement:
    """Times the allowed error: what FP32 has once values move by `MOVED`, on these inputs and to expect of others; up
    to where FP16 is no worse than TF32."""

    fp32: float
    unseen: float
    as_tf32: float

    def note(self, ratio: float) -> Note | None:
        """What is to say of FP16's error, where it is no more than what FP32 comes to by itself."""
        if ratio > self.as_tf32:
            return None
        if 1.0 < self.fp32 < math.inf:
            return Note.of(NoteKind.QUANTISERS_MOVE, ratio=self.fp32, moved=MOVED)
        if self.as_tf32 > MARGIN:
            return Note.of(NoteKind.QUANTISERS_MOVE, ratio=self.as_tf32 / MARGIN, moved=TF32)
        return None


def own_movement(searched: Movement, given: Movement) -> OwnMovement:
    """Of the inputs searched, and of all that were given."""
    seen, tf32 = searched.measured(MOVED), given.measured(TF32, -(-DRAWS // len(given.feeds)))
    bounds = (bound for bound in (seen.unseen_bound, tf32.unseen_bound) if math.isfinite(bound))
    return OwnMovement(seen.ratio, seen.unseen_bound, _two_digits(MARGIN * max(bounds, default=0.0)))


def own_steps(
    sites: Sites,
    emulator: Emulator,
    question: Question,
    samples: Sequence[Mapping[str, NDArray[Any]]],
    answers: Sequence[Mapping[str, NDArray[Any]]],
) -> OwnMovement | None:
    """Where nothing is searched, and no runs are counted. None where nothing computed is quantised."""
    if not has_quantisers(sites):
        return None
    feeds = [Feed(index, sample) for index, sample in enumerate(samples)]
    movement = Movement(sites, emulator, question, feeds, [dict(answer) for answer in answers], RunCounter())
    return own_movement(movement, movement)


def beyond_fp16(movement: Movement, ratios: Sequence[float]) -> tuple[Feed, ...]:
    """The inputs on which FP16, whose errors are given, takes no more steps than TF32: FP32 nodes are not for them."""
    moved = movement.measured(TF32, DRAWS // 2).ratios
    told = zip(movement.feeds, ratios, moved, strict=True)
    return tuple(feed for feed, ratio, steps in told if ratio <= MARGIN * steps)


def _two_digits(value: float) -> float:
    """Rounded up, so that the tolerance that is told is the one that counts."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1) if value else 1.0
    return round(math.ceil(value / unit) * unit, 12)


@dataclass(frozen=True)
class _Draw:
    """What is drawn for one quantiser. Layers with one seed are spelled alike, and share a session of many draws."""

    number: int
    seed: int


def _move(graph: onnx.GraphProto, by: float, opset: int, draws: Iterator[_Draw], fixed: set[str]) -> None:
    """What is quantised but for weights, and what is made of them alone: no kernel moves these. `fixed` are known."""
    fixed |= {tensor.name for tensor in graph.initializer}
    nodes = list[onnx.NodeProto]()
    for node in graph.node:
        for body in held_graphs(node):
            _move(body, by, opset, draws, set(fixed))
        alone = fixed.issuperset(reads_of(node)) and node.op_type not in RANDOM
        fixed.update(node.output if alone else ())
        if node.op_type in STEPS and not node.domain and not alone:
            draw = next(draws)
            factor, moved = f"halfwise:factor{draw.number}", f"halfwise:moved{draw.number}"
            nodes += (_factors if opset < _NO_RANDOM_LIKE else _signs)(node.input[0], factor, by, draw.seed)
            nodes.append(helper.make_node("Mul", [node.input[0], factor], [moved]))
            node.input[0] = moved
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _factors(value: str, factor: str, by: float, seed: int) -> list[onnx.NodeProto]:
    around = dict[str, Any](low=1.0 - by, high=1.0 + by, seed=float(seed))
    return [helper.make_node("RandomUniformLike", [value], [factor], dtype=1, **around)]


def _signs(value: str, factor: str, by: float, seed: int) -> list[onnx.NodeProto]:
    """One of two factors, of the same mean square: a coin for each value, which Dropout draws."""
    away = by / math.sqrt(3.0)
    names = [f"{factor}:{each}" for each in ("half", "draws", "dropped", "coins", "up", "down")]
    half, draws, dropped, coins, up, down = names
    return [
        helper.make_node("Constant", [], [half], value_float=0.5),
        helper.make_node("Constant", [], [draws], value=helper.make_tensor("", onnx.TensorProto.BOOL, (), [True])),
        helper.make_node("Constant", [], [up], value_float=1.0 + away),
        helper.make_node("Constant", [], [down], value_float=1.0 - away),
        helper.make_node("Dropout", [value, half, draws], [dropped, coins], seed=seed),
        helper.make_node("Where", [coins, up, down], [factor]),
    ]
