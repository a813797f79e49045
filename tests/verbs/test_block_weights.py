"""Packed weights of ONNX Runtime's operators for TensorRT: as small as they are, and with the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from halfwise.compiler import rtx
from halfwise.core.notes import NoteKind
from halfwise.core.targets import Target
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.repair.block_weights import with_block_weights
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.own_operators import read_by
from tests.model.test_contrib import session
from tests.models.build import model, node, value
from tests.models.contrib_cases import DOMAIN
from tests.models.quantised import whole
from tests.support.deployed import needs_rtx
from tests.support.messages import kinds, only

Array = NDArray[Any]
ROWS, COLUMNS, BLOCK = 24, 64, 16
SHAPE = (ROWS, COLUMNS // BLOCK, BLOCK)
X = np.random.default_rng(7).standard_normal((2, 5, COLUMNS)).astype(np.float32)
TARGETS = ("rtx-1.7", "trt-10.9")


def packed(numbers: Array, bits: int) -> Array:
    """The first number in the lowest bits of a byte."""
    digits = np.unpackbits(numbers.astype(np.uint8)[..., None], axis=-1, bitorder="little")[..., :bits]
    return np.packbits(digits.reshape(*numbers.shape[:-1], -1), axis=-1, bitorder="little")


def scales_of(kind: str) -> Array:
    rng = np.random.default_rng(3)
    scales = rng.uniform(0.01, 0.1, SHAPE[:2])
    if kind != "positive":
        scales *= rng.choice([-1, 1], SHAPE[:2])
    if kind == "zero":
        scales[::5, 1] = 0
    return scales.astype(np.float32)


def zeros_of(kind: str, bits: int) -> Array:
    rng = np.random.default_rng(4)
    if kind == "floats":
        return rng.uniform(0, 1 << bits, SHAPE[:2]).astype(np.float32)
    return rng.integers(0, 1 << bits, SHAPE[:2]) if kind == "whole" else np.full(SHAPE[:2], 1 << (bits - 1))


def weights(bits: int, scales: str, zeros: str) -> tuple[Array, list[onnx.TensorProto]]:
    """The matrix (rows, columns) by itself, and what a file holds of it."""
    numbers = np.random.default_rng(5).integers(0, 1 << bits, SHAPE)
    factors, points = scales_of(scales), zeros_of(zeros, bits)
    matrix = (numbers - points[..., None].astype(np.float64)) * factors[..., None]
    kept = [numpy_helper.from_array(packed(numbers, bits), "w"), numpy_helper.from_array(factors, "s")]
    if zeros == "floats":
        kept.append(numpy_helper.from_array(points, "z"))
    elif zeros == "whole":
        kept.append(numpy_helper.from_array(packed(points, bits), "z"))
    return matrix.reshape(ROWS, COLUMNS), kept


def product(bits: int, scales: str, zeros: str) -> tuple[Array, onnx.ModelProto]:
    """x times it, and a bias; what that is, and the model."""
    matrix, kept = weights(bits, scales, zeros)
    bias = np.linspace(-1, 1, ROWS).astype(np.float32)
    names = ["x", "w", "s", "z" if len(kept) > 2 else "", "", "b"]
    made = helper.make_node(
        "MatMulNBits", names, ["y"], "m", domain=DOMAIN, K=COLUMNS, N=ROWS, bits=bits, block_size=BLOCK
    )
    kept.append(numpy_helper.from_array(bias, "b"))
    shapes = (["n", 5, COLUMNS], ["n", 5, ROWS])
    return X @ matrix.T + bias, own(model([made], [value("x", shape=shapes[0])], [value("y", shape=shapes[1])], kept))


def own(proto: onnx.ModelProto) -> onnx.ModelProto:
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return proto


def table(bits: int, scales: str, zeros: str) -> tuple[Array, onnx.ModelProto]:
    """Rows of it, for the products' input: what they are, and the model."""
    matrix, kept = weights(bits, scales, zeros)
    kept[0] = numpy_helper.from_array(numpy_helper.to_array(kept[0]).reshape(ROWS, -1), "w")
    names = ["w", "ids", "s", "z"][: len(kept) + 1]
    made = helper.make_node(
        "GatherBlockQuantized",
        names,
        ["g"],
        "m",
        domain=DOMAIN,
        gather_axis=0,
        quantize_axis=1,
        bits=bits,
        block_size=BLOCK,
    )
    nodes = [made, node("Mul", "g x", "y")]
    ends = [value("ids", TensorProto.INT64, ["n", 5]), value("x", shape=["n", 5, COLUMNS])]
    return matrix[IDS] * X, own(model(nodes, ends, [value("y", shape=["n", 5, COLUMNS])], kept))


IDS = np.random.default_rng(6).integers(0, ROWS, (2, 5))
ZEROS = ("none", "whole", "floats")
KINDS = [(scales, zeros) for scales in ("positive", "signed", "zero") for zeros in ZEROS]


def answers(given: onnx.ModelProto | Model) -> Array:
    proto = typed_proto(Assignment(Sites(given), {})) if isinstance(given, Model) else given
    asked = {"x": X, "ids": IDS}
    return np.asarray(session(proto).run(None, {each.name: asked[each.name] for each in proto.graph.input})[0])


def is_close(found: Array, exact: Array) -> bool:
    return bool(np.linalg.norm(found - exact) <= 1e-6 * np.linalg.norm(exact))


def held(model: Model | onnx.ModelProto) -> dict[str, int]:
    """The bytes of its weights, by their type."""
    graph = (load(model) if isinstance(model, onnx.ModelProto) else model).graph
    found: dict[str, int] = {}
    for each in (one.const_value for one in graph.initializers.values()):
        if each is not None and each.dtype.name != "INT64":
            found[each.dtype.name] = found.get(each.dtype.name, 0) + each.nbytes
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize(("scales", "zeros"), KINDS)
def test_a_product_with_packed_weights_is_the_same(target: str, bits: int, scales: str, zeros: str) -> None:
    exact, proto = product(bits, scales, zeros)
    given = load(proto)
    read, _ = read_by(Target.parse(target), given)
    assert held(read)["INT4"] == ROWS * COLUMNS // 2 and "UINT8" not in held(read)
    assert is_close(answers(read), exact) and is_close(answers(given), exact)


@pytest.mark.parametrize(("scales", "zeros"), KINDS)
def test_tensorrt_rtx_reads_packed_weights_of_a_byte(scales: str, zeros: str) -> None:
    exact, proto = product(8, scales, zeros)
    read, _ = read_by(Target.parse("rtx-1.7"), load(proto))
    assert held(read)["INT8"] == ROWS * COLUMNS
    assert is_close(answers(read), exact)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(("scales", "zeros"), [kind for kind in KINDS if kind[1] != "floats"])
def test_rows_of_a_packed_table_are_the_same(target: str, bits: int, scales: str, zeros: str) -> None:
    exact, proto = table(bits, scales, zeros)
    read, _ = read_by(Target.parse(target), load(proto))
    assert is_close(answers(read), exact)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_symmetric_weights_are_bit_by_bit_the_same(bits: int) -> None:
    """Nothing is added, and a number times its scale is what ONNX Runtime multiplies with."""
    _, proto = product(bits, "positive", "none")
    read, _ = read_by(Target.parse("rtx-1.7"), load(proto))
    assert [each.op_type for each in read.nodes] == ["DequantizeLinear", "Transpose", "MatMul", "Add"]
    numbers, scales = (value.const_value.numpy() for value in read.nodes[0].inputs if value and value.const_value)
    given = np.random.default_rng(5).integers(0, 1 << bits, SHAPE).astype(np.float32) - (1 << (bits - 1))
    assert np.array_equal(
        numbers.astype(np.float32) * np.repeat(scales, BLOCK, 1),
        (given * scales_of("positive")[..., None]).reshape(ROWS, COLUMNS),
    )


@pytest.mark.parametrize("target", ["trt-8.6", "trt-9.3", "trt-10.9+weak"])
def test_what_reads_no_scales_of_blocks_is_given_floats(target: str) -> None:
    exact, proto = product(4, "positive", "whole")
    read, notes = read_by(Target.parse(target), load(proto))
    assert set(held(read)) == {"FLOAT"} and is_close(answers(read), exact)
    assert only(notes, NoteKind.QUANTISED_STORED).values == {"node": "m", "count": 1}


@pytest.mark.parametrize("broken", ["groups", "ends within a block", "open rank"])
def test_weights_in_another_order_are_not_taken_for_blocks(broken: str) -> None:
    _, proto = product(4, "positive", "none")
    made = proto.graph.node[0]
    if broken == "groups":
        made.input[4] = "order"
        proto.graph.initializer.append(numpy_helper.from_array(np.arange(COLUMNS, dtype=np.int32), "order"))
    elif broken == "open rank":
        proto.graph.input[0].type.tensor_type.ClearField("shape")
    else:
        next(each for each in made.attribute if each.name == "K").i = COLUMNS - 3
    assert not with_block_weights(load(proto), ("INT4",), ()).written


def chain(bits: int, zeros: str) -> onnx.ModelProto:
    """A table and two products, all of the same weight."""
    _, kept = weights(bits, "signed", zeros)
    packed_rows = numpy_helper.from_array(numpy_helper.to_array(kept[0]).reshape(ROWS, -1), "w2")
    points = ["z"] if len(kept) > 2 else []
    own_block = {"domain": DOMAIN, "bits": bits, "block_size": BLOCK}
    nodes = [
        helper.make_node(
            "GatherBlockQuantized", ["w2", "ids", "s", *points], ["g"], "t", gather_axis=0, quantize_axis=1, **own_block
        ),
        node("Tanh", "g", "h"),
        helper.make_node("MatMulNBits", ["h", "w", "s", *points], ["y"], "m", K=COLUMNS, N=ROWS, **own_block),
    ]
    ends = [value("ids", TensorProto.INT64, ["n", 5])]
    return own(model(nodes, ends, [value("y", shape=["n", 5, ROWS])], [*kept, packed_rows]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("zeros", ["none", "whole"])
def test_the_written_model_is_right_and_holds_no_more(bits: int, zeros: str, target: str, tmp_path: Path) -> None:
    feeds = [{"ids": np.random.default_rng(each).integers(0, ROWS, (2, 5))} for each in range(4)]
    proto = chain(bits, zeros)
    result = fix(proto, feeds, target=target, out=tmp_path)
    assert result.met and not result.fp32_nodes and result.typed is not None
    assert only(result.notes, NoteKind.OWN_NOT_READ).values["ops"] == ["GatherBlockQuantized", "MatMulNBits"]
    typed = onnx.load(result.typed.path)
    assert sum(held(typed).values()) <= sum(held(proto).values()) * (1 if bits == 4 else 2)
    for feed in feeds:
        found, exact = (session(each).run(None, feed)[0] for each in (typed, proto))
        assert np.linalg.norm(found - exact) <= 5e-3 * np.linalg.norm(exact)


def dequantised(kind: int, scales: str, zeros: bool) -> tuple[Array, onnx.ModelProto]:
    """x times a weight of 4 bits in ONNX's own operators, and a bias."""
    rng, least = np.random.default_rng(8), 0 if kind == TensorProto.UINT4 else -8
    numbers = rng.integers(least, least + 16, (COLUMNS, ROWS))
    factors = np.ascontiguousarray(scales_of(scales).T)
    points = rng.integers(least, least + 16, factors.shape) if zeros else np.zeros(factors.shape, np.int64)
    kept = [whole("w", numbers, kind), numpy_helper.from_array(factors, "s")]
    kept += [whole("z", points, kind)] if zeros else []
    nodes = [
        node("DequantizeLinear", "w s z" if zeros else "w s", "v", axis=0, block_size=BLOCK),
        node("MatMul", "x v", "p"),
        node("Add", "p b", "y"),
    ]
    kept.append(numpy_helper.from_array(np.linspace(-1, 1, ROWS).astype(np.float32), "b"))
    wide = [np.repeat(each.astype(np.float64), BLOCK, 0) for each in (points, factors)]
    matrix = (numbers - wide[0]) * wide[1]
    exact = X @ matrix + np.linspace(-1, 1, ROWS)
    ends = [value("x", shape=["n", 5, COLUMNS])], [value("y", shape=["n", 5, ROWS])]
    return exact, model(nodes, *ends, kept, opset=21, ir_version=10)


BLOCKED = [
    (kind, scales, zeros)
    for kind in (TensorProto.UINT4, TensorProto.INT4)
    for scales in ("positive", "signed", "zero")
    for zeros in (False, True)
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "scales", "zeros"), BLOCKED)
def test_weights_of_4_bits_about_other_zero_points_stay_small(kind: int, scales: str, zeros: bool, target: str) -> None:
    exact, proto = dequantised(kind, scales, zeros)
    read, notes = read_by(Target.parse(target), load(proto))
    assert held(read)["INT4"] == ROWS * COLUMNS // 2 and not notes
    made = next(each for each in read.nodes if each.op_type == "DequantizeLinear")
    factors = made.inputs[1].const_value.numpy() if made.inputs[1] and made.inputs[1].const_value else np.zeros(1)
    assert len(made.inputs) == 2 and factors.all() and (target == "rtx-1.7" or (factors > 0).all())
    plain = ReferenceEvaluator(typed_proto(Assignment(Sites(read), {})))  # ONNX Runtime would multiply in INT8
    assert is_close(np.asarray(plain.run(None, {"x": X})[0]), exact)


@needs_rtx
@pytest.mark.parametrize(("kind", "scales", "zeros"), BLOCKED)
def test_tensorrt_rtx_builds_weights_of_4_bits(kind: int, scales: str, zeros: bool, tmp_path: Path) -> None:
    _, proto = dequantised(kind, scales, zeros)
    result = fix(proto, [{"x": X}, {"x": X[::-1].copy()}], target="rtx-1.7", out=tmp_path)
    assert result.met and NoteKind.COMPILED_ALL_NARROW in kinds(result.notes)
    assert result.typed is not None and held(onnx.load(result.typed.path))["INT4"] == ROWS * COLUMNS // 2


@needs_rtx
@pytest.mark.parametrize(
    ("bits", "scales", "zeros"), [*((4, *kind) for kind in KINDS), (2, *KINDS[0]), (8, *KINDS[-1])]
)
def test_tensorrt_rtx_builds_it(bits: int, scales: str, zeros: str, tmp_path: Path) -> None:
    for name, made in (("product", product), ("table", table))[: 1 if zeros == "floats" else 2]:
        read, _ = read_by(Target.parse("rtx-1.7"), load(made(bits, scales, zeros)[1]))
        path = tmp_path / f"{name}.onnx"
        onnx.save(typed_proto(Assignment(Sites(read), {})), path)
        shapes = {"x": X.shape, "ids": IDS.shape}
        profiles = {each.name: (shapes[each.name],) * 3 for each in read.inputs}
        assert rtx.build(path, profiles=profiles, time_limit_s=120, tf32=False).engine_bytes


@pytest.mark.parametrize("target", TARGETS)
def test_norms_of_onnx_runtimes_own_do_not_keep_an_older_model_from_it(target: str) -> None:
    """They stand in ONNX's domain, without a schema there."""
    _, proto = product(4, "positive", "none")
    proto.graph.node.insert(
        0, helper.make_node("SimplifiedLayerNormalization", ["x", "g"], ["n"], "norm", epsilon=1e-5)
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.linspace(0.5, 2, COLUMNS).astype(np.float32), "g"))
    proto.graph.node[1].input[0] = "n"
    read, _ = read_by(Target.parse(target), load(proto))
    assert "INT4" in held(read) and is_close(answers(read), answers(proto))
