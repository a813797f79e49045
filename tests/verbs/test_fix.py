"""The main job end to end on models of known behaviour: what it keeps, writes, says and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import halfwise
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.model.model import load
from halfwise.precision.plan import Plan, PlannedNode, read_plan
from halfwise.verbs.fix.fix import JOURNAL, fix
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.verify import verify
from tests.models.zoo import SHAPES, ZooModel, detr_head, encoder
from tests.support.messages import kinds


def float_types(path: Path) -> set[int]:
    """The float types of the weights and casts of a typed model."""
    graph = onnx.load(path).graph
    wanted = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}
    casts = {a.i for node in graph.node if node.op_type == "Cast" for a in node.attribute if a.name == "to"}
    return ({weight.data_type for weight in graph.initializer} | casts) & wanted


def loads_and_checks(path: Path) -> None:
    onnx.checker.check_model(str(path), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def solved(zoo: ZooModel, out: Path, **options: object) -> FixResult:
    """Fixed within the model's own tolerance; an independent comparison on inputs that fix never saw agrees.

    The zoo's inputs grow, and some take turns; those given span the range and hold every kind.
    """
    last = len(zoo.inputs) - 1
    given = [feed for i, feed in enumerate(zoo.inputs) if i % 4 < 2 or i == last]
    unseen = [feed for i, feed in enumerate(zoo.inputs) if not (i % 4 < 2 or i == last)]
    result = fix(zoo.model, given, out=out, tolerance=[f"rel_l2<={zoo.tolerance}"], **options)  # type: ignore[arg-type]
    assert result.met and result.verdict.ratio <= 1
    assert result.typed is not None
    loads_and_checks(result.typed.path)
    compared = verify(zoo.model, result.typed.path, unseen, tolerance=[f"rel_l2<={zoo.tolerance}"])
    assert compared.met, compared.verdict
    return result


# -- models of known behaviour ----------------------------------------------------------------------------------------


def test_an_encoder_whose_norms_overflow(tmp_path: Path) -> None:
    zoo = encoder(2, seq=16)
    result = solved(zoo, tmp_path, repairs=("none",))
    assert not result.fp16_verdict.met and result.fp16["logits"].rel_l2 > 0.5
    assert 0 < len(result.plan.nodes) <= len(zoo.known_good) and result.plan.repairs == ()
    overflowing = [node for node in result.plan.nodes if node.why == "overflow"]
    for node in overflowing:
        assert node.reason and max(node.numbers.get("max_abs", 0), node.numbers.get("input_max_abs", 0)) > 65504
    assert float_types(result.typed.path) >= {TensorProto.FLOAT16}  # type: ignore[union-attr]


def test_a_healthy_encoder_needs_nothing(tmp_path: Path) -> None:
    result = solved(encoder(2, seq=16, overflow=False), tmp_path)
    assert result.plan.nodes == () and result.fp32_nodes == ()
    assert result.fp16_verdict.met
    assert result.cost.fp32_flops_share == 0
    assert result.fixed == result.fp16


def test_a_detr_head_that_needs_two_places_at_once(tmp_path: Path) -> None:
    result = solved(detr_head(), tmp_path)
    assert 0 < len(result.plan.nodes) <= 24
    assert result.fp16["boxes"].rel_l2 > 0.002


@pytest.mark.parametrize("shape", SHAPES)
def test_every_small_shape(shape: str, tmp_path: Path) -> None:
    zoo = SHAPES[shape]()
    result = solved(zoo, tmp_path)
    assert result.fp16_verdict.met != zoo.fails
    if not zoo.fails:
        assert result.plan.nodes == ()


def test_side_tensors_keep_their_types(tmp_path: Path) -> None:
    zoo = SHAPES["side_tensors"]()
    typed = solved(zoo, tmp_path).typed
    assert typed is not None
    declared = [(v.name, v.type.tensor_type.elem_type) for v in (*zoo.model.graph.input, *zoo.model.graph.output)]
    written = onnx.load(typed.path).graph
    assert [(v.name, v.type.tensor_type.elem_type) for v in (*written.input, *written.output)] == declared


# -- the document and what is written ---------------------------------------------------------------------------------


def test_the_document_keeps_its_contract(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs, out=tmp_path)
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["schema"] == "halfwise.fix/1"
    assert document["model"]["nodes"] == len(zoo.model.graph.node)
    assert 0 < document["model"]["compute_nodes"] <= document["model"]["nodes"]
    assert document["model"]["path"] == ""
    assert len(document["model"]["sha256"]) == 64
    assert document["fp32_nodes"] == list(result.fp32_nodes)
    assert {node["name"] for node in document["nodes"]} >= set(document["fp32_nodes"])
    assert set(document["error"]) == {"fp16", "fixed"}
    assert document["error"]["fixed"].keys() == document["error"]["fp16"].keys()
    assert document["cost"]["model_runs"] > 0 and document["cost"]["seconds"] > 0
    assert Path(document["artifacts"]["onnx"]).parent == tmp_path
    assert document["inputs"] == {"origin": "given", "search": 5, "validation": 5}


def test_errors_are_the_worst_over_all_inputs_also_those_that_the_search_did_not_use(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs, out=tmp_path)
    seen = {feed["x"].tobytes() for feed in result.samples.search}
    assert all(feed["x"].tobytes() not in seen for feed in result.samples.validation)
    assert result.typed is not None
    assert dict(result.fixed) == dict(verify(zoo.model, result.typed.path, result.samples.all).outputs)


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs)
    assert result.met and result.typed is None and result.plan_path is None
    assert result.to_json()["artifacts"]["onnx"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_gets_the_model_and_the_plan_and_nothing_is_left_over(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs, out=tmp_path / "a" / "b")
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {"model.fp16.onnx", "model.plan.json"}
    assert result.plan_path is not None
    assert read_plan(result.plan_path) == result.plan


def test_the_same_question_has_the_same_answer(tmp_path: Path) -> None:
    zoo = SHAPES["softmax_by_hand"]()
    for name in "ab":
        fix(zoo.model, zoo.inputs, out=tmp_path / name)
    for file in ("model.fp16.onnx", "model.plan.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_progress_says_what_is_tried() -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    told: list[str] = []
    fix(zoo.model, zoo.inputs, notify=told.append)
    assert "verifying on held-out inputs" in told
    assert any("FP32 nodes" in text for text in told)


# -- inputs -----------------------------------------------------------------------------------------------------------


def test_inputs_from_any_iterable() -> None:
    zoo = SHAPES["layer_norm_overflow"]()

    def loader() -> Iterator[Mapping[str, np.ndarray]]:
        buffer = np.empty_like(zoo.inputs[0]["x"])
        for feed in zoo.inputs:
            np.copyto(buffer, feed["x"])
            yield {"x": buffer}  # as data loaders do

    given, streamed = fix(zoo.model, zoo.inputs), fix(zoo.model, loader())
    assert streamed.fp32_nodes == given.fp32_nodes and streamed.fixed == given.fixed


def test_one_input_is_varied_and_said() -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs[:1])
    assert result.met and result.samples.origin == "derived"
    assert NoteKind.ONE_SAMPLE in kinds(result.notes)
    assert result.plan.inputs == "derived"


def test_made_up_inputs_are_said_everywhere(tmp_path: Path) -> None:
    zoo = SHAPES["healthy_mlp"]()
    result = fix(zoo.model, out=tmp_path)
    assert result.samples.origin == "synthetic"
    assert NoteKind.SYNTHETIC in kinds(result.notes)
    assert result.plan.inputs == "synthetic"
    assert result.to_json()["inputs"]["origin"] == "synthetic"


# -- tolerances -------------------------------------------------------------------------------------------------------


def test_a_looser_tolerance_never_keeps_more() -> None:
    zoo = detr_head()
    bounds = [[f"rel_l2<={value}"] for value in (0.002, 0.01, 0.1)]
    kept = [len(fix(zoo.model, zoo.inputs[:6], tolerance=each, repairs=("none",)).plan.nodes) for each in bounds]
    assert kept == sorted(kept, reverse=True) and kept[0] > kept[-1]


def test_a_tolerance_as_an_object_and_a_metric_as_a_function() -> None:
    zoo = SHAPES["layer_norm_overflow"]()

    def error(reference: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
        return max(float(np.abs(reference[name] - other[name]).max()) for name in reference)

    result = fix(zoo.model, zoo.inputs, tolerance=Tolerance((Bound.of("*", "metric", 0.3),)), metric=error)
    assert result.met and result.verdict.metric == "metric" and result.verdict.value <= 0.3
    assert not result.fp16_verdict.met


def test_what_cannot_be_met_says_so_and_keeps_the_best() -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs, tolerance=["max_abs<=1e-30"], io_types=Format.FP16)
    assert not result.met and result.to_json()["status"] == "not-met"
    assert result.verdict.metric == "max_abs" and result.verdict.value > 1e-30


# -- targets, types ---------------------------------------------------------------------------------------------------


def test_fp16_inputs_and_outputs(tmp_path: Path) -> None:
    zoo = SHAPES["rms_norm_overflow"]()
    result = solved(zoo, tmp_path, io_types=Format.FP16)
    assert result.typed is not None
    graph = onnx.load(result.typed.path).graph
    types = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    assert types == {TensorProto.FLOAT16}
    assert result.plan.io_types is Format.FP16


def test_bf16_for_nodes_that_only_lack_range(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs, out=tmp_path, allow_bf16=True, repairs=("none",))
    assert result.met and result.typed is not None
    wide = [node for node in result.plan.nodes if node.format is Format.BF16]
    assert wide and all(node.why == "overflow" for node in wide)
    assert TensorProto.BFLOAT16 in float_types(result.typed.path)
    assert not set(result.fp32_nodes) & {node.name for node in wide}
    onnx.checker.check_model(str(result.typed.path), full_check=True)
    assert read_plan(tmp_path / "model.plan.json") == result.plan


def test_the_profile_follows_the_target() -> None:
    zoo = SHAPES["healthy_mlp"]()
    assert fix(zoo.model, zoo.inputs).plan.profile == "strict"
    assert fix(zoo.model, zoo.inputs, target="ort-cuda").plan.profile == "ort-cuda"
    assert fix(zoo.model, zoo.inputs, target="ort-cuda", profile="strict").plan.profile == "strict"


# -- plans ------------------------------------------------------------------------------------------------------------


def by_hand(model: onnx.ModelProto, *names: str, fmt: Format = Format.FP32, target: str = "onnx") -> Plan:
    nodes = tuple(PlannedNode(name, "", fmt, Reason.WANTED, (Note.of(NoteKind.IN_PLAN),)) for name in names)
    sha = load(model).sha256
    return Plan("m", sha, len(model.graph.node), target, "strict", Tolerance.default(), Format.FP32, "", nodes)


def test_a_plan_gives_the_same_model_again(tmp_path: Path) -> None:
    zoo = encoder(2, seq=16)
    first = fix(zoo.model, zoo.inputs[:6], out=tmp_path / "a")
    again = fix(zoo.model, zoo.inputs[6:], out=tmp_path / "b", plan=read_plan(tmp_path / "a" / "model.plan.json"))
    assert again.met and again.plan.nodes == first.plan.nodes
    assert (tmp_path / "a" / "model.fp16.onnx").read_bytes() == (tmp_path / "b" / "model.fp16.onnx").read_bytes()
    assert again.cost.model_runs < first.cost.model_runs


def test_a_plan_by_hand_is_applied_and_judged(tmp_path: Path) -> None:
    zoo = encoder(2, seq=16)
    assert fix(zoo.model, zoo.inputs[:4], plan=by_hand(zoo.model, *zoo.known_good)).met
    missed = fix(zoo.model, zoo.inputs[:4], plan=by_hand(zoo.model, *zoo.known_good[1:]), out=tmp_path)
    assert not missed.met
    assert set(missed.fp32_nodes) == set(zoo.known_good[1:])


def test_what_is_stated_beside_a_plan_wins() -> None:
    zoo = SHAPES["healthy_mlp"]()
    plan = by_hand(zoo.model, target="ort-cuda")
    assert fix(zoo.model, zoo.inputs, plan=plan).plan.target == "ort-cuda"
    result = fix(zoo.model, zoo.inputs, plan=plan, target="onnx", io_types=Format.FP16, tolerance=["rel_l2<=0.5"])
    assert (result.plan.target, result.plan.io_types) == ("onnx", Format.FP16)
    assert result.plan.tolerance.to_json()["*:rel_l2"] == 0.5


def test_plans_that_cannot_be_applied() -> None:
    zoo, other = SHAPES["layer_norm_overflow"](), SHAPES["healthy_mlp"]()
    pow_node = next(node.name for node in zoo.model.graph.node if node.op_type == "Pow")
    cases = {
        "the plan is for another model": by_hand(other.model),
        "in BF16: t4 (compute capability 7.5) has no BF16": by_hand(
            zoo.model, pow_node, fmt=Format.BF16, target="trt-10.9@t4"
        ),
    }
    for told, plan in cases.items():
        with pytest.raises(InputError) as refused:
            fix(zoo.model, zoo.inputs, plan=plan)
        assert told in str(refused.value)


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


def test_inputs_that_leave_nothing_to_compare(tmp_path: Path) -> None:
    zoo = SHAPES["healthy_mlp"]()
    hollow = [{name: array * np.float32("nan") for name, array in feed.items()} for feed in zoo.inputs[:3]]
    with pytest.raises(InputError, match="the FP32 model's own outputs hold no finite value for any input"):
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
    assert fix(path, zoo.inputs[:3], plan=plan).met
    data = bytearray((tmp_path / "m.data").read_bytes())
    data[0] ^= 1
    (tmp_path / "m.data").write_bytes(data)
    with pytest.raises(InputError, match="the same file, but other weights in its external data; run fix without"):
        fix(path, zoo.inputs[:3], plan=plan)


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


def test_inputs_that_get_an_empty_answer(tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(InputError, match="the FP32 model's own outputs are empty for every input"):
        fix(model, [{"x": np.zeros(0, np.float32)}], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_report_is_written_from_python_too(tmp_path: Path) -> None:
    zoo = SHAPES["healthy_mlp"]()
    result = halfwise.fix(zoo.model, zoo.inputs[:2], out=tmp_path)
    assert result.report == tmp_path / "model.report.html" and result.report.is_file()
    assert result.to_json()["artifacts"]["report"] == str(result.report)
    assert halfwise.fix(zoo.model, zoo.inputs[:2]).report is None
