"""Many steps in a row, each with the state that the model itself came to: against a loop written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from halfwise.backends import BackendRecord, BackendRun
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.model.model import load
from halfwise.verbs.bisect.run import bisect
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.verify import EmulatedRunner, verify
from tests.support.command_line import CommandLine
from tests.support.messages import kinds

Array = NDArray[Any]
STATE = "sum_out=sum_in"
LOOSE_Y = ["sum_out:rel_l2<=0.001", "y:rel_l2<=0.1"]


class Honest:
    """A backend that rounds every FP16 tensor of the model that it is given."""

    name, cautions = "honest", ()

    def run(self, model: Path, feeds: Sequence[Mapping[str, Array]]) -> BackendRun:
        runner = EmulatedRunner(load(model))
        outputs = tuple(runner.run(index, feed) for index, feed in enumerate(feeds))
        return BackendRun(outputs, BackendRecord("honest", "Honest", "1", device="none"))


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


def counter() -> onnx.ModelProto:
    """Adds its input to its state, and gives a tenth of it: FP16 stands still where its steps are wider than x."""
    nodes = [
        helper.make_node("Add", ["sum_in", "x"], ["sum_out"], "add"),
        helper.make_node("Mul", ["sum_out", "tenth"], ["y"], "scale"),
    ]
    tenth = helper.make_tensor("tenth", TensorProto.FLOAT, [], [0.1])
    shape = ("x", "sum_in", "sum_out", "y")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in shape]
    graph = helper.make_graph(nodes, "counter", values[:2], values[2:], [tenth])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def frames(count: int, start: float = 2000.0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(5)
    state = np.full((1, 4), start, np.float32)
    return [{"x": rng.uniform(0.2, 0.4, (1, 4)).astype(np.float32), "sum_in": state} for _ in range(count)]


def by_hand(stream: Sequence[dict[str, Array]], dtype: Any) -> Array:
    """The state after each step, in the arithmetic of `dtype`."""
    state, seen = stream[0]["sum_in"].astype(dtype), []
    for frame in stream:
        state = (state + frame["x"].astype(dtype)).astype(dtype)
        seen.append(state.astype(np.float64))
    return np.array(seen)


def relative(one: Array, other: Array) -> list[float]:
    return [float(np.linalg.norm(b - a) / np.linalg.norm(a)) for a, b in zip(one, other, strict=True)]


def test_each_step_takes_the_state_that_the_model_itself_gave() -> None:
    stream = frames(80)
    tolerance = "sum_out:rel_l2<=0.001"
    result = fix(
        counter(),
        stream,
        rollout=40,
        feedback=STATE,
        tolerance=[tolerance, "y:rel_l2<=1"],
        force="op:*",
        repairs="none",
    )
    parts = stream[:40], stream[40:]
    errors = [relative(by_hand(part, np.float32), by_hand(part, np.float16)) for part in parts]
    expected = np.max(errors, axis=0)
    found = result.measured.rollout
    assert found is not None
    np.testing.assert_allclose(found.fixed, expected / 0.001, rtol=1e-3)
    assert not result.met  # 40 steps of a third that FP16 loses, though no single step is off by more than half a unit


def test_one_step_alone_would_pass_what_a_rollout_fails() -> None:
    stream, asked = frames(80), {"tolerance": LOOSE_Y, "repairs": "none"}
    alone = fix(counter(), stream[:8], **asked)
    rolled = fix(counter(), stream, rollout=40, feedback=STATE, **asked)
    assert alone.met and not alone.plan.nodes
    assert rolled.met and [node.name for node in rolled.plan.nodes] == ["add"]
    assert rolled.samples.origin == "given"
    assert (len(rolled.samples.search), len(rolled.samples.validation)) == (1, 1)


def test_errors_that_grow_are_told_with_their_growth() -> None:
    result = fix(counter(), frames(64), rollout=32, feedback=STATE, tolerance="*:rel_l2<=0.1", repairs="none")
    (grows,) = [note for note in result.notes if note.kind is NoteKind.ROLLOUT_GROWS]
    found = result.measured.rollout
    assert found is not None and found.growth == pytest.approx(1.0 + grows.values["growth"])
    assert grows.values["last"] > 10 * grows.values["first"]
    document = result.to_json()["rollout"]
    assert document["feedback"] == {"sum_out": "sum_in"} and len(document["fixed"]) == 32


def test_a_short_stream_goes_round_and_says_so() -> None:
    result = fix(counter(), frames(5, start=1.0), rollout=8, feedback=[STATE])
    assert NoteKind.ROLLOUT_AGAIN in kinds(result.notes) and NoteKind.ROLLOUT in kinds(result.notes)


def test_a_stream_starts_from_zeros_where_it_says_nothing_else() -> None:
    stream = [{"x": frame["x"]} for frame in frames(20)]
    zeros = [{**frame, "sum_in": np.zeros((1, 4), np.float32)} for frame in stream]
    given, left_out = (fix(counter(), each, rollout=10, feedback=STATE) for each in (zeros, stream))
    assert given.measured.rollout == left_out.measured.rollout


def test_verify_rolls_both_models_on_their_own_states(tmp_path: Path) -> None:
    stream = frames(40)
    typed = fix(counter(), stream, out=tmp_path, force="op:*", repairs="none").typed
    assert typed is not None
    found = verify(counter(), str(typed.path), stream, rollout=40, feedback=STATE)
    worst = max(relative(by_hand(stream, np.float32), by_hand(stream, np.float16)))
    # The stream is too short for two trajectories: another one starts in its middle.
    assert found.outputs["sum_out"].rel_l2 >= worst * 0.999
    assert verify(counter(), str(typed.path), stream).outputs["sum_out"].rel_l2 < worst / 10


def test_bisect_rolls_every_build() -> None:
    stream = frames(80)
    found = bisect(counter(), Honest(), stream, rollout=40, feedback=STATE, tolerance=LOOSE_Y)
    assert [culprit.name for culprit in found.culprits] == ["add"]
    assert bisect(counter(), Honest(), stream, tolerance=LOOSE_Y).culprits == ()  # step by step nothing is wrong


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--feedback", STATE], "--rollout N"),
        (["--rollout", "8"], "--feedback OUTPUT=INPUT"),
        (["--rollout", "1", "--feedback", STATE], "from 2"),
        (["--rollout", "8", "--feedback", "sum_out"], "OUTPUT=INPUT"),
        (["--rollout", "8", "--feedback", "gone=sum_in"], "no output 'gone'"),
        (["--rollout", "8", "--feedback", "sum_out=gone"], "no input 'gone'"),
        (["--rollout", "8", "--feedback", STATE, "--feedback", "y=sum_in"], "fed by two"),
    ],
)
def test_what_cannot_be_rolled_is_refused_in_one_line(
    command_line: CommandLine, tmp_path: Path, arguments: list[str], told: str
) -> None:
    onnx.save(counter(), tmp_path / "m.onnx")
    ended = command_line("fix", tmp_path / "m.onnx", "--out", tmp_path / "out", *arguments)
    assert ended.code == 2 and told in ended.told
    assert not (tmp_path / "out").exists()


def test_a_state_of_another_rank_is_refused() -> None:
    model = counter()
    model.graph.output[1].type.tensor_type.shape.dim.pop()
    model.graph.node[1].op_type = "ReduceMax"
    model.graph.node[1].input.pop()
    model.graph.node[1].attribute.extend([helper.make_attribute("axes", [1]), helper.make_attribute("keepdims", 0)])
    with pytest.raises(InputError, match="dimensions"):
        fix(model, frames(8), rollout=4, feedback="y=sum_in")
