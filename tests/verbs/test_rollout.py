"""Many steps in a row, each with the state that the model itself came to: against a loop written here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from halfwise.backends import BackendRecord, BackendRun
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.core.reasons import Reason
from halfwise.model.inputs.rollout import rollout_of
from halfwise.model.inputs.rollout_growth import growth_note
from halfwise.model.model import load
from halfwise.precision.plan import read_plan
from halfwise.report.html.rollout import rollout_picture
from halfwise.report.html.write import write_report
from halfwise.verbs.bisect.run import bisect
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.gate import gate
from halfwise.verbs.runners import EmulatedRunner
from halfwise.verbs.verify import verify
from tests.support.command_line import CommandLine
from tests.support.messages import kinds, only
from tests.support.says import Says

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


def test_the_first_step_is_walked_as_the_last_is() -> None:
    """A text's first token may be as no other: here it alone leaves FP16's range, on its way through a square."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["squared"], "square"),
        helper.make_node("Sqrt", ["squared"], ["root"], "root"),
        helper.make_node("Add", ["sum_in", "root"], ["sum_out"], "add"),
        helper.make_node("Tanh", ["sum_out"], ["y"], "tanh"),
    ]
    names = ("x", "sum_in", "sum_out", "y")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in names]
    graph = helper.make_graph(nodes, "first", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    stream = frames(16, start=0.0)
    stream[0]["x"] = stream[8]["x"] = np.full((1, 4), 300.0, np.float32)
    result = fix(model, stream, rollout=8, feedback=STATE, tolerance=LOOSE_Y, repairs="none")
    assert result.met
    assert {each.name for each in result.plan.nodes if each.why is Reason.OVERFLOW} == {"square", "root"}


def test_one_step_alone_would_pass_what_a_rollout_fails() -> None:
    stream, asked = frames(80), {"tolerance": LOOSE_Y, "repairs": "none"}
    alone = fix(counter(), stream[:8], **asked)
    rolled = fix(counter(), stream, rollout=40, feedback=STATE, **asked)
    assert alone.met and not alone.plan.nodes
    assert rolled.met and [node.name for node in rolled.plan.nodes] == ["add"]
    assert rolled.samples.origin == "given"
    assert (len(rolled.samples.search), len(rolled.samples.validation)) == (1, 1)


def test_more_trajectories_are_asked_for_not_more_inputs() -> None:
    asked = {"tolerance": "*:rel_l2<=0.0008", "force": "op:*", "repairs": "none"}
    result = fix(counter(), frames(12, 200.0), rollout=4, feedback=STATE, **asked)
    (told,) = [note for note in result.notes if note.kind is NoteKind.UNSEEN_TRAJECTORIES]
    assert result.met and told.values["steps"] == 4 and told.values["wanted"] > 3
    assert f"about {told.values['wanted']} trajectories would carry it" in result.summary().headline


def test_errors_that_grow_are_told_with_their_growth() -> None:
    result = fix(counter(), frames(64), rollout=32, feedback=STATE, tolerance="*:rel_l2<=0.1", repairs="none")
    (grows,) = [note for note in result.notes if note.kind is NoteKind.ROLLOUT_GROWS]
    found = result.measured.rollout
    assert found is not None and found.growth == pytest.approx(1.0 + grows.values["growth"])
    assert grows.values["last"] > 10 * grows.values["first"]
    document = result.to_json()["rollout"]
    assert document["feedback"] == {"sum_out": "sum_in"} and len(document["fixed"]) == 32


def test_growth_far_below_the_allowed_error_is_no_news() -> None:
    """Of a measure such as the KL divergence, which begins at next to nothing."""
    assert growth_note([1e-66, 1e-30, 1e-5]) is None
    assert growth_note([1e-66, 1e-30, 0.5]) is not None


def test_the_growth_is_told_of_a_comparison_and_of_builds_too(tmp_path: Path) -> None:
    stream, asked = frames(64), {"rollout": 32, "feedback": STATE}
    parts = stream[:32], stream[32:]
    errors = np.max([relative(by_hand(part, np.float32), by_hand(part, np.float16)) for part in parts], axis=0)
    typed = fix(counter(), stream, out=tmp_path, force="op:*", repairs="none", tolerance="*:rel_l2<=1").typed
    assert typed is not None
    loose = ["sum_out:rel_l2<=0.001", "y:rel_l2<=1"]
    compared = verify(counter(), str(typed.path), stream, tolerance=loose, **asked)
    built = bisect(counter(), Honest(), stream, tolerance=loose, **asked)
    for result in (compared, built):
        told = only(result.notes, NoteKind.ROLLOUT_GROWS).values
        assert (told["first"], told["last"]) == pytest.approx((errors[0] / 0.001, errors[-1] / 0.001), rel=1e-2)
        assert told["steps"] == 32


def cache() -> onnx.ModelProto:
    """Appends its input to its state, and sums all of it with the weights of a mask as long."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], "grow", axis=1),
        helper.make_node("MatMul", ["mask", "present"], ["y"], "add"),
    ]
    shapes = {"x": [1, 1, 4], "past": [1, "n", 4], "mask": [1, 1, "m"], "present": [1, "m", 4], "y": [1, 1, 4]}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "cache", values[:3], values[3:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_steps_that_run_with_their_state_alone(tmp_path: Path) -> None:
    """A mask that is as long as the cache fits no cache but the one that the steps before have filled."""
    x, past = np.random.default_rng(3).normal(size=(12, 1, 1, 4)).astype(np.float32), np.zeros((1, 0, 4), np.float32)
    stream = [{"x": x[t], "past": past, "mask": np.ones((1, 1, t % 6 + 1), np.float32)} for t in range(12)]
    typed = fix(cache(), stream, out=tmp_path, rollout=6, feedback="present=past", tolerance="*:rel_l2<=0.1").typed
    assert typed is not None
    found = verify(cache(), typed.path, stream, rollout=6, feedback="present=past", tolerance=["*:rel_l2<=0.1"])
    assert found.met and found.samples == 12
    rounded = x.astype(np.float16).astype(np.float32)
    right, wrong = (np.concatenate([each[:6].cumsum(0), each[6:].cumsum(0)]) for each in (x, rounded))
    assert found.outputs["y"].max_abs == pytest.approx(np.abs(right - wrong).max(), rel=0.5)
    with pytest.raises(InputError, match="with input 2 of 12"):
        fix(cache(), stream)


def test_no_step_runs_twice_in_fp32() -> None:
    """Of four trajectories two are searched: FP32, FP16 and less rounding are two passes each, over all of them."""
    result = fix(counter(), frames(64, start=1.0), rollout=16, feedback=STATE, tolerance="*:rel_l2<=0.1")
    assert result.met and result.cost.model_runs == pytest.approx(6, abs=0.1)


def test_a_short_stream_goes_round_and_says_so() -> None:
    result = fix(counter(), frames(5, start=1.0), rollout=8, feedback=[STATE])
    assert NoteKind.ROLLOUT_AGAIN in kinds(result.notes) and NoteKind.ROLLOUT in kinds(result.notes)


def test_a_stream_starts_from_zeros_where_it_says_nothing_else() -> None:
    stream = [{"x": frame["x"]} for frame in frames(20)]
    zeros = [{**frame, "sum_in": np.zeros((1, 4), np.float32)} for frame in stream]
    given, left_out = (fix(counter(), each, rollout=10, feedback=STATE) for each in (zeros, stream))
    assert given.measured.rollout == left_out.measured.rollout


@pytest.mark.parametrize("batch", [1, "batch"])
def test_a_cache_that_a_stream_leaves_out_starts_empty(batch: int | str) -> None:
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], "grow", axis=1),
        helper.make_node("ReduceSum", ["present"], ["y"], "add"),
    ]
    sides = {"x": [batch, 1, 4], "past": [batch, "n", 4], "present": [batch, "m", 4], "y": [1, 1, 1]}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sides.items()]
    graph = helper.make_graph(nodes, "cache", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rows = 1 if batch == 1 else 3
    x = np.random.default_rng(3).uniform(1, 2, size=(12, rows, 1, 4)).astype(np.float32)
    found = fix(model, [{"x": each} for each in x], rollout=6, feedback="present=past")
    assert found.met and found.fixed["present"].max_abs == np.abs(x - x.astype(np.float16).astype(np.float32)).max()


def test_verify_rolls_both_models_on_their_own_states(tmp_path: Path) -> None:
    stream = frames(40)
    typed = fix(counter(), stream, out=tmp_path, force="op:*", repairs="none").typed
    assert typed is not None
    found = verify(counter(), str(typed.path), stream, rollout=40, feedback=STATE)
    worst = max(relative(by_hand(stream, np.float32), by_hand(stream, np.float16)))
    # The stream is too short for two trajectories: another one starts in its middle.
    assert found.outputs["sum_out"].rel_l2 >= worst * 0.999
    assert {NoteKind.ROLLOUT, NoteKind.ROLLOUT_AGAIN} <= set(kinds(found.notes))
    assert verify(counter(), str(typed.path), stream).outputs["sum_out"].rel_l2 < worst / 10


def test_bisect_rolls_every_build() -> None:
    stream = frames(80)
    found = bisect(counter(), Honest(), stream, rollout=40, feedback=STATE, tolerance=LOOSE_Y)
    assert [culprit.name for culprit in found.culprits] == ["add"]
    alone = bisect(counter(), Honest(), stream, tolerance=LOOSE_Y)
    assert alone.culprits == ()  # step by step nothing is wrong
    assert NoteKind.ROLLOUT in kinds(found.notes) and NoteKind.ROLLOUT not in kinds(alone.notes)


def test_a_star_stands_for_the_same_part_of_both_names(tmp_path: Path) -> None:
    """Of a decoder with a cache: two for each layer."""
    outputs = ["logits", "present.0.key", "present.0.value", "present.1.key", "present"]
    found = rollout_of(64, ["present.*.key=past.*.k", "present.0.value=past.0.v"], outputs)
    assert found is not None and found.feedback == (
        ("present.0.key", "past.0.k"), ("present.1.key", "past.1.k"), ("present.0.value", "past.0.v")
    )  # fmt: skip
    stream, asked = frames(16), {"rollout": 4, "feedback": "*_out=*_in"}
    typed = fix(counter(), stream, out=tmp_path, tolerance=LOOSE_Y, **asked).typed
    assert typed is not None
    assert verify(counter(), str(typed.path), stream, **asked).verdict.met
    assert NoteKind.ROLLOUT in kinds(bisect(counter(), Honest(), stream, tolerance=LOOSE_Y, **asked).notes)
    plan = read_plan(tmp_path / "model.plan.json")
    assert gate(replace(plan, rollout=None), counter(), stream, **asked).holds


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--feedback", STATE], "--rollout N"),
        (["--rollout", "8"], "--feedback OUTPUT=INPUT"),
        (["--rollout", "1", "--feedback", STATE], "from 2"),
        (["--rollout", "8", "--feedback", "sum_out"], "OUTPUT=INPUT"),
        (["--rollout", "8", "--feedback", "sum_*=sum_in"], "OUTPUT=INPUT"),
        (["--rollout", "8", "--feedback", "gone*=sum_*"], "no output 'gone*'"),
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
    with pytest.raises(InputError, match="has 1 dimension and the"):
        fix(model, frames(8), rollout=4, feedback="y=sum_in")


def test_a_plan_knows_its_rollout_and_the_gate_judges_by_it(tmp_path: Path) -> None:
    stream, asked = frames(80), {"tolerance": LOOSE_Y, "repairs": "none"}
    rolled = fix(counter(), stream, out=tmp_path, rollout=40, feedback=STATE, **asked)
    assert rolled.plan_path is not None
    plan = read_plan(rolled.plan_path)
    assert plan.rollout == rolled.plan.rollout and plan.rollout is not None and plan.rollout.steps == 40
    document = json.loads(rolled.plan_path.read_text())["rollout"]
    assert document == {"steps": 40, "feedback": {"sum_in": "sum_out"}}
    held = gate(plan, counter(), stream)
    assert held.holds and held.result is not None and held.result.measured.rollout is not None
    # Without its FP32 node every single step is right, and the trajectory is not.
    emptied = replace(plan, nodes=())
    assert not gate(emptied, counter(), stream).holds
    assert gate(replace(emptied, rollout=None), counter(), stream).holds
    assert not gate(replace(emptied, rollout=None), counter(), stream, rollout=40, feedback=STATE).holds
    again = fix(counter(), stream, plan=replace(emptied, rollout=None), rollout=40, feedback=STATE)
    assert not again.met


def test_a_typed_file_is_judged_as_typed_over_its_own_steps(tmp_path: Path) -> None:
    stream = frames(40)
    typed = fix(counter(), stream, out=tmp_path, force="op:*", repairs="none", tolerance="*:rel_l2<=1").typed
    assert typed is not None
    asked = {"tolerance": LOOSE_Y, "repairs": "none"}
    alone, rolled = fix(typed.path, stream, **asked), fix(typed.path, stream, rollout=40, feedback=STATE, **asked)
    first, last = (each.measured.typed["sum_out"].rel_l2 for each in (alone, rolled))
    assert last > 10 * first
    assert NoteKind.AS_TYPED_MISSES in kinds(rolled.notes) and NoteKind.AS_TYPED_MISSES not in kinds(alone.notes)


def test_saved_outputs_take_no_state(command_line: CommandLine, tmp_path: Path, says: Says) -> None:
    onnx.save(counter(), tmp_path / "m.onnx")
    (tmp_path / "inputs").mkdir()
    (tmp_path / "saved").mkdir()
    for index, frame in enumerate(frames(4)):
        np.savez(tmp_path / "inputs" / f"{index}.npz", **frame)
        np.savez(tmp_path / "saved" / f"{index}.npz", sum_out=frame["x"], y=frame["x"])
    asked = ("--inputs", tmp_path / "inputs", "--rollout", "2", "--feedback", STATE)
    ended = command_line("verify", tmp_path / "m.onnx", tmp_path / "saved", *asked)
    assert ended.code == 2
    says(ended.told)
    assert len(ended.told.strip().splitlines()) == 1


@pytest.mark.parametrize("feedback", [5, [5], {"sum_out": "sum_in"}])
def test_what_is_no_feedback_is_one_line(feedback: Any) -> None:
    for verb in (fix, lambda *given, **asked: verify(counter(), *given, **asked)):
        with pytest.raises(InputError, match="feedback"):
            verb(counter(), frames(8), rollout=4, feedback=feedback)


def test_a_backend_carries_the_state_too(tmp_path: Path) -> None:
    stream = frames(40)
    onnx.save(counter(), tmp_path / "m.onnx")
    found = verify(counter(), tmp_path / "m.onnx", stream, rollout=20, feedback=STATE, backend="ort-cpu")
    assert found.met and found.samples == 40


def test_the_report_draws_the_error_over_the_steps(tmp_path: Path) -> None:
    result = fix(counter(), frames(64), rollout=32, feedback=STATE, tolerance="*:rel_l2<=0.1", repairs="none")
    picture, found = rollout_picture(result), result.measured.rollout
    assert picture is not None and found is not None
    points = [tuple(map(float, point.split())) for point in picture.fixed.replace("L", "M").split("M") if point.strip()]
    assert [x for x, _ in points] == pytest.approx(np.linspace(0, 1, 32), abs=1e-4)
    heights = [y for _, y in points]  # a logarithm from the top: a line through two gives all others
    slope, start = np.polyfit(np.log10(found.fixed), heights, 1)
    assert slope < 0 and heights == pytest.approx(slope * np.log10(found.fixed) + start, abs=1e-3)
    assert picture.allowed == pytest.approx(start, abs=1e-3)
    page = write_report(result, tmp_path / "report.html").read_text(encoding="utf-8")
    assert picture.fixed in page and picture.plain in page
    assert rollout_picture(fix(counter(), frames(8), tolerance="*:rel_l2<=1")) is None


def test_the_written_model_is_run_with_the_state_that_it_gave_itself(tmp_path: Path) -> None:
    found = fix(counter(), frames(80, 20.0), rollout=20, feedback=STATE, out=tmp_path, tolerance=0.05, io_types="fp16")
    assert found.typed is not None and found.delivered is not None and found.delivered.verdict is not None
    session, errors = ort.InferenceSession(str(found.typed.path)), []
    for start in (20, 60):  # every second of the streams is held out
        stream = frames(80, 20.0)[start : start + 20]
        state, wanted = stream[0]["sum_in"], by_hand(stream, np.float32)
        for frame, exact in zip(stream, wanted, strict=True):
            given = {"x": frame["x"].astype(np.float16), "sum_in": state.astype(np.float16)}
            state, _ = session.run(["sum_out", "y"], given)
            errors += relative(exact[None], state.astype(np.float64)[None])
    assert found.delivered.outputs["sum_out"].rel_l2 == pytest.approx(max(errors), rel=1e-3)
    assert max(errors) > 3 * errors[0]
