"""The main job end to end on models of known behaviour: what it keeps, writes, says and refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.precision.plan import read_plan
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.verify import verify
from tests.models.zoo import SHAPES, detr_head, encoder
from tests.support.fixing import float_types, solved
from tests.support.messages import kinds

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
