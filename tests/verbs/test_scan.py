"""The scan finds what is there, says how much it matters, and stays quiet about healthy models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.core.notes import Note, NoteKind
from halfwise.core.rules import RULES
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.verbs.doctor import doctor
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.scan import scan
from tests.models.quantised import layers, quantised
from tests.models.zoo import SHAPES, detr_head, encoder
from tests.support.paths import REAL_MODELS
from tests.support.says import Says
from tests.support.scan_cases import Graph, of, rules

SHARED = REAL_MODELS
SMALLEST = 2.0**-24
NORMAL = 2.0**-14


# -- constants --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["Clip", "Min", "Less"])
def test_bounds_and_comparisons_beyond_the_range_are_no_finding(op: str) -> None:
    graph = Graph()
    x, far = graph.input("x", [4]), graph.number(3e38)
    if op == "Clip":
        y = graph.op("Clip", [x, graph.number(-3e38), far], "")
    elif op == "Min":
        y = graph.op("Min", [x, far], "")
    else:
        y = graph.op("Where", [graph.op("Less", [x, far], ""), x, graph.op("Neg", [x], "")], "")
    assert rules(graph.scanned(y, [4])) == []


@pytest.mark.parametrize(
    ("op", "use", "epsilon", "guards"),
    [
        ("Add", "Div", 1e-12, "division"),
        ("Max", "Div", 1e-12, "division"),
        ("Clip", "Div", 1e-12, "division"),
        ("Add", "Sqrt, Div", 1e-12, "division"),
        ("Add", "Sqrt, Reciprocal", 1e-12, "division"),
        ("Add", "Pow", 1e-12, "division"),
        ("Add", "Log", 1e-10, "logarithm"),
        ("Add", "Div", 1e-7, None),  # FP16 holds it, if roughly
        ("Add", "Div", 0.5, None),
        ("Add", "Relu", 1e-12, None),  # guards nothing
        ("Add", "numerator", 1e-12, None),
    ],
)
def test_epsilons_that_vanish(op: str, use: str, epsilon: float, guards: str | None) -> None:
    graph = Graph()
    x = graph.input("x", [4])
    y = graph.op(op, [graph.op("Abs", [x], ""), graph.number(epsilon)], "/guard")
    for step in use.split(", "):
        if step == "Div":
            y = graph.op("Div", [x, y], "")
        elif step == "numerator":
            y = graph.op("Div", [y, graph.op("Exp", [x], "")], "")
        elif step == "Pow":
            y = graph.op("Pow", [y, graph.number(-0.25)], "")
        else:
            y = graph.op(step, [y], "")
    result = graph.scanned(y, [4])
    if guards is None:
        assert rules(result) == []
    else:
        found = of(result, "HW114")
        assert (found.severity, found.where.name, found.numbers["fp16"]) == ("warning", f"/guard/{op}", 0.0)
        assert found.note == Note.of(
            NoteKind.EPSILON_VANISHES, epsilon=found.numbers["epsilon"], count=1, guards=guards
        )


def test_the_same_epsilon_everywhere_is_one_finding() -> None:
    graph = Graph()
    y = graph.input("x", [4])
    for _ in range(5):
        y = graph.op("Div", [y, graph.op("Add", [graph.op("Abs", [y], ""), graph.number(1e-12)], "")], "")
    found = of(graph.scanned(y, [4]), "HW114")
    assert found.numbers["count"] == len(found.numbers["nodes"]) == 5


def test_clip_bounds_as_attributes() -> None:
    graph = Graph(opset=9)
    x = graph.input("x", [4])
    y = graph.op("Div", [x, graph.op("Clip", [graph.op("Abs", [x], "")], "", min=1e-12)], "")
    assert rules(graph.scanned(y, [4])) == ["HW114"]


# -- patterns and types -----------------------------------------------------------------------------------------------

EXPECTED = {
    "layer_norm_overflow": {"HW201"},
    "rms_norm_overflow": {"HW201"},
    "instance_norm_overflow": {"HW201"},
    "group_norm_overflow": {"HW201"},
    "l2_norm_of_padding": {"HW114"},
    "l2_norm_of_small_vectors": {"HW114", "HW203"},
    "variance_by_moments": {"HW202"},
    "mask_minus_1e9": {"HW111"},
    "mask_float_min": {"HW111"},
    "mask_where_scaled": {"HW112"},
    "two_masks_added": {"HW112"},
    "sum_over_512x512": {"HW104", "HW206"},
    "gram_matrix": {"HW206"},
    "cumulative_sum": {"HW207"},
    "log_sum_exp_by_hand": {"HW204"},
    "softmax_by_hand": {"HW204"},
    "log_of_probability": {"HW114"},
    "top_k_selection": {"HW210"},
    "inverse_sigmoid": {"HW205"},
    "large_coordinates": {"HW208"},
    "large_phase": {"HW209"},
    "subnormal_weights": {"HW102"},
    "log_of_energy": {"HW114"},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_failing_shape_is_found(name: str) -> None:
    assert set(rules(scan(load(SHAPES[name]().model)))) == EXPECTED[name]


@pytest.mark.parametrize("name", ["healthy_mlp", "global_average_pool_large"])
def test_healthy_shapes_are_left_in_peace(name: str) -> None:
    assert rules(scan(load(SHAPES[name]().model))) == []


def test_what_repeats_is_one_finding() -> None:
    result = scan(load(encoder().model))
    found = of(result, "HW201")
    assert rules(result) == ["HW201"]
    assert found.numbers["count"] == 13
    assert found.numbers["nodes"][:2] == ["/layers.0/norm1/Pow", "/layers.0/norm2/Pow"]
    once = Note.of(NoteKind.NORM_SQUARES, pattern="decomposed LayerNorm", squared="x - mean", limit=255.0)
    assert found.note == Note.of(NoteKind.TIMES, times=13, what=once)


def test_the_most_severe_come_first() -> None:
    result = scan(load(detr_head().model))
    severities = [finding.severity for finding in result.findings]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)
    assert set(rules(result)) == {"HW205", "HW208", "HW209"}
    assert of(result, "HW209").numbers["largest"] == 4000.0


def test_a_clip_that_fp16_can_tell_from_one_guards_the_inverse_sigmoid() -> None:
    for high, expected in ((0.999, []), (0.99999, ["HW205"])):
        graph = Graph()
        inside = graph.op("Clip", [graph.input("x", [4]), graph.number(0.001), graph.number(high)], "")
        ratio = graph.op("Div", [inside, graph.op("Sub", [graph.number(1.0), inside], "")], "")
        assert rules(graph.scanned(graph.op("Log", [ratio], ""), [4])) == expected


@pytest.mark.parametrize(("table", "expected"), [(5000, ["HW211"]), (2000, [])])
def test_ids_as_floats(table: int, expected: list[str]) -> None:
    graph = Graph()
    ids = graph.op("Cast", [graph.input("ids", [4])], "", to=TensorProto.INT64)
    row = graph.op("Gather", [graph.weight("table", np.ones((table, 3))), ids], "")
    assert rules(graph.scanned(row, [4, 3])) == expected


def test_what_a_typed_file_keeps_in_fp32_is_no_risk(tmp_path: Path) -> None:
    """As `fix` writes it; of the same file in FP16 alone the square is told, and of one in FP32."""
    zoo = SHAPES["layer_norm_overflow"]()
    assert "HW201" in rules(scan(zoo.model))
    fixed = fix(zoo.model, zoo.inputs, out=tmp_path, repairs="none")
    assert fixed.plan.nodes and fixed.typed is not None
    assert not {"HW201", "HW202"} & set(rules(scan(fixed.typed.path)))
    assert doctor([fixed.typed.path]).good
    half = typed_proto(Assignment.all_narrow(Sites(load(zoo.model))))
    assert "HW201" in rules(scan(half))


def test_types() -> None:
    graph = Graph()
    x = graph.input("x", [4])
    half = graph.op("Relu", [graph.op("Cast", [x], "", to=TensorProto.FLOAT16)], "")
    double = graph.op("Neg", [graph.op("Cast", [x], "", to=TensorProto.DOUBLE)], "")
    parts = [graph.op("Cast", [value], "", to=TensorProto.FLOAT) for value in (half, double)]
    result = graph.scanned(graph.op("Add", parts, ""), [4])
    assert rules(result) == ["HW301", "HW302"]
    assert of(result, "HW301").numbers == {"fp16": 2, "bf16": 0, "fp32": 3, "typed": 1, "of": 3}
    assert of(result, "HW302").numbers["count"] == 2


def test_quantised_and_foreign_operators(says: Says) -> None:
    graph = Graph()
    scale, zero = graph.number(0.1), graph.number(0, np.uint8)
    q = graph.op("QuantizeLinear", [graph.input("x", [4]), scale, zero], "")
    y = graph.op("DequantizeLinear", [q, scale, zero], "")
    graph.output(graph.op("Swish", [y], "", domain="acme"), "y", [4])
    model = graph.model()
    model.opset_import.append(helper.make_opsetid("acme", 1))
    result = scan(load(model))
    assert rules(result) == ["HW303", "HW304"]
    says(of(result, "HW303").message)
    assert of(result, "HW304").numbers == {"count": 2}


def test_old_opset_has_no_layer_norm() -> None:
    for opset, expected in ((16, ["HW201", "HW305"]), (17, ["HW201"])):
        model = SHAPES["layer_norm_overflow"]().model
        model.opset_import[0].version = opset
        assert rules(scan(load(model))) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e38, 1e-45, 0.0])
@pytest.mark.parametrize("name", ["inverse_sigmoid", "layer_norm_overflow", "l2_norm_of_padding", "large_phase"])
def test_any_constant_anywhere_leaves_a_valid_document(name: str, value: float) -> None:
    model = SHAPES[name]().model
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and not tensor.dims:
            tensor.CopyFrom(numpy_helper.from_array(np.array(value, dtype=np.float32), tensor.name))
    json.dumps(scan(load(model)).to_json(), allow_nan=False)


def test_every_rule_has_a_title_and_a_remedy() -> None:
    for name, rule in RULES.items():
        assert name == rule.id
        assert rule.title
        assert rule.remedy
        assert not rule.remedy.endswith(".")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gtcrn_stream", {"HW114", "HW201", "HW305"}),
        ("lighterglue_L3", {"HW209", "HW210"}),
        ("magika_v1", {"HW201", "HW305"}),
        ("nanotrack_v3_head", set()),
        ("silero_vad_16k", set()),
        ("ultraface_rfb320", set()),
        ("yolox_nano", set()),
    ],
)
def test_real_models(name: str, expected: set[str]) -> None:
    path = SHARED / name / "model.onnx"
    if not path.exists():
        pytest.skip("the shared models are not beside the project")
    result = scan(load(path))
    assert set(rules(result)) == expected
    stored = {t.name: t for t in onnx.load(path).graph.initializer if t.data_type == TensorProto.FLOAT}
    counted = {entry.name: entry.counts for entry in result.initializers}
    assert set(stored) <= set(counted)
    for name_of, tensor in stored.items():
        values = np.abs(numpy_helper.to_array(tensor))
        assert counted[name_of].subnormal == int(((values >= SMALLEST) & (values < NORMAL)).sum())
        assert counted[name_of].underflow == int(((values > 0) & (values < SMALLEST)).sum())


@pytest.mark.parametrize("opset", [17, 19])
def test_the_opset_told_is_the_file_s(opset: int) -> None:
    """A quantised model is raised to one in which its scales may be narrow."""
    assert scan(load(quantised(layers(1), opset))).facts.opset == opset
