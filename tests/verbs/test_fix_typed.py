"""Models that are FP16 or BF16 already: their own numbers in FP32 are the reference, and what is broken is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from halfwise.verbs.scan import scan
from halfwise.verbs.stages import stages
from halfwise.verbs.trace import trace
from halfwise.verbs.verify import verify
from tests.models.build import model, node, value, weight
from tests.models.typed_graphs import BRAIN, FLOAT, HALF, mlp, samples, tensor, weights
from tests.support.says import Says

BROKEN = 300.0  # the squares of what is scaled by it leave FP16


def kinds(result: FixResult) -> set[NoteKind]:
    return {note.kind for note in result.notes}


def content(path: Path) -> tuple[list[str], list[bytes]]:
    graph = onnx.load(path).graph
    weights = sorted(numpy_helper.to_array(each).tobytes() for each in graph.initializer)
    return [f"{each.op_type} {list(each.attribute)}" for each in graph.node], weights


@pytest.mark.parametrize("kind", [HALF, BRAIN], ids=["fp16", "bf16"])
def test_a_broken_file_is_told_and_healed(kind: int, tmp_path: Path) -> None:
    typed = mlp(kind, BROKEN)
    result = fix(typed, samples(typed), out=tmp_path)
    verdict = result.measured.typed_verdict
    assert verdict is not None and verdict.met is (kind == BRAIN)  # BF16 has room for the squares
    assert (NoteKind.AS_TYPED_MISSES in kinds(result)) is (kind == HALF)
    assert NoteKind.TYPED_ALREADY in kinds(result)
    assert not result.fp16_verdict.met and result.met
    assert result.typed is not None
    session = onnxruntime.InferenceSession(str(result.typed.path), providers=["CPUExecutionProvider"])
    assert [each.type for each in (*session.get_inputs(), *session.get_outputs())] == [
        f"tensor({'float16' if kind == HALF else 'bfloat16'})"
    ] * 2


def test_a_healthy_file_says_what_it_is() -> None:
    typed = mlp(HALF)
    result = fix(typed, samples(typed))
    assert result.met and NoteKind.TYPED_ALREADY in kinds(result) and NoteKind.AS_TYPED_MISSES not in kinds(result)
    document = result.to_json()
    assert document["model"]["typed"] == {"nodes": 8, "fp16": 8, "bf16": 0, "fp32": 0}
    assert document["error"]["typed"]["y"]["rel_l2"] > 0.0


@pytest.mark.parametrize("index", range(4))
def test_a_file_that_misses_on_one_input_misses(index: int) -> None:
    """Whichever it is: searched or held out."""
    typed = mlp(HALF, 4.0)
    given = samples(typed)[:4]
    given[index] = {"x": given[index]["x"] * np.float16(40.0)}  # whose squares leave FP16
    result = fix(typed, given)
    assert result.measured.typed_verdict is not None and not result.measured.typed_verdict.met
    assert NoteKind.AS_TYPED_MISSES in kinds(result) and result.met


def contradicting() -> onnx.ModelProto:
    """As a converter leaves it that was told to keep a norm's weights in FP32."""
    typed = mlp(HALF)
    typed.graph.initializer[2].CopyFrom(tensor("s", FLOAT, 1.0))
    return typed


def test_a_file_that_no_runtime_loads_is_told_and_typed_anew(tmp_path: Path, says: Says) -> None:
    typed = contradicting()
    result = fix(typed, samples(mlp(HALF)), out=tmp_path)
    told = next(note for note in result.notes if note.kind is NoteKind.AS_TYPED_INVALID)
    assert told.values["op"] == "Mul" and result.met and "typed" not in result.to_json()["error"]
    assert result.typed is not None
    onnxruntime.InferenceSession(str(result.typed.path), providers=["CPUExecutionProvider"])
    with says.raises(InputError):
        verify(mlp(FLOAT), typed, samples(mlp(FLOAT)))
    assert verify(typed, result.typed.path, samples(mlp(HALF))).met
    found = next(each for each in scan(typed).findings if each.rule == "HW301")
    assert found.remedy is not None and found.remedy.startswith("no runtime loads the file")


def test_a_file_in_fp32_is_said_to_be_nothing_else() -> None:
    document = fix(mlp(FLOAT), samples(mlp(FLOAT))).to_json()
    assert "typed" not in document["model"] and "typed" not in document["error"]


@pytest.mark.parametrize("keep", [True, False], ids=["io-kept", "io-fp16"])
@pytest.mark.parametrize("factor", [1.0, BROKEN])
def test_a_second_fix_changes_nothing(keep: bool, factor: float, tmp_path: Path) -> None:
    typed = convert_float_to_float16(mlp(FLOAT, factor), keep_io_types=keep)
    first = fix(typed, samples(mlp(FLOAT)), out=tmp_path / "first")
    assert first.typed is not None
    second = fix(first.typed.path, samples(mlp(FLOAT)), out=tmp_path / "second")
    assert second.typed is not None and second.measured.typed_verdict is not None
    assert content(second.typed.path) == content(first.typed.path)
    assert second.plan.repairs == () and second.measured.typed_verdict.met


def test_the_reference_of_verify_is_the_widened_file(tmp_path: Path) -> None:
    typed = mlp(HALF, BROKEN)
    found = verify(typed, typed, samples(typed))
    assert not found.met and found.notes[0].kind is NoteKind.TYPED_ALREADY
    fixed = fix(typed, samples(typed), out=tmp_path).typed
    assert fixed is not None and verify(typed, fixed.path, samples(typed)).met
    assert verify(mlp(FLOAT, BROKEN), fixed.path, samples(typed)).met  # these weights are the same in FP16


def test_other_verbs_take_it_as_they_take_its_fp32_twin() -> None:
    typed, twin = mlp(HALF, BROKEN), mlp(FLOAT, BROKEN)
    ranges = [{each.name: (each.max, each.over) for each in trace(m, samples(twin)).tensors} for m in (typed, twin)]
    assert ranges[0] == ranges[1] and ranges[0]["c"][1] > 0.0
    found = [{(each.rule, each.where.name) for each in scan(m).findings} for m in (typed, twin)]
    assert found[0] - found[1] == {("HW301", "types")} and not found[1] - found[0]
    runs = [stages(m, samples(twin), cut=["n"]) for m in (typed, twin)]
    assert [each.finding for each in runs[0].stages] == [each.finding for each in runs[1].stages]
    assert runs[0].notes[0].kind is NoteKind.TYPED_ALREADY


def test_bf16_samples_from_a_file(tmp_path: Path) -> None:
    """NumPy writes BF16 as bytes without a type."""
    typed = mlp(BRAIN)
    for index, feed in enumerate(samples(typed)):
        np.savez(tmp_path / f"{index}.npz", x=feed["x"].astype(ml_dtypes.bfloat16))
    result = fix(typed, tmp_path)
    assert result.samples.origin == "given"
    assert all(feed["x"].tobytes() in {each["x"].tobytes() for each in samples(typed)} for feed in result.samples.all)


def test_inputs_in_bf16_are_for_targets_that_have_it(says: Says) -> None:
    plain = mlp(FLOAT)
    with says.raises(InputError):
        fix(plain, samples(plain), io_types="bf16", target="trt-8.6")


def test_a_selection_inside_is_judged_of_the_file_as_typed_too() -> None:
    """What is judged before a TopK is a tensor inside of the model."""
    nodes = [
        node("MatMul", "x w", "s"),
        node("TopK", "s k", "y i", axis=-1),
    ]
    held = [tensor("w", HALF, weights((32, 64))), numpy_helper.from_array(np.array([4]), "k")]
    outputs = [value("y", HALF, ("n", 4)), value("i", TensorProto.INT64, ("n", 4))]
    typed = model(nodes, [value("x", HALF, ("n", 32))], outputs, held)
    result = fix(typed, samples(typed))
    assert result.met and result.measured.typed_verdict is not None and result.measured.typed_verdict.met


def product(kind: int, array: NDArray[Any]) -> onnx.ModelProto:
    held = [tensor("w", kind, array)]
    return model([node("MatMul", "x w", "y")], [value("x", kind, (2, 32))], [value("y", kind, (2, 64))], held)


def stored(result: FixResult) -> list[tuple[str, str]]:
    return [(each.subject, each.values["rule"]) for each in result.notes if each.kind is NoteKind.STORED_WEIGHT]


def test_weights_that_fp16_had_no_room_for_are_told() -> None:
    array = weights((32, 64))
    array[0, 0] = np.inf
    typed = product(HALF, array)
    assert stored(fix(typed, samples(typed))) == [("w", "HW105")]
    array[0, 0] = 65504.0
    typed = product(HALF, array)
    assert stored(fix(typed, samples(typed))) == [("w", "HW108")]
    array[0] = np.inf
    typed = product(HALF, array)
    with pytest.raises(InputError, match=r"stores 'w' as infinity.*--reference"):
        fix(typed, samples(typed))
    whole = product(FLOAT, np.where(np.isinf(array), 70000.0, array))
    healed = fix(typed, samples(typed), reference=whole)
    assert stored(healed) == [] and healed.measured.typed_verdict is not None
    assert not healed.measured.typed_verdict.met


@pytest.mark.parametrize("kind", [HALF, BRAIN], ids=["fp16", "bf16"])
@pytest.mark.parametrize("count", [1, 4])
def test_inputs_are_those_that_the_file_takes(kind: int, count: int) -> None:
    """What its own types round away of an input is no error that FP32 nodes could mend, of variants neither."""
    dtype = np.float16 if kind == HALF else ml_dtypes.bfloat16
    nodes = [node("Sub", "x c", "d"), node("Relu", "d", "r"), node("Sqrt", "r", "y")]
    ends = [value("x", kind, (64,))], [value("y", kind, (64,))]
    typed = model(nodes, *ends, [weight("c", np.array(256, dtype))], opset=18)
    rng = np.random.default_rng(3)
    feeds = [{"x": (256 + rng.uniform(-1, 8, 64)).astype(np.float32)} for _ in range(count)]
    result = fix(typed, feeds)
    assert result.met and not result.fp32_nodes
    assert result.measured.promise is None or result.measured.promise.carried


def test_an_interface_that_the_target_lacks_is_fp32(tmp_path: Path) -> None:
    typed = mlp(BRAIN)
    result = fix(typed, samples(typed), target="trt-8.6", out=tmp_path)
    assert NoteKind.IO_WIDENED in kinds(result) and result.typed is not None
    found = onnx.load(result.typed.path).graph
    assert {each.type.tensor_type.elem_type for each in (*found.input, *found.output)} == {FLOAT}


@pytest.mark.parametrize("io_types", ["fp32", "fp16"])
def test_an_output_beyond_its_type_is_handed_over_in_fp32(io_types: str, tmp_path: Path) -> None:
    """Beside one that fits, which keeps its type; the inputs keep theirs."""
    typed = io_types == "fp32"
    half, array = (HALF, np.float16) if typed else (FLOAT, np.float32)
    nodes = [node("Mul", "x c", "large"), node("Relu", "x", "small")]
    given = model(
        nodes, [value("x", half)], [value("large", half), value("small", half)], [weight("c", np.array(30000, array))]
    )
    feeds = [{"x": np.array([1, 2, 3, 4 + n], array)} for n in range(3)]
    result = fix(given, feeds, io_types=io_types, out=tmp_path)
    assert result.good and NoteKind.OUTPUT_WIDENED in kinds(result) and result.typed is not None
    found = onnx.load(result.typed.path).graph
    types = {each.name: each.type.tensor_type.elem_type for each in (*found.input, *found.output)}
    assert types == {"x": HALF, "large": FLOAT, "small": HALF}


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
def test_a_loop_that_reads_what_a_cast_made_outside(target: str, tmp_path: Path) -> None:
    """ONNX Runtime's CPU provider drops a Cast there and back that only the body of a loop reads, and then fails."""
    text = """<ir_version: 8, opset_import: ["" : 17]> agraph (float16[4] x) => (float16[4] y) {
        s = Cast <to = 1> (x) h = Cast <to = 10> (s) w = Cast <to = 1> (h) n = Constant <value_int = 3> ()
        c = Cast <to = 9> (n) k = Tanh (s)
        r = Loop (n, c, k) <body = b (int64 i, bool d, float[4] p) => (bool e, float[4] q) {
            e = Identity (d) q = Add (p, w) }>
        y = Cast <to = 10> (r) }"""
    feeds = [{"x": np.random.default_rng(seed).standard_normal(4).astype(np.float16)} for seed in range(4)]
    made = fix(onnx.parser.parse_model(text), feeds, target=target, out=tmp_path)
    assert made.good and made.typed is not None
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(str(made.typed.path), options, providers=["CPUExecutionProvider"])
        for feed in feeds:
            wide = feed["x"].astype(np.float32)
            assert np.allclose(session.run(None, feed)[0], np.tanh(wide) + 3 * wide, rtol=1e-2, atol=1e-2)
