"""ONNX's own node cases: which have a float tensor, what to feed them, and how close an answer has to be."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from halfwise.core.formats import Format, round_to

FLOAT_TYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
FLOAT_NAMES = ("float16", "bfloat16", "float32", "float64")

# The roundings on the way to an output, each of half a unit: the inputs', those in between, its own.
UNITS = 4.0

# Cases where the operator itself makes more of a rounding error than that.
MORE_UNITS = {
    "test_tan": 32.0,  # near a pole
    "test_atanh": 8.0,  # near a pole
    "test_matmul_1d_3d": 16.0,  # the products cancel
    "test_hannwindow_symmetric_expanded": 8.0,  # the cosine of a large angle, subtracted from its like
    "test_blackmanwindow_expanded": 8.0,  # the same
    "test_batchnorm_epsilon_training_mode": 32.0,  # statistics: differences of few values
    "test_batchnorm_example_training_mode": 32.0,
}

# Cases whose inputs FP16 and BF16 do not hold (10000, 10001, 10002): compared with what the model as given answers to
# the inputs that the format does hold. Where the node that reads them is FP32, or where ONNX Runtime drops the Cast in
# a typed model, the answer to the true inputs is right, too.
ON_ROUNDED_INPUTS = ("test_softmax_large_number", "test_logsoftmax_large_number")

# Cases whose answer is a quotient rounded to an integer: a rounding before may move it, as BF16's of a scale by two.
MOVED_BY_ONE = tuple(f"test_dynamicquantizelinear{which}_expanded" for which in ("", "_max_adjusted", "_min_adjusted"))


_STORED: dict[str, tuple[Any, Any]] = {
    "tensor_type": (onnx.TensorProto, lambda proto: proto),
    "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
    "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
}


@dataclass(frozen=True)
class Case:
    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any]
    expected: dict[str, Any]

    @property
    def narrow_inside(self) -> Format:
        """BF16 where the model as given has a BF16 tensor: its answer is no better than that."""
        kinds = {a.i for node in self.model.graph.node for a in node.attribute if a.name in ("to", "stash_type")}
        return Format.BF16 if onnx.TensorProto.BFLOAT16 in kinds else Format.FP16

    def half(self) -> random.Random:
        """A coin for each of the case's nodes, the same in every run."""
        return random.Random(self.name)


@cache
def float_cases() -> tuple[Case, ...]:
    """Every node case with a float tensor among its inputs or outputs, with the model as its authors stamped it."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    cases = []
    for case in found:
        model = case.model or onnx.load(Path(case.model_dir) / "model.onnx")
        graph = model.graph
        if any(_element_type(v.type) in FLOAT_TYPES for v in (*graph.input, *graph.output)):
            inputs, outputs = case.data_sets[0] if case.data_sets else _stored(Path(case.model_dir), graph)
            feeds = {v.name: _array(x) for v, x in zip(graph.input, inputs, strict=False)}
            expected = {v.name: _array(x) for v, x in zip(graph.output, outputs, strict=True)}
            cases.append(_feedable(Case(case.name, model, feeds, expected)))
    return tuple(cases)


def _stored(folder: Path, graph: onnx.GraphProto) -> tuple[list[Any], list[Any]]:
    """The first set of inputs and outputs, where onnx keeps cases as files."""

    def read(kind: str, values: Iterable[onnx.ValueInfoProto]) -> list[Any]:
        found = []
        for number, value in enumerate(values):
            stored, whole = _STORED[value.type.WhichOneof("value") or "tensor_type"]
            path = folder / "test_data_set_0" / f"{kind}_{number}.pb"
            if path.exists():
                found.append(whole(stored.FromString(path.read_bytes())))
        return found

    return read("input", graph.input), read("output", graph.output)


def _feedable(case: Case) -> Case:
    """Types that NumPy does not have come in and go out as FP32, which holds their values, through a Cast."""
    graph = case.model.graph
    before, after = [], []
    for info in graph.input:
        if _is_foreign(case.feeds.get(info.name)):
            before.append(_cast(f"{info.name}_given", info.name, info.type.tensor_type.elem_type))
            info.name, info.type.tensor_type.elem_type = f"{info.name}_given", onnx.TensorProto.FLOAT
    for info in graph.output:
        if _is_foreign(case.expected[info.name]):
            after.append(_cast(info.name, f"{info.name}_wide", onnx.TensorProto.FLOAT))
            info.name, info.type.tensor_type.elem_type = f"{info.name}_wide", onnx.TensorProto.FLOAT
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    feeds = {f"{k}_given" if _is_foreign(x) else k: _wide(x) for k, x in case.feeds.items()}
    expected = {f"{k}_wide" if _is_foreign(x) else k: _wide(x) for k, x in case.expected.items()}
    return Case(case.name, case.model, feeds, expected)


def _is_foreign(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.isbuiltin == 2  # defined by another package


def _wide(array: Any) -> Any:
    return array.astype(np.float32) if _is_foreign(array) else array


def _cast(source: str, target: str, element_type: int) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [source], [target], to=element_type)


def _element_type(kind: onnx.TypeProto) -> int:
    """Of a tensor, or of the tensors in a sequence or an optional."""
    if kind.HasField("sequence_type"):
        return _element_type(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        return _element_type(kind.optional_type.elem_type)
    return kind.tensor_type.elem_type


def _array(given: Any) -> Any:
    if isinstance(given, onnx.TensorProto):
        return numpy_helper.to_array(given)
    return np.asarray(given) if isinstance(given, np.generic) else given


def rounded(feeds: dict[str, Any], fmt: Format, slots: set[str] | None = None) -> dict[str, Any]:
    """The FP32 inputs (those in `slots`, or all), rounded."""
    return {
        name: round_to(feed, fmt)
        if isinstance(feed, np.ndarray) and feed.dtype == np.float32 and (slots is None or name in slots)
        else feed
        for name, feed in feeds.items()
    }


def differs(got: Any, expected: Any, fmt: Format, units: float, steps: int = 0) -> str | None:
    """Why an answer is not the expected one within the bounds; None where it is. Integers may be off by `steps`."""
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return "another number of tensors"
        reasons = (differs(g, e, fmt, units, steps) for g, e in zip(got, expected, strict=True))
        return next((reason for reason in reasons if reason), None)
    if expected is None or got is None:
        return None if expected is got else "a tensor where none should be, or none where one should"
    want, have = np.asarray(expected), np.asarray(got)
    if have.shape != want.shape:
        return f"shape {have.shape}, expected {want.shape}"
    if want.dtype.name not in FLOAT_NAMES:
        far = have != want
        if steps:
            far &= np.abs(have.astype(np.int64) - want.astype(np.int64)) > steps
        return f"{np.count_nonzero(far)} values differ" if far.any() else None
    want, have = want.astype(np.float64), have.astype(np.float64)
    beyond = np.abs(want) > fmt.max * (1 - units * fmt.unit_roundoff)
    fits = (have == want) | (np.isnan(have) & np.isnan(want))
    fits |= beyond & (np.sign(have) == np.sign(want)) & (np.abs(have) > fmt.max * (1 - 2 * units * fmt.unit_roundoff))
    held = np.abs(want[np.isfinite(want) & ~beyond])
    allowed = units * fmt.unit_roundoff * held.max(initial=0.0) + fmt.smallest_subnormal
    with np.errstate(invalid="ignore"):
        fits |= np.abs(have - want) <= allowed
    if fits.all():
        return None
    worst = float(np.max(np.abs(have - want)[~fits]))
    return f"{np.count_nonzero(~fits)} values are wrong by up to {worst:.3g}, {allowed:.3g} allowed"


def same_bits(one: Any, other: Any) -> bool:
    """Equal in every bit, but for the payload of a NaN."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same_bits(a, b) for a, b in zip(one, other, strict=True))
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    alike = (one == other) & (np.signbit(one) == np.signbit(other))
    return bool((alike | (np.isnan(one) & np.isnan(other))).all())
