"""`fix` on odd models and odd folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import halfwise
from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.precision.plan import read_plan
from halfwise.verbs.fix.fix import JOURNAL, fix
from tests.models import build
from tests.models.zoo import SHAPES
from tests.support.fixing import loads_and_checks
from tests.support.says import Says

# -- odd models -------------------------------------------------------------------------------------------------------


def small(op: str, elem_type: int = TensorProto.FLOAT) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"])],
        "odd",
        [helper.make_tensor_value_info("x", elem_type, [4])],
        [helper.make_tensor_value_info("y", elem_type, [4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("elem_type", [TensorProto.DOUBLE, TensorProto.INT64])
def test_a_model_without_fp32_tensors_is_handed_back(elem_type: int, tmp_path: Path) -> None:
    result = fix(small("Identity" if elem_type == TensorProto.INT64 else "Sqrt", elem_type), out=tmp_path)
    assert result.met and result.plan.nodes == () and result.sites.free == ()
    assert result.typed is not None
    loads_and_checks(result.typed.path)


def test_a_nan_that_fp32_also_has_is_no_error() -> None:
    feeds = [{"x": np.array([-1.0, 1.0, 2.0, 3.0 + i], np.float32)} for i in range(4)]
    result = fix(small("Sqrt"), feeds)
    assert result.met and result.fixed["y"].nonfinite == 0


def test_a_journal_of_another_search_is_not_used(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    (tmp_path / JOURNAL).write_text("not a journal\n")
    assert fix(zoo.model, zoo.inputs, out=tmp_path).met
    assert not (tmp_path / JOURNAL).exists()


def test_bad_input_leaves_no_folder(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    with pytest.raises(InputError, match="lacks 'x'"):
        fix(zoo.model, [{}], out=tmp_path / "never")
    with pytest.raises(InputError, match="no such output"):
        fix(zoo.model, zoo.inputs, out=tmp_path / "never", tolerance=["zz:rel_l2<=1"])
    assert not (tmp_path / "never").exists()


def test_inputs_that_leave_nothing_to_compare(tmp_path: Path, says: Says) -> None:
    zoo = SHAPES["healthy_mlp"]()
    hollow = [{name: array * np.float32("nan") for name, array in feed.items()} for feed in zoo.inputs[:3]]
    with says.raises(InputError):
        fix(zoo.model, hollow, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_one_tolerance_needs_no_list() -> None:
    zoo = SHAPES["healthy_mlp"]()
    assert fix(zoo.model, zoo.inputs[:3], tolerance="rel_l2<=0.02").plan.tolerance.to_json()["*:rel_l2"] == 0.02


def test_the_emitted_model_has_a_file_version_that_runtimes_read(tmp_path: Path) -> None:
    zoo = SHAPES["healthy_mlp"]()
    model = onnx.ModelProto()
    model.CopyFrom(zoo.model)
    model.ir_version = 14
    result = fix(model, zoo.inputs[:3], out=tmp_path)
    assert result.typed is not None
    assert onnx.load(result.typed.path).ir_version == 10


def test_a_plan_knows_the_weights_in_external_data(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    path = tmp_path / "m.onnx"
    onnx.save(zoo.model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    result = fix(path, zoo.inputs[:3], out=tmp_path / "out")
    assert result.plan_path is not None
    plan = read_plan(result.plan_path)
    assert Note.of(NoteKind.PLAN_OF_OTHER_WEIGHTS) not in fix(path, zoo.inputs[:3], plan=plan).notes
    data = bytearray((tmp_path / "m.data").read_bytes())
    data[-1] ^= 1
    (tmp_path / "m.data").write_bytes(data)
    result = fix(path, zoo.inputs[:3], plan=plan)
    assert Note.of(NoteKind.PLAN_OF_OTHER_WEIGHTS) in result.notes
    assert result.plan.sha256 == plan.sha256 and result.plan.data_sha256 != plan.data_sha256


def test_fp8_between_quantising_and_back_is_left_alone() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("QuantizeLinear", ["e", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    scale = [
        helper.make_tensor("s", TensorProto.FLOAT, [], [0.02]),
        helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]),
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], scale)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    result = fix(model, [{"x": np.linspace(0, i, 4, dtype=np.float32)} for i in range(1, 5)], tolerance="rel_l2<=1e-3")
    assert result.verdict.met


def test_inputs_that_get_an_empty_answer(tmp_path: Path, says: Says) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with says.raises(InputError):
        fix(model, [{"x": np.zeros(0, np.float32)}], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_report_is_written_from_python_too(tmp_path: Path) -> None:
    zoo = SHAPES["healthy_mlp"]()
    result = halfwise.fix(zoo.model, zoo.inputs[:2], out=tmp_path)
    assert result.report == tmp_path / "model.report.html" and result.report.is_file()
    assert result.to_json()["artifacts"]["report"] == str(result.report)
    assert halfwise.fix(zoo.model, zoo.inputs[:2]).report is None


@pytest.mark.parametrize("op", ["ReduceLogSum", "Exp"])
def test_inputs_that_are_empty_by_their_shape_are_answered(op: str) -> None:
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [2, 0]), ("y", None))
    ]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", ends[:1], ends[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    result = fix(proto, [{"x": np.zeros((2, 0), np.float32)}])
    assert result.met and not result.plan.nodes
    assert [note.kind for note in result.notes].count(NoteKind.NOTHING_FINITE) == 1
    judged = halfwise.verify(proto, proto, [{"x": np.zeros((2, 0), np.float32)}])
    assert judged.met and NoteKind.NOTHING_FINITE in [note.kind for note in judged.notes]


def test_an_output_of_nothing_but_zeros_is_no_proof() -> None:
    """A mask that these inputs never set: FP16 cannot be wrong about it, and may be about the next input."""
    proto = build.model(
        [build.node("Sub", "x limit", "above"), build.node("Relu", "above", "hit"), build.node("Exp", "x", "y")],
        [build.value("x", shape=(1, 8))],
        [build.value("y", shape=(1, 8)), build.value("hit", shape=(1, 8))],
        [build.weight("limit", np.float32(2.0))],
    )
    rng = np.random.default_rng(0)
    result = fix(proto, [{"x": rng.random((1, 8)).astype(np.float32)} for _ in range(4)])
    told = [note for note in result.notes if note.kind is NoteKind.ONLY_ZERO]
    assert result.met and [note.subject for note in told] == ["hit"]
    assert told[0].severity == "warning" and result.standing.rank == "caution"
    above = fix(proto, [{"x": 4.0 * rng.random((1, 8)).astype(np.float32)} for _ in range(4)])
    assert NoteKind.ONLY_ZERO not in [note.kind for note in above.notes]


def joints(seed: int = 0) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """Places as shares of a picture."""
    rng = np.random.default_rng(seed)
    proto = build.model(
        [build.node("MatMul", "x w", "h"), build.node("Sigmoid", "h", "y"), build.node("Reshape", "y shape", "joints")],
        [build.value("x", shape=(1, 16))],
        [build.value("joints", shape=(1, 17, 2))],
        [build.weight("w", rng.standard_normal((16, 34)).astype(np.float32)),
         build.weight("shape", np.array([1, 17, 2]))],
    )  # fmt: skip
    return proto, [{"x": rng.standard_normal((1, 16)).astype(np.float32)} for _ in range(4)]


def test_a_measure_that_sees_nothing_on_these_inputs_is_no_proof() -> None:
    """A radius of three pixels, and places between 0 and 1: any answer would do."""
    proto, given = joints()
    result, judged = fix(proto, given, metric="keypoints"), halfwise.verify(proto, proto, given, metric="keypoints")
    assert result.met and judged.met
    for notes in (result.notes, judged.notes):
        (told,) = [note for note in notes if note.kind is NoteKind.METRIC_TOO_COARSE]
        assert told.severity == "warning" and told.values["option"] == "keypoints:radius=0.01"
    assert result.standing.rank == "caution"


def test_a_measure_that_sees_something_is_taken_at_its_word() -> None:
    proto, given = joints()
    fine = "keypoints:radius=0.05,ordered=true"
    result, judged = fix(proto, given, metric=fine), halfwise.verify(proto, proto, given, metric=fine)
    for notes in (result.notes, judged.notes):
        assert not {note.kind for note in notes} & {NoteKind.METRIC_TOO_COARSE, NoteKind.METRIC_BLIND_IN_PART}


def test_inputs_on_which_a_function_of_the_users_sees_nothing_are_counted() -> None:
    def above(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
        high = one["joints"] > 0.999
        return float(np.abs(one["joints"] - other["joints"])[high].max(initial=0.0))

    proto, given = joints()
    given = [{"x": feed["x"] * (0.05 if number % 2 else 3.0)} for number, feed in enumerate(given)]
    result = fix(proto, given, metric=above, tolerance="metric<=0.01")
    (told,) = [note for note in result.notes if note.kind is NoteKind.METRIC_BLIND_IN_PART]
    assert (told.values["count"], told.values["total"]) == (2, 4) and result.standing.rank != "caution"
