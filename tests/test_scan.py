"""The scan counts right, finds what is there, says how much it matters, and stays quiet about healthy models."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo import SHAPES, cnn_tiny_weights, detr_head, encoder
from benchmarks.zoo.graph_writer import GraphWriter
from halfwise import elements
from halfwise.counting import Counts, count
from halfwise.elements import Elements, merged
from halfwise.errors import InputError
from halfwise.finding import Finding
from halfwise.model import load
from halfwise.rules import RULES
from halfwise.scan import ScanResult, scan

SHARED = Path(__file__).parents[1].parent / "shared" / "models"
SMALLEST = 2.0**-24
NORMAL = 2.0**-14


class Graph(GraphWriter):
    """A writer with constants that name themselves, scanned when it is done."""

    def __init__(self, opset: int = 17) -> None:
        super().__init__("test")
        self.opset = opset
        self.count = 0

    def number(self, value: Any, dtype: Any = np.float32) -> str:
        self.count += 1
        return self.weight(f"constant_{self.count}", value, dtype)

    def scanned(self, y: str, shape: list[int | str], elem_type: int = TensorProto.FLOAT) -> ScanResult:
        self.output(y, "y", shape, elem_type)
        return scan(load(self.model(self.opset)))


def rules(result: ScanResult) -> list[str]:
    """The rules of what was found, but for the summary of the weights."""
    return [finding.rule for finding in result.findings if finding.rule != "HW101"]


def of(result: ScanResult, rule: str) -> Finding:
    (found,) = (finding for finding in result.findings if finding.rule == rule)
    return found


def linear(weight: npt.ArrayLike) -> ScanResult:
    """x @ weight"""
    graph = Graph()
    array = np.asarray(weight, dtype=np.float32)
    x = graph.input("x", [2, array.shape[0]])
    return graph.scanned(graph.op("MatMul", [x, graph.weight("weight", array)], ""), [2, array.shape[1]])


# -- counts -----------------------------------------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -3.5, SMALLEST, -SMALLEST, SMALLEST / 2, 1e-30, 1e-45, NORMAL, NORMAL * 0.999, 1e-6]
SPECIAL += [65504.0, 65519.0, -65520.0, 1e9, -3.4e38, float("inf"), float("-inf"), float("nan")]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=40), st.integers(1, 7))
def test_windows_count_like_the_whole(values: list[float], step: int) -> None:
    array = np.array(values, dtype=np.float32)
    elements = Elements(load_tensor(array))
    assert merged(map(count, elements.windows(step))) == count(array)


def load_tensor(array: npt.NDArray[np.float32]) -> Any:
    import onnx_ir as ir

    return ir.tensor(array)


def test_nothing_counted_is_all_zero() -> None:
    assert merged([]) == Counts(0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)


def test_the_document() -> None:
    values = [[1.0, 1e-6], [1e-9, 70000.0], [-2.0, 0.0]]
    document = json.loads(json.dumps(linear(values).to_json(), allow_nan=False))
    assert set(document) == {"schema", "weights", "findings"}
    assert document["schema"] == "halfwise.scan/1"
    entry = {
        "name": "weight",
        "count": 6,
        "subnormal": 1,
        "underflow": 1,
        "overflow": 1,
        "nonfinite": 0,
        "max_abs": 70000.0,
        "min_abs": float(np.float32(1e-9)),
    }
    assert document["weights"]["initializers"] == [entry]
    entry.pop("name")
    assert document["weights"]["totals"] == {"initializers": 1, **entry}
    for found in document["findings"]:
        assert set(found) == {"rule", "severity", "where", "numbers", "message", "remedy"}
        assert set(found["where"]) == {"kind", "name"}


def test_each_initializer_counts_once() -> None:
    """A shared one, one that is also an input, those of subgraphs, Constant nodes; other types by their own bits."""
    shared = numpy_helper.from_array(np.array([1e-6, 2.0], dtype=np.float32), "shared")
    inner = numpy_helper.from_array(np.array([1e-9], dtype=np.float32), "inner")
    others = [
        numpy_helper.from_array(np.array([1e-6], dtype=np.float16), "half"),
        numpy_helper.from_array(np.array([1e-6], dtype=np.float64), "double"),
        numpy_helper.from_array(np.array([7]), "ids"),
    ]
    output = [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])]
    branch = helper.make_graph(
        [helper.make_node("Mul", ["a", "inner"], ["b"], name="deep")], "then", [], output, [inner]
    )
    other = helper.make_graph([helper.make_node("Neg", ["a"], ["c"], name="neg")], "else", [],
                              [helper.make_tensor_value_info("c", TensorProto.FLOAT, [2])])  # fmt: skip
    nodes = [
        helper.make_node("Constant", [], ["k"], name="constant", value=numpy_helper.from_array(np.float32([1e5, 3.0]))),
        helper.make_node("Add", ["x", "shared"], ["s"], name="add"),
        helper.make_node("Mul", ["s", "shared"], ["t"], name="mul"),
        helper.make_node("Mul", ["t", "k"], ["a"], name="mul_1"),
        helper.make_node("If", ["flag"], ["y"], name="if", then_branch=branch, else_branch=other),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        helper.make_tensor_value_info("shared", TensorProto.FLOAT, [2]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [shared, *others])
    result = scan(load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)))
    found = {
        e.name: (e.counts.count, e.counts.subnormal, e.counts.underflow, e.counts.overflow) for e in result.initializers
    }
    full = {"shared": (2, 1, 0, 0), "k": (2, 0, 0, 1), "inner": (1, 0, 1, 0)}
    assert found == {**full, "half": (1, 1, 0, 0), "double": (1, 1, 0, 0)}
    assert result.totals.count == 7
    assert {e.name: e.dtype for e in result.initializers} == {
        **dict.fromkeys(full, "fp32"), "half": "fp16", "double": "fp64",
    }  # fmt: skip


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """Two weights in one file of their own, the second one behind the first."""
    rng = np.random.default_rng(0)
    graph = Graph()
    first = rng.standard_normal((40, 30))
    second = rng.standard_normal((30, 20)) * 1e-7
    x = graph.op("MatMul", [graph.input("x", [2, 40]), graph.weight("first", first)], "")
    graph.output(graph.op("MatMul", [x, graph.weight("second", second)], ""), "y", [2, 20])
    path = tmp_path / "model.onnx"
    onnx.save(graph.model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_external_data_is_read_in_windows(external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    stored = Elements.stored

    def spy(self: Elements, start: int, stop: int) -> Any:
        asked.append(stop - start)
        return stored(self, start, stop)

    whole = scan(load(external)).to_json()
    monkeypatch.setattr(Elements, "stored", spy)
    monkeypatch.setattr(Elements.windows, "__defaults__", (64,))
    monkeypatch.setattr(elements, "_SHARE", 64)
    monkeypatch.setattr(import_module("halfwise.scan.rounding"), "WINDOW", 64)
    assert scan(load(external)).to_json() == whole
    assert max(asked) <= 64
    assert sum(asked) >= 40 * 30 + 30 * 20
    assert of(scan(load(external)), "HW102").where.name == "second"


def test_a_weight_file_that_shrinks_meanwhile(external: Path) -> None:
    model = load(external)
    (external.parent / "weights.bin").write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match=r"weights\.bin ends before initializer 'first'; copy the file again"):
        scan(model)


def test_a_weight_file_that_vanishes_meanwhile(external: Path) -> None:
    model = load(external)
    (external.parent / "weights.bin").unlink()
    with pytest.raises(InputError, match=r"weights\.bin cannot be read: "):
        scan(model)


# -- weights ----------------------------------------------------------------------------------------------------------


def normal(shape: tuple[int, ...], scale: float = 1.0, seed: int = 0) -> npt.NDArray[np.float32]:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def test_tiny_values_beside_large_ones_are_noise() -> None:
    weight = normal((64, 32))
    weight[::3] *= 1e-6
    result = linear(weight)
    assert rules(result) == []
    summary = of(result, "HW101")
    assert summary.severity == "info"
    assert (summary.numbers["tensors_subnormal"], summary.numbers["tensors_harmful"]) == (1, 0)
    assert summary.numbers["values_subnormal"] == result.totals.subnormal > 300
    assert "1 weight with subnormal FP16 values" in summary.message
    assert "counts tensors, not values" in summary.message
    assert summary.message.endswith("no weight is worse for it")


def test_a_whole_weight_that_is_too_small() -> None:
    weight = normal((64, 32), 1e-7)
    found = of(linear(weight), "HW102")
    assert (found.severity, found.where.kind, found.where.name) == ("error", "initializer", "weight")
    typed = weight.astype(np.float16).astype(np.float64)
    change = np.sqrt(((typed - weight) ** 2).sum() / (weight.astype(np.float64) ** 2).sum())
    assert found.numbers["relative_change"] == pytest.approx(change, rel=1e-5)
    weak = np.where((weight != 0) & (np.abs(weight) < SMALLEST), np.copysign(SMALLEST, weight), typed)
    change = np.sqrt(((weak - weight) ** 2).sum() / (weight.astype(np.float64) ** 2).sum())
    assert found.numbers["relative_change_weak"] == pytest.approx(change, rel=1e-5)
    assert found.numbers["share_of_energy"] == pytest.approx(1.0)
    assert "under weak typing" in found.message


LOST = [3, 17]


def conv(weight: npt.NDArray[np.float32], op: str = "Conv") -> ScanResult:
    graph = Graph()
    inputs, outputs = weight.shape[:2] if op == "ConvTranspose" else weight.shape[1::-1]
    y = graph.op(op, [graph.input("x", [1, inputs, 8, 8]), graph.weight("weight", weight)], "", pads=[1, 1, 1, 1])
    return graph.scanned(y, [1, outputs, 8, 8])


def gemm(weight: npt.NDArray[np.float32], **attributes: int) -> ScanResult:
    graph = Graph()
    inputs, outputs = weight.shape[::-1] if attributes.get("transB") else weight.shape
    y = graph.op("Gemm", [graph.input("x", [2, inputs]), graph.weight("weight", weight)], "", **attributes)
    return graph.scanned(y, [2, outputs])


def turned(weight: npt.NDArray[np.float32]) -> ScanResult:
    graph = Graph()
    flipped = graph.op("Transpose", [graph.weight("weight", weight)], "", perm=[1, 0])
    return graph.scanned(
        graph.op("MatMul", [graph.input("x", [2, weight.shape[1]]), flipped], ""), [2, weight.shape[0]]
    )


def quiet_rows(shape: tuple[int, ...], scale: float = 1e-6) -> npt.NDArray[np.float32]:
    weight = normal(shape, 0.02)
    weight[LOST] *= scale
    return weight


@pytest.mark.parametrize(
    ("result", "axis"),
    [
        (lambda: conv(quiet_rows((32, 6, 3, 3))), 0),
        (lambda: conv(np.ascontiguousarray(quiet_rows((32, 6, 3, 3)).swapaxes(0, 1)), "ConvTranspose"), 1),
        (lambda: gemm(quiet_rows((32, 20)), transB=1), 0),
        (lambda: gemm(np.ascontiguousarray(quiet_rows((32, 20)).T)), 1),
        (lambda: linear(quiet_rows((32, 20)).T), 1),
        (lambda: turned(quiet_rows((32, 20))), 0),
    ],
)
def test_lost_output_channels(result: Any, axis: int) -> None:
    found = of(result(), "HW103")
    assert found.severity == "warning"
    assert found.numbers["axis"] == axis
    assert (found.numbers["channels"], found.numbers["channels_lost"]) == (32, 2)
    assert found.numbers["channel_indices"] == LOST
    assert "2 of its 32 output channels (3, 17) hold values of about" in found.message


def test_dead_channels_are_no_finding() -> None:
    """What FP32 itself cannot tell from 0 beside the other channels, FP16 may lose."""
    assert rules(conv(quiet_rows((32, 6, 3, 3), 1e-12))) == []
    assert rules(conv(quiet_rows((32, 6, 3, 3), 0.0))) == []


def test_small_channels_that_keep_enough_bits_are_no_finding() -> None:
    assert rules(conv(quiet_rows((32, 6, 3, 3), 1e-3))) == []


def test_a_tiny_bias_is_no_finding() -> None:
    graph = Graph()
    product = graph.op("Gemm", [graph.input("x", [2, 8]), graph.number(normal((8, 4))), graph.number([1e-7] * 4)], "")
    assert rules(graph.scanned(graph.op("Add", [product, graph.number([1e-9, -1e-9, 1e-8, 0.0])], ""), [2, 4])) == []


def test_a_tiny_factor_is_a_finding() -> None:
    graph = Graph()
    y = graph.op("Mul", [graph.input("x", [4]), graph.weight("factor", 1e-7)], "")
    found = of(graph.scanned(y, [4]), "HW102")
    assert found.numbers["relative_change"] == pytest.approx(0.1920929, rel=1e-4)


def test_a_weight_that_nothing_reads_in_fp16_is_no_finding() -> None:
    """The scales of Resize stay FP32; a weight that nobody reads is none."""
    graph = Graph()
    graph.weight("unread", [1e-9])
    empty = graph.weight("roi", [])
    y = graph.op("Resize", [graph.input("x", [1, 1, 4, 4]), empty, graph.weight("scales", [1.0, 1.0, 1e-7, 1.0])], "")
    assert graph.scanned(y, [1, 1, "h", "w"]).findings == ()


@pytest.mark.parametrize(("value", "severity", "change"), [(1e6, "error", 0.934496), (65600.0, "warning", 0.0014634)])
def test_weights_over_the_range(value: float, severity: str, change: float) -> None:
    weight = normal((8, 4))
    weight[2, 1] = value
    found = of(linear(weight), "HW104")
    assert found.severity == severity
    assert found.numbers["change"] == pytest.approx(change, rel=1e-4)
    assert "1 of its 32 values over 65504" in found.message
    assert "clamped to 65504" in found.message


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_weights(value: float) -> None:
    weight = normal((8, 4))
    weight[2, 1] = value
    found = of(linear(weight), "HW105")
    assert found.severity == "error"
    assert found.message == "1 of its 32 values NaN or infinite"
    assert found.numbers["nan"] == (1 if np.isnan(value) else 0)


def test_a_divisor_that_becomes_zero() -> None:
    graph = Graph()
    y = graph.op("Div", [graph.input("x", [2]), graph.weight("divisor", [1.0, 1e-8])], "/scale")
    found = of(graph.scanned(y, [2]), "HW106")
    assert found.severity == "error"
    assert "/scale/Div divides by 1e-8, which is 0 in FP16" in found.message


def test_the_summary_counts_what_tensorrt_would() -> None:
    result = scan(load(cnn_tiny_weights("channels").model))
    summary = of(result, "HW101")
    affected = [e for e in result.initializers if e.counts.subnormal]
    assert summary.numbers["tensors_subnormal"] == len(affected)
    assert summary.numbers["tensors_underflow"] == 3
    assert summary.numbers["tensors_harmful"] == 3
    assert rules(result) == ["HW103"] * 3


# -- constants --------------------------------------------------------------------------------------------------------


def masked(*steps: str, value: float = -1e9, sink: str = "Softmax") -> ScanResult:
    """Scores with a mask that goes through these steps."""
    graph = Graph()
    scores = graph.input("x", [4, 4])
    flag = graph.input("mask", [4, 4])
    mask = graph.weight("lowest", value)
    for step in steps:
        if step == "(1 - m) *":
            mask = graph.op("Mul", [graph.op("Sub", [graph.number(1.0), flag], ""), mask], "/mask")
        elif step == "(m - 1) *":
            mask = graph.op("Mul", [graph.op("Sub", [flag, graph.number(1.0)], ""), mask], "/mask")
        elif step == "unsqueeze":
            mask = graph.op("Unsqueeze", [mask, graph.number([0], np.int64)], "")
        elif step == "add":
            scores = graph.op("Add", [scores, mask], "/attn")
        elif step == "sub":
            scores = graph.op("Sub", [scores, mask], "/attn")
        elif step == "where":
            keep = graph.op("Cast", [flag], "", to=TensorProto.BOOL)
            scores = graph.op("Where", [keep, scores, mask], "/attn")
        elif step == "scale":
            scores = graph.op("Mul", [scores, graph.number(1.5)], "/attn")
        elif step == "halve":
            scores = graph.op("Mul", [scores, graph.number(0.5)], "/attn")
        elif step == "causal":
            causal = graph.number(np.triu(np.full((4, 4), value), 1))
            scores = graph.op("Add", [scores, causal], "/causal")
    y = graph.op(sink, [scores], "", axis=-1)
    return graph.scanned(y, ["a", "b", "c"][: 3 if "unsqueeze" in steps else 2])


@pytest.mark.parametrize(
    ("steps", "value", "expected"),
    [
        (["add"], -1e9, "HW111"),
        (["(1 - m) *", "add"], -3.4028235e38, "HW111"),
        (["(1 - m) *", "unsqueeze", "add"], -1e9, "HW111"),
        (["(m - 1) *", "add"], 1e9, "HW111"),
        (["(1 - m) *", "sub"], 1e30, "HW111"),
        (["(1 - m) *", "add", "halve"], -1e9, "HW111"),
        (["causal"], -1e9, "HW111"),
        (["where"], -1e9, "HW113"),
        (["where", "halve"], -1e9, "HW113"),
        (["where", "scale"], -1e9, "HW112"),
        (["add", "scale"], -1e9, "HW112"),
        (["(1 - m) *", "add", "causal"], -1e9, "HW112"),
        (["where", "add"], -1e9, "HW112"),
        (["(1 - m) *", "add"], -1e4, None),
        (["where"], -65504.0, None),
        (["where"], float("-inf"), "HW115"),
    ],
)
def test_masks(steps: list[str], value: float, expected: str | None) -> None:
    result = masked(*steps, value=value)
    assert sorted(set(rules(result))) == ([] if expected is None else [expected])


def test_what_a_mask_finding_says() -> None:
    found = of(masked("(1 - m) *", "add"), "HW111")
    assert (found.severity, found.where.kind, found.where.name) == ("warning", "node", "/attn/Add")
    assert (found.numbers["value"], found.numbers["fp16"]) == (-1e9, -65504.0)
    assert found.message.startswith("the mask -1e9 becomes -65504 in FP16")
    assert of(masked("where"), "HW113").severity == "info"
    assert of(masked("where", "scale"), "HW112").where.name == "/attn/Mul"


def test_a_large_number_added_to_make_something_large_is_no_mask() -> None:
    assert rules(masked("add", value=1e9)) == ["HW104"]


def test_a_stand_in_for_infinity_before_a_selection() -> None:
    graph = Graph()
    keep = graph.input("keep", [8], TensorProto.BOOL)
    scores = graph.op("Where", [keep, graph.input("x", [8]), graph.number(-1e9)], "")
    y = graph.op("ArgMax", [scores], "", axis=0)
    assert set(rules(graph.scanned(y, [1], TensorProto.INT64))) == {"HW113", "HW210"}


def test_a_tensor_filled_with_a_mask() -> None:
    graph = Graph()
    filler = numpy_helper.from_array(np.array([-1e9], dtype=np.float32))
    scores = graph.input("x", [4, 4])
    mask = graph.op("ConstantOfShape", [graph.op("Shape", [scores], "")], "", value=filler)
    added = graph.op("Add", [scores, graph.op("Trilu", [mask], "", upper=1)], "/attn")
    assert rules(graph.scanned(graph.op("Softmax", [added], ""), [4, 4])) == ["HW111"]


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
        assert f"keeps 1 {guards} from 0 and is 0 in FP16" in found.message


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
    assert found.message.startswith(
        "13 times: decomposed LayerNorm whose square overflows FP16 once |x - mean| exceeds"
    )


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


def test_types() -> None:
    graph = Graph()
    x = graph.input("x", [4])
    half = graph.op("Relu", [graph.op("Cast", [x], "", to=TensorProto.FLOAT16)], "")
    double = graph.op("Neg", [graph.op("Cast", [x], "", to=TensorProto.DOUBLE)], "")
    parts = [graph.op("Cast", [value], "", to=TensorProto.FLOAT) for value in (half, double)]
    result = graph.scanned(graph.op("Add", parts, ""), [4])
    assert rules(result) == ["HW301", "HW302"]
    assert of(result, "HW301").numbers == {"fp16": 2, "bf16": 0, "fp32": 3}
    assert of(result, "HW302").numbers["count"] == 2


def test_quantised_and_foreign_operators() -> None:
    graph = Graph()
    scale, zero = graph.number(0.1), graph.number(0, np.uint8)
    q = graph.op("QuantizeLinear", [graph.input("x", [4]), scale, zero], "")
    y = graph.op("DequantizeLinear", [q, scale, zero], "")
    graph.output(graph.op("Swish", [y], "", domain="acme"), "y", [4])
    model = graph.model()
    model.opset_import.append(helper.make_opsetid("acme", 1))
    result = scan(load(model))
    assert rules(result) == ["HW303", "HW304"]
    assert of(result, "HW303").message == "of other domains, and so kept in FP32: 1 node (acme:Swish)"
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
