"""A storage format is one record: FP8 E4M3 is added here, and all that depends on formats works for it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from halfwise.core.counting import count
from halfwise.core.errors import InputError
from halfwise.core.formats import FORMATS, Format, format_named, round_to
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.profiles import TENSORRT_FP16_SUMS
from halfwise.emulation.profiles.steps import Steps
from halfwise.model.elements import Elements, count_all
from halfwise.model.model import Model, load
from halfwise.model.ops import slot_rule
from halfwise.model.weights import convert_array
from halfwise.precision.assignment import Assignment
from halfwise.precision.plan import PlannedNode, read_plan
from halfwise.precision.rewrite import Names
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight
from tests.support.says import Says
from tests.support.scalar_formats import round_array

# Finite values and NaN only: what lies beyond the largest becomes the largest.
FP8 = Format(
    "fp8-e4m3",
    TensorProto.FLOAT8E4M3FN,
    np.dtype(ml_dtypes.float8_e4m3fn),
    exponent_bits=4,
    mantissa_bits=3,
    max=448.0,
    saturating=True,
)


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    FORMATS[FP8.value] = FP8
    yield
    del FORMATS[FP8.value]


def every_value() -> np.ndarray:
    """All that the format has, what lies in the middle of two, and the neighbours of both in FP32."""
    values = np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    middles = (values[1:] + values[:-1]) / 2
    both = np.concatenate([values, middles])
    both = np.concatenate([both, np.nextafter(both, np.float32(0)), np.nextafter(both, np.float32(np.inf))])
    return np.concatenate([both, -both])


def test_limits_are_those_of_the_type() -> None:
    info = ml_dtypes.finfo(FP8.dtype)
    assert (FP8.max, FP8.dtype.itemsize) == (float(info.max), 1)
    assert (FP8.smallest_normal, FP8.smallest_subnormal) == (
        float(info.smallest_normal),
        float(info.smallest_subnormal),
    )
    assert FP8.unit_roundoff == float(info.eps) / 2


@pytest.mark.parametrize("size", [1, 1_000])  # few values and many are rounded in different ways
def test_rounding_is_that_of_the_type_and_saturates(size: int) -> None:
    values = np.repeat(every_value(), -(-size // 256))
    rounded = round_to(values, FP8)
    np.testing.assert_array_equal(rounded, values.astype(ml_dtypes.float8_e4m3fn).astype(np.float32))
    beyond = np.resize(np.array([449, 464, 464.1, 1e30, np.inf, -465, -np.inf, np.nan], np.float32), max(size, 8))
    same = np.resize(np.array([448] * 5 + [-448] * 2 + [np.nan], np.float32), max(size, 8))
    np.testing.assert_array_equal(round_to(beyond, FP8), same)


@given(st.integers(0, 2**32 - 1), st.sampled_from([100, 1_000]))
def test_rounding_of_any_bits(seed: int, size: int) -> None:
    values = np.random.default_rng(seed).integers(0, 2**32, size, np.uint32).view(np.float32)
    values = np.concatenate([values, np.float32(10) * np.random.default_rng(seed).standard_normal(size, np.float32)])
    np.testing.assert_array_equal(round_to(values, FP8), round_array(values, FP8))


def test_values_that_it_holds_badly_are_counted() -> None:
    array = np.array([0, 2.0**-10, 2.0**-9, 2.0**-7, 2.0**-6, 448, 449, -1e9, np.inf, np.nan], np.float32)
    seen = count(array, FP8)
    assert (seen.underflow, seen.subnormal, seen.overflow, seen.nonfinite) == (1, 2, 2, 2)
    [stored] = count_all([Elements(np.array([1, 2.0**-9, 448], FP8.dtype))])
    assert (stored.count, stored.overflow, stored.min_abs, stored.max_abs) == (3, 0, 2.0**-9, 448)


def test_a_weight_is_clamped_and_told() -> None:
    narrow, beyond = convert_array(np.array([1.06, -1e6], np.float32), FP8)
    assert narrow.dtype == FP8.dtype and narrow.astype(np.float32).tolist() == [1.0, -448.0] and beyond
    assert not convert_array(np.array([448, np.nan], np.float32), FP8)[1]


def turned() -> Model:
    """A product of what was moved in a narrow format: an input and a weight."""
    rng = np.random.default_rng(1)
    nodes = [
        node("Transpose", "x", "turned", name="turn", perm=[1, 0]),
        node("Transpose", "w", "weights", name="turn_weights", perm=[1, 0]),
        node("MatMul", "turned weights", "y", name="product"),
    ]
    weights = [weight("w", rng.standard_normal((300, 8)).astype(np.float32))]
    return load(model(nodes, [value("x", shape=(8, 4))], [value("y", shape=(4, 300))], weights, opset=21))


def test_a_stored_tensor_is_emulated() -> None:
    loaded = turned()
    sites = Sites(loaded, FP8)
    assert [site.name for site in sites.free] == ["turn", "turn_weights"]  # no schema has a product of FP8
    assignment = Assignment.excepting(sites, {})
    x = (100 * np.random.default_rng(2).standard_normal((8, 4))).astype(np.float32)
    w = np.asarray(loaded.graph.initializers["w"].const_value.numpy())  # type: ignore[union-attr]
    got = Emulator().session(assignment).run({"x": x})["y"]
    np.testing.assert_allclose(got, round_array(x, FP8).T @ round_array(w, FP8).T, rtol=1e-5, atol=1e-4)
    typed = typed_proto(assignment)
    onnx.checker.check_model(typed, full_check=True)
    read = load(typed)
    again = Emulator().session(Assignment(Sites(read), {})).run(widen_feeds({"x": x}))["y"]
    np.testing.assert_array_equal(again, got)


def test_a_plan_may_name_it_and_a_target_that_does_not_take_it_refuses(tmp_path: Path, says: Says) -> None:
    samples = [{"x": np.ones((8, 4), np.float32)}]
    plan = fix(turned(), samples).plan
    plan = replace(plan, nodes=(PlannedNode("turn", "Transpose", FP8, Reason.WANTED, ()),))
    (tmp_path / "plan.json").write_text(plan.text())
    assert read_plan(tmp_path / "plan.json").nodes[0].format is FP8
    with says.raises(InputError):
        fix(turned(), samples, plan=plan)


def test_a_copy_is_the_format_itself() -> None:
    assert pickle.loads(pickle.dumps(FP8)) is copy.deepcopy(FP8) is FP8
    assert [format_named(name) for name in ("fp8-e4m3", "fp4", ["fp16"])] == [FP8, None, None]


def test_a_format_that_a_kernel_does_not_know_is_an_error_and_no_bf16() -> None:
    loaded = turned()
    assert slot_rule("MatMul", "", 13, FP8).why == Note.of(
        NoteKind.NO_NARROW_FORM, "MatMul", version=13, format="FP8-E4M3"
    )
    steps = Steps(loaded.node_by_name["product"], FP8, Names.of(loaded), 21, "y")
    with pytest.raises(InputError, match="fp8-e4m3"):
        TENSORRT_FP16_SUMS.kernels["MatMul"](onnx.NodeProto(), steps)
