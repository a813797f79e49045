"""Outputs are understood before they are judged: mixed units, near zero, selected rows, classes that FP32 decided."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.core.output_kinds import OutputKind, Reading
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.model.model import load
from halfwise.precision.plan import read_plan
from halfwise.search.places import Uncomparable
from halfwise.search.run_counter import Untried
from halfwise.verbs.bisect.run import bisect
from halfwise.verbs.fix import plain_choice
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.mostly_fp32 import mostly_fp32
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.gate import gate
from halfwise.verbs.stages import stages
from halfwise.verbs.verify import verify
from tests.models.build import model as build
from tests.models.build import node, value, weight
from tests.models.outputs import detr_head, keypoints, nms_detector, picker, scorer, segmenter
from tests.support.messages import kinds, only

Array = NDArray[Any]
PLAIN = ["*:rel_l2<=0.01", "*:exact>=0.999"]  # stated, so that every output is one vector


def kind_of(result: FixResult, output: str) -> OutputKind:
    (found,) = [kind for kind in result.plan.tolerance.kinds if kind.output == output]
    return found


def by_onnxruntime(model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, dict(feed)), strict=True)) for feed in feeds]


@pytest.mark.parametrize("by_concat", [False, True])
def test_slices_in_other_units_are_judged_apart(by_concat: bool) -> None:
    model, feeds = picker(by_concat=by_concat)
    blind = fix(model, feeds, tolerance=PLAIN)
    assert blind.fp16_verdict.met  # the indices hide the probabilities
    result = fix(model, feeds)
    kind = kind_of(result, "picks")
    assert kind.reading is Reading.PARTS
    assert [(part.start, part.stop) for part in kind.parts] == [(0, 1), (1, 4)]
    assert not result.fp16_verdict.met
    assert (result.fp16_verdict.worst_output, result.fp16_verdict.part) == ("picks", "[:, 1:4]")
    assert result.fp16_verdict.value > 0.1
    assert result.met
    assert result.plan.repairs or result.plan.nodes
    assert only(result.notes, NoteKind.OUTPUT_IN_PARTS).subject == "picks"


def test_probabilities_are_not_split_and_not_relative_to_a_millionth() -> None:
    model, feeds = scorer(-14.0)
    blind = fix(model, feeds, tolerance=PLAIN)
    assert blind.plan.nodes  # bought to hold a millionth
    result = fix(model, feeds)
    assert kind_of(result, "score").floor.norm == 1.0
    assert result.met
    assert result.plan.nodes == ()
    assert only(result.notes, NoteKind.OUTPUT_FLOOR).values["error"] > 0.01
    usual = fix(*scorer(0.0))
    assert NoteKind.OUTPUT_FLOOR not in kinds(usual.notes)  # it did not decide


def test_a_sample_far_below_the_usual_size_is_judged_by_the_floor() -> None:
    model, feeds = picker(64)
    result = fix(model, feeds)
    index, _ = kind_of(result, "picks").parts
    sizes = [np.sqrt(np.mean(each["picks"][:, :1].astype(np.float64) ** 2)) for each in by_onnxruntime(model, feeds)]
    assert index.floor.rms == pytest.approx(0.1 * np.sqrt(np.mean(np.square(sizes))), rel=1e-4)
    assert index.floor.rms == float(f"{index.floor.rms:.5g}")  # more digits hang on the number of threads


def holds_place_by_place(model: onnx.ModelProto, feeds: Any) -> bool:
    """Whether plain FP16 gives each row in its place; lists of other lengths cannot be compared at all."""
    try:
        return fix(model, feeds, tolerance=PLAIN).fp16_verdict.met
    except Uncomparable:
        return False


def test_rows_that_swap_are_matched() -> None:
    for (model, feeds), head in ((keypoints(), "points"), (nms_detector(), "rows"), (nms_detector(100), "padded")):
        assert not holds_place_by_place(model, feeds)
        result = fix(model, feeds)
        assert kind_of(result, head).reading is Reading.ROWS
        assert result.met
        assert result.plan.nodes == ()
        assert only(result.notes, NoteKind.OUTPUT_ROWS).values["outputs"][0] == head


def test_what_enters_a_selection_is_judged_and_not_delivered() -> None:
    model, feeds = detr_head()
    result = fix(model, feeds)
    assert {kind.output: kind.reading for kind in result.plan.tolerance.kinds} == {
        "boxes": Reading.ROWS,
        "scores": Reading.ROWS,
        "labels": Reading.ROWS,
        "list": Reading.SELECTED_FROM,
    }
    assert kind_of(result, "labels").together == ("boxes", "scores", "labels")
    assert set(result.fixed) == {"boxes", "scores", "labels", "list"}
    assert {bound.key for bound in result.plan.tolerance.bounds} == {"*:rel_l2", "*:exact", "boxes:found"}


def test_the_error_of_what_enters_is_that_of_the_tensor() -> None:
    """The watched tensor, made an output by hand, has the error that the result states."""
    model, feeds = detr_head()
    result = fix(model, feeds)
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.append(onnx.helper.make_tensor_value_info("list", onnx.TensorProto.FLOAT, None))
    again = fix(shown, feeds, tolerance=PLAIN, repairs="none")
    assert result.fp16["list"].rel_l2 == pytest.approx(again.fp16["list"].rel_l2, rel=1e-6)


def test_a_class_counts_where_fp32_decided_it() -> None:
    tied = fix(*segmenter(tied=True))
    assert tied.met
    assert tied.plan.nodes == ()
    assert not fix(*segmenter(tied=True), tolerance=PLAIN).fp16_verdict.met
    model, feeds = segmenter(tied=False)
    clear = fix(model, feeds)
    stated = fix(model, feeds, tolerance=PLAIN)
    assert kind_of(clear, "classes").decided_by == ("logits",)
    assert clear.fp16["classes"].exact == stated.fp16["classes"].exact < 1.0


def test_what_the_user_states_is_judged_as_stated() -> None:
    model, feeds = detr_head()
    result = fix(model, feeds, tolerance=["labels:exact>=0", "scores:rel_l2<=0.02"])
    assert [kind.output for kind in result.plan.tolerance.kinds] == ["boxes", "list"]
    assert kind_of(result, "boxes").together == ("boxes",)
    assert fix(model, feeds, tolerance=PLAIN).plan.tolerance.kinds == ()
    tighter = fix(model, feeds, tolerance="0.5%")
    assert tighter.plan.tolerance.to_json() == {"*:rel_l2": 0.005, "*:exact": 0.999, "boxes:found": 0.95}
    assert len(tighter.plan.tolerance.kinds) == 4
    found = fix(model, feeds, tolerance="boxes:found>=0.5")
    assert found.plan.tolerance.to_json() == {"boxes:found": 0.5, "*:rel_l2": 0.01, "*:exact": 0.999}
    assert len(found.plan.tolerance.kinds) == 4


def test_a_plan_keeps_how_its_outputs_are_judged(tmp_path: Any) -> None:
    model, feeds = detr_head()
    made = fix(model, feeds, out=tmp_path)
    assert made.plan_path is not None
    plan = read_plan(made.plan_path)
    assert plan.tolerance == made.plan.tolerance
    again = fix(model, feeds, plan=plan)
    assert again.plan.tolerance == made.plan.tolerance
    assert again.fixed == made.fixed
    typed = onnx.load(tmp_path / "model.fp16.onnx", load_external_data=False)
    assert [output.name for output in typed.graph.output] == ["boxes", "scores", "labels"]
    older = made.plan.to_json()
    del older["output_kinds"]
    (tmp_path / "older.json").write_text(json.dumps(older), encoding="utf-8")
    assert read_plan(tmp_path / "older.json").tolerance == Tolerance(made.plan.tolerance.bounds)


def test_a_ready_measure_judges_and_is_kept(tmp_path: Any) -> None:
    model, feeds = detr_head()
    result = fix(model, feeds, tolerance="10%", metric="boxes", out=tmp_path)
    assert result.met
    assert result.plan.tolerance.to_json() == {"*:metric": 0.1}
    assert (result.verdict.because.kind, result.verdict.because.subject) == (NoteKind.MEASURED_BY, "boxes")
    assert result.plan_path is not None
    plan = read_plan(result.plan_path)
    assert plan.tolerance.measure == "boxes"
    again = fix(model, feeds, plan=plan)  # without naming it again
    assert again.verdict == result.verdict
    assert gate(plan, model, feeds).holds
    stated = fix(model, feeds, tolerance="boxes:threshold=0.4=0.5%")
    assert stated.plan.tolerance.measure == "boxes:threshold=0.4"
    assert stated.plan.tolerance.to_json() == {"*:metric": 0.005}


def test_verify_reads_outputs_as_fix_does(tmp_path: Any) -> None:
    model, feeds = nms_detector()
    fixed = fix(model, feeds, out=tmp_path)
    assert fixed.typed is not None
    found = verify(model, fixed.typed.path, feeds)
    assert found.met
    assert {kind.output: kind.reading for kind in found.tolerance.kinds}["rows"] is Reading.ROWS
    assert 0.9 < found.outputs["rows"].found <= 1.0
    assert NoteKind.OUTPUT_MATCHED in kinds(found.notes)  # what the second selects from is not known
    assert found.outputs.keys() == {output.name for output in model.graph.output}
    assert not verify(model, fixed.typed.path, feeds, tolerance=PLAIN).met
    assert verify(model, fixed.typed.path, feeds, tolerance="boxes=10%").met
    picks, samples = picker(128)
    plain = fix(picks, samples, tolerance=PLAIN, out=tmp_path / "plain")
    assert plain.typed is not None
    blind = verify(picks, plain.typed.path, samples)
    assert not blind.met
    assert blind.verdict.part == "[:, 1:4]"


def test_bisect_reads_outputs_as_fix_does() -> None:
    model, feeds = detr_head()
    found = bisect(model, "ort-cpu", feeds)
    assert found.tolerance is not None
    assert {kind.output for kind in found.tolerance.kinds} == {"boxes", "scores", "labels", "list"}


@pytest.mark.parametrize("made", [picker, partial(scorer, -14.0), nms_detector, partial(segmenter, tied=True, side=16),
                                  detr_head, keypoints])  # fmt: skip
@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9])
def test_stages_reads_outputs_as_fix_does(made: Callable[[], tuple[onnx.ModelProto, Any]], cut: float) -> None:
    """Wherever a model is cut: in front of what selects, chooses or squashes, too."""
    model, feeds = made()
    sizes = [node.output[0] for node in model.graph.node]
    whole = stages(model, feeds, cut=[sizes[int(cut * (len(sizes) - 1))]]).whole.verdict
    asked = fix(model, feeds).fp16_verdict
    assert (whole.worst_output, whole.metric, whole.part) == (asked.worst_output, asked.metric, asked.part)
    assert whole.value == pytest.approx(asked.value, abs=1e-6)


def test_logits_beside_their_classes_are_judged_as_stated() -> None:
    """The tensor that decides is an output itself, and the user bounds it."""
    model, feeds = segmenter(tied=True, side=16)
    model.graph.output.append(onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, 4, 16, 16]))
    result = fix(model, feeds, tolerance="logits:max_abs<=0.1")
    assert result.met
    assert kind_of(result, "classes").inner == ()
    assert set(result.fixed) == {"classes", "logits"}


def test_no_measure_is_offered_where_the_inputs_are_lost_already() -> None:
    made = build([node("Mul", "x k", "h"), node("Sqrt", "h", "y")], [value("x", shape=(64,))],
                       [value("y", shape=(64,))], [weight("k", np.float32(1e-5))])  # fmt: skip
    given = [{"x": np.random.default_rng(seed).uniform(1e4, 3e5, 64).astype(np.float32)} for seed in range(2)]
    result = fix(made, given, io_types="fp16")
    assert not result.met and NoteKind.MOST_FOR_MEASURE not in {note.kind for note in result.notes}


@pytest.mark.parametrize(
    ("shape", "axis", "advice"),
    [((2, 16), 1, ["text"]), ((2, 4, 16), 2, ["text"]), ((2, 16, 4, 4), 1, ["mask", "text"])],
)
def test_a_measure_for_classes_fits_what_they_are_of(shape: tuple[int, ...], axis: int, advice: list[str]) -> None:
    """Codes and tokens lie in rows; only a map has areas, which a mask's overlap counts."""
    nodes = [node("MatMul", "x w", "h"), node("ArgMax", "h", "codes", axis=axis, keepdims=0)]
    weights = [weight("w", np.random.default_rng(1).standard_normal((shape[-1], shape[-1])).astype(np.float32))]
    chosen = tuple(size for at, size in enumerate(shape) if at != axis)
    made = build(nodes, [value("x", shape=shape)], [value("codes", onnx.TensorProto.INT64, chosen)], weights)
    given = [{"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)} for seed in range(2)]
    result = fix(made, given, keep="op:MatMul")
    assert list(only(result.notes, NoteKind.MOST_FOR_MEASURE).values["advice"]) == advice


@pytest.mark.parametrize(
    ("shape", "axis", "advice"),
    [
        ((8, 16), -1, ["logits"]),
        ((2, 4, 16), 2, ["text", "logits"]),
        ((2, 16, 4, 4), 1, ["mask"]),
        ((2, 4, 16), 1, ["boxes", "mask", "logits", "text", "audio", "image", "embedding"]),
        ((2, 17, 3), 1, ["keypoints"]),
        ((2, 17, 4), 1, ["boxes", "mask", "logits", "text", "audio", "image", "embedding"]),
    ],
)
def test_a_measure_for_scores_of_classes_is_offered_first(shape: tuple[int, ...], axis: int, advice: list[str]) -> None:
    nodes = [node("MatMul", "x w", "h"), node("Softmax", "h", "p", axis=axis), node("Identity", "p", "y")]
    weights = [weight("w", np.random.default_rng(1).standard_normal((shape[-1], shape[-1])).astype(np.float32))]
    made = build(nodes, [value("x", shape=shape)], [value("y", shape=shape)], weights)
    given = [{"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)} for seed in range(2)]
    result = fix(made, given, keep="op:MatMul")
    assert list(only(result.notes, NoteKind.MOST_FOR_MEASURE).values["advice"]) == advice


def advised(model: onnx.ModelProto, output: str) -> list[str]:
    """The measures that are offered where most stays in FP32 for an output whose values are compared."""
    verdict = SimpleNamespace(met=False, worst_output=output)
    measured: Any = SimpleNamespace(input_findings=(), verdict=verdict, fp16_verdict=verdict)
    arithmetic: Any = SimpleNamespace(pinned=0.0, kept=0.97, built=0.0, most_pinned=None, most_built=None)
    (told,) = mostly_fp32(load(model), Tolerance.default(), measured, arithmetic, near=False)
    return list(told.values["advice"])


@pytest.mark.parametrize("shape", [("batch", 1), (8,), ()])
def test_of_a_number_for_each_input_only_the_user_knows_how_wrong_it_may_be(shape: tuple[int | str, ...]) -> None:
    """As regressors have it: it is no box, mask, text, sound or picture."""
    made = build([node("Identity", "x", "price")], [value("x", shape=shape)], [value("price", shape=shape)], [])
    assert advised(made, "price") == ["PKG.MOD:FN"]


@pytest.mark.parametrize(("scores", "known"), [((1, 9), True), ((1, 9, 20), True), ((1, 8), False)])
def test_boxes_are_known_by_the_scores_beside_them(scores: tuple[int, ...], known: bool) -> None:
    nodes = [node("Identity", "x", "boxes"), node("Identity", "s", "scores")]
    ends = [value("boxes", shape=(1, 9, 4)), value("scores", shape=scores)]
    made = build(nodes, [value("x", shape=(1, 9, 4)), value("s", shape=scores)], ends)
    assert (advised(made, "boxes") == ["boxes"]) == known


def chooser(op: str) -> onnx.ModelProto:
    """The largest of eight, which a product makes; as a number, so that its place is the answer."""
    made = {"ArgMax": "place", "TopK": "best place"}[op]
    given = {"ArgMax": "h", "TopK": "h one"}[op]
    nodes = [node("MatMul", "x w", "h"), node(op, given, made, axis=1), node("Cast", "place", "y", to=1)]
    weights = [weight("w", np.eye(8, dtype=np.float32)), weight("one", np.array([1]))]
    return build(nodes, [value("x", shape=(1, 8))], [value("y", shape=(1, 1))], weights)


@pytest.mark.parametrize("op", ["ArgMax", "TopK"])
def test_the_choice_between_near_equals_that_costs_the_nodes_is_named(op: str) -> None:
    """Between 1 and 2 FP16 has steps of 2^-10: of 1.0001 and 1.0003 it makes equals, of which the first is taken."""
    result = fix(chooser(op), tied())
    told = only(result.notes, NoteKind.CHOICE_TURNS)
    assert result.met and told.subject == f"n_{'place' if op == 'ArgMax' else 'best'}"
    assert [told.values[key] for key in ("op", "changed", "total", "count", "inputs")] == [op, 1, 3, 1, 3]
    assert told.values["apart"] == pytest.approx(0.0002, rel=1e-2)


def test_no_choice_is_named_where_none_turns() -> None:
    given = [{"x": (np.linspace(0.1, 0.8, 8)[None] + 0.01 * number).astype(np.float32)} for number in range(3)]
    result = fix(chooser("ArgMax"), given, keep="op:MatMul")
    kinds = {note.kind for note in result.notes}
    assert NoteKind.MOST_FOR_MEASURE in kinds and NoteKind.CHOICE_TURNS not in kinds


def tied() -> list[dict[str, Any]]:
    """Of the second input FP16 makes two of the eight equal."""
    given = [{"x": (np.linspace(0.1, 0.8, 8)[None] + 0.01 * number).astype(np.float32)} for number in range(3)]
    given[1]["x"][0, 2], given[1]["x"][0, 5] = 1.0001, 1.0003
    return given


def test_a_budget_of_runs_leaves_the_choices_out_and_says_so() -> None:
    told = {}
    for most in (8, 60):
        result = fix(chooser("ArgMax"), tied(), max_runs=most)
        spent = [note.values["untried"] for note in result.notes if "untried" in note.values]
        told[most] = NoteKind.CHOICE_TURNS in kinds(result.notes), any(Untried.CHOICES in each for each in spent)
    assert told[60] == (True, False) and told[8] in [(False, True)]


def test_a_model_that_plain_fp16_does_not_run_is_answered_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs end where a size or a place follows from a number that was lost."""

    def refuse(*_: Any) -> None:
        raise InputError("node 'n_g' by itself: index out of range")

    monkeypatch.setattr(plain_choice, "answered", refuse)
    result = fix(chooser("ArgMax"), tied())
    assert result.met and NoteKind.CHOICE_TURNS not in kinds(result.notes)


def test_entries_that_a_mask_hides_are_equals_however_they_are_ranked() -> None:
    """Minus infinity beside minus infinity: nothing lies between."""
    nodes = [node("MatMul", "x w", "h"), node("Add", "h mask", "m"), node("TopK", "m all", "best place", axis=1),
             node("Cast", "place", "y", to=1)]  # fmt: skip
    mask = np.where(np.arange(8) < 4, -np.inf, 0.0).astype(np.float32)
    weights = [weight("w", np.eye(8, dtype=np.float32)), weight("mask", mask), weight("all", np.array([6]))]
    made = build(nodes, [value("x", shape=(1, 8))], [value("y", shape=(1, 6))], weights)
    given = tied()
    given[1]["x"][0, 6] = 1.0002
    for note in fix(made, given).notes:
        assert note.kind is not NoteKind.CHOICE_TURNS or np.isfinite(note.values["apart"])


@pytest.mark.parametrize(
    ("near", "met", "told"), [(True, True, ["MOST_FOR_NEAR"]), (False, True, []), (True, False, [])]
)
def test_what_inputs_near_those_given_ask_for_is_told_as_theirs(near: bool, met: bool, told: list[str]) -> None:
    """Of a function of the user's, for which there is no other measure to offer."""
    own = Tolerance((Bound.of("*", "metric", 0.01),))
    verdict = SimpleNamespace(met=met, worst_output="y")
    measured: Any = SimpleNamespace(input_findings=(), verdict=verdict, fp16_verdict=verdict)
    arithmetic: Any = SimpleNamespace(pinned=0.0, kept=0.97, built=0.0, most_pinned=None, most_built=None)
    found = mostly_fp32(load(chooser("ArgMax")), own, measured, arithmetic, near)
    assert [note.kind.name for note in found] == told
