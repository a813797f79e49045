"""Counts over weights wherever they lie, and what a scan says of those that FP16 holds badly."""

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

from halfwise.core.counting import Counts, count
from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.model import elements
from halfwise.model.elements import Elements, merged
from halfwise.model.model import load
from halfwise.verbs.scan import ScanResult, scan
from tests.models.zoo import cnn_tiny_weights
from tests.support.says import Says
from tests.support.scan_cases import Graph, linear, of, rules

SMALLEST = 2.0**-24
NORMAL = 2.0**-14


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
        assert set(found) - {"note"} == {"rule", "severity", "where", "numbers", "message", "remedy"}
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
    monkeypatch.setattr(import_module("halfwise.verbs.scan.rounding"), "WINDOW", 64)
    assert scan(load(external)).to_json() == whole
    assert max(asked) <= 64
    assert sum(asked) >= 40 * 30 + 30 * 20
    assert of(scan(load(external)), "HW102").where.name == "second"


def test_a_weight_file_that_shrinks_meanwhile(external: Path, says: Says) -> None:
    model = load(external)
    (external.parent / "weights.bin").write_bytes(b"\0" * 100)
    with says.raises(InputError):
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
    assert isinstance(summary.note, Note) and summary.note.kind is NoteKind.TENSORRT_WILL_WARN
    assert summary.note.values["harmful"] == 0


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
def test_lost_output_channels(result: Any, axis: int, says: Says) -> None:
    found = of(result(), "HW103")
    assert found.severity == "warning"
    assert found.numbers["axis"] == axis
    assert (found.numbers["channels"], found.numbers["channels_lost"]) == (32, 2)
    assert found.numbers["channel_indices"] == LOST
    says(found.message)


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
def test_weights_over_the_range(value: float, severity: str, change: float, says: Says) -> None:
    weight = normal((8, 4))
    weight[2, 1] = value
    found = of(linear(weight), "HW104")
    assert found.severity == severity
    assert found.numbers["change"] == pytest.approx(change, rel=1e-4)
    says(found.message)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_broken_weights(value: float, says: Says) -> None:
    weight = normal((8, 4))
    weight[2, 1] = value
    found = of(linear(weight), "HW105")
    assert found.severity == "error"
    says(found.message)
    assert found.numbers["nan"] == (1 if np.isnan(value) else 0)


def test_a_divisor_that_becomes_zero(says: Says) -> None:
    graph = Graph()
    y = graph.op("Div", [graph.input("x", [2]), graph.weight("divisor", [1.0, 1e-8])], "/scale")
    found = of(graph.scanned(y, [2]), "HW106")
    assert found.severity == "error"
    says(found.message)


def test_the_summary_counts_what_tensorrt_would() -> None:
    result = scan(load(cnn_tiny_weights("channels").model))
    summary = of(result, "HW101")
    affected = [e for e in result.initializers if e.counts.subnormal]
    assert summary.numbers["tensors_subnormal"] == len(affected)
    assert summary.numbers["tensors_underflow"] == 3
    assert summary.numbers["tensors_harmful"] == 3
    assert rules(result) == ["HW103"] * 3


@pytest.mark.parametrize("size", [1e-6, 3e38])
def test_a_norm_of_the_runtime_is_spoken_of_as_a_plain_one(size: float) -> None:
    """Its scale is a factor, wherever it stands among the inputs."""
    scale = (size * np.ones(64)).astype(np.float32)
    told = []
    for op, inputs, domain in (
        ("LayerNormalization", ["x", "g"], ""),
        ("SkipLayerNormalization", ["x", "z", "g"], "com.microsoft"),
        ("SkipSimplifiedLayerNormalization", ["x", "z", "g"], "com.microsoft"),
    ):
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 64]) for name in (*inputs[:-1], "y")]
        made = helper.make_node(op, inputs, ["y"], domain=domain, name="norm")
        graph = helper.make_graph([made], "g", ends[:-1], ends[-1:], [numpy_helper.from_array(scale, "g")])
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        found = scan(helper.make_model(graph, opset_imports=imports, ir_version=8)).findings
        told.append([(each.rule, each.severity, each.where.name) for each in found])
    assert told[0] and told[0] == told[1] == told[2]


def test_the_values_done_are_told() -> None:
    told: list[tuple[int, int]] = []
    scan(load(cnn_tiny_weights("channels").model), notify=lambda *done: told.append(done))
    values = told[-1][0]
    counting = [*told]
    assert values > 0 and {total for _, total in told} == {values}
    told.clear()
    found = scan(load(cnn_tiny_weights("channels").model), rounding=True, notify=lambda *done: told.append(done))
    assert [done for done, _ in told[: len(counting)]] == [done for done, _ in counting]
    rounded = np.cumsum([entry.counts.count for entry in found.initializers])
    assert [done for done, _ in told[len(counting) :]] == [*(values + rounded)]
    assert {total for _, total in told} == {2 * values}


def test_of_one_large_weight_the_parts_done_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have most values of a model: of one table in 22 weights, no other number moved for a minute."""
    monkeypatch.setattr("halfwise.verbs.scan.rounding.WINDOW", 1000)
    told: list[tuple[int, int]] = []
    large = numpy_helper.from_array(np.ones((100, 100), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", 1, [1, 100])],
                              [helper.make_tensor_value_info("y", 1, [1, 100])], [large])  # fmt: skip
    scan(helper.make_model(graph, ir_version=8), rounding=True, notify=lambda *done: told.append(done))
    assert len(told) >= 10 and told[-1] == (20_000, 20_000)
