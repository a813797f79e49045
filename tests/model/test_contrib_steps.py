"""ONNX Runtime's own operators, written in ONNX's: against the runtime's kernels, and NumPy where it has none."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from halfwise import fix
from halfwise.core.errors import InputError
from halfwise.model.contrib.decompose import decompose, runs_on_cpu
from halfwise.model.contrib.schemas import RuntimeSchema, runtime_schema
from halfwise.model.contrib.writer import PlainSteps
from halfwise.model.model import load
from tests.model.test_contrib import CASES, IDS, RUNNING, session
from tests.models.contrib_cases import DOMAIN, Case
from tests.models.sliding_cache import sliding

Array = NDArray[Any]
GROUPED = cast(RuntimeSchema, runtime_schema("GroupQueryAttention", DOMAIN))


def written(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model of one node with that node decomposed."""
    model = load(proto)
    (node,) = model.nodes
    names = iter(range(10_000))
    writer = PlainSteps(node, model.opset(), lambda word: f"{word}_{next(names)}")
    results = decompose(writer, [value.name or "" if value is not None else "" for value in node.inputs])
    assert results is not None
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.node[:]
    copy.graph.node.extend(writer.nodes)
    for slot, value in enumerate(node.outputs):
        if value.name:
            copy.graph.node.append(helper.make_node("Identity", [results[slot]], [value.name]))
    return copy


@pytest.mark.parametrize("case", RUNNING, ids=[case.name for case in RUNNING])
def test_steps_give_what_the_kernel_gives(case: Case) -> None:
    proto = written(case.proto())
    assert not any(node.domain for node in proto.graph.node)
    found, exact = (session(each).run(None, case.feeds) for each in (proto, case.proto()))
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5 * max(1.0, float(np.abs(other).max())))


@pytest.mark.skipif("sliding_window_cache" not in GROUPED.attributes, reason="the runtime has no such cache yet")
@pytest.mark.parametrize(
    ("before", "rows", "room", "window", "left"),
    [
        (0, 5, 8, 4, 5),
        (3, 1, 8, 4, 4),
        (8, 1, 8, 4, 4),
        (12, 1, 8, 4, 8),
        (20, 3, 8, 4, 8),
        (8, 1, 8, 8, 8),
        (7, 3, 8, 8, 8),
        (0, 12, 8, 8, 8),
        (0, 5, 8, 8, 5),
    ],
)
def test_a_sliding_cache_holds_the_last_rows(before: int, rows: int, room: int, window: int, left: int) -> None:
    """Of the rows behind them nothing is promised."""
    case = sliding(before, rows, room, window)
    found, exact = (session(each).run(None, case.feeds) for each in (written(case.proto()), case.proto()))
    np.testing.assert_allclose(found[0], exact[0], rtol=2e-4, atol=2e-5)
    for one, other in zip(found[1:], exact[1:], strict=True):
        np.testing.assert_allclose(one[:, :, :left], other[:, :, :left], rtol=2e-4, atol=2e-5)
        assert one.shape == other.shape and not one[:, :, left:].any()


@pytest.mark.skipif("sliding_window_cache" not in GROUPED.attributes, reason="the runtime has no such cache yet")
@pytest.mark.parametrize("room", [0, 3])
def test_a_sliding_cache_with_less_room_than_its_window_is_refused(room: int) -> None:
    """As the kernel refuses it; with one row less steps would divide by zero."""
    case = sliding(0, 5, room, 4)
    with pytest.raises(InputError):
        fix(case.proto(), [case.feeds] * 4)


def test_a_sliding_cache_stated_in_words_is_refused() -> None:
    proto = sliding(0, 5, 8, 4).proto()
    (stated,) = (each for each in proto.graph.node[0].attribute if each.name == "sliding_window_cache")
    stated.CopyFrom(helper.make_attribute("sliding_window_cache", "yes"))
    with pytest.raises(InputError):
        fix(proto, [sliding(0, 5, 8, 4).feeds] * 4)


@pytest.mark.skipif("sliding_window_cache" not in GROUPED.attributes, reason="the runtime has no such cache yet")
def test_what_no_row_came_to_keeps_no_node(tmp_path: Path) -> None:
    case = sliding(3, 1, 8, 4)
    made = fix(case.proto(), [case.feeds] * 4, out=tmp_path, tolerance="rel_l2<=0.005")
    assert made.good and not made.fp32_nodes


@pytest.mark.parametrize("opset", [12, 13, 18, 21])
def test_steps_are_valid_in_old_and_new_opsets(opset: int) -> None:
    for name in ("attention both", "multi-head past", "grouped ragged", "embedding", "skip-norm all", "rotary part"):
        case = CASES[IDS.index(name)]
        proto = case.proto(opset)
        found, exact = (session(each).run(None, case.feeds)[0] for each in (written(proto), proto))
        np.testing.assert_allclose(found, exact, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_operators_that_the_cpu_runs_are_known(case: Case) -> None:
    (node,) = load(case.proto()).nodes
    assert runs_on_cpu(node) is case.runs


def of(name: str) -> tuple[Case, list[Array]]:
    case = CASES[IDS.index(name)]
    return case, session(written(case.proto())).run(None, case.feeds)


def arrays(case: Case) -> list[Array]:
    return [array.astype(np.float64) for array in case.inputs if array is not None]


def exact_gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def group_norm(x: Array, scale: Array, bias: Array, groups: int, epsilon: float) -> Array:
    n, h, w, c = x.shape
    rows = x.reshape(n, h * w, groups, c // groups)
    centred = rows - rows.mean(axis=(1, 3), keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(axis=(1, 3), keepdims=True) + epsilon)
    return np.asarray(normal.reshape(x.shape) * scale + bias)


def test_operators_that_only_a_gpu_runs_against_numpy() -> None:
    case, (found,) = of("split-gelu")
    x, bias = arrays(case)
    left, right = np.split(x + bias, 2, axis=-1)
    np.testing.assert_allclose(found, left * exact_gelu(right), rtol=1e-4, atol=1e-5)

    case, (found,) = of("bias-add")
    np.testing.assert_allclose(found, sum(arrays(case)), rtol=1e-5, atol=1e-5)

    case, (found,) = of("bias-softmax")
    x, bias = arrays(case)
    raised = np.exp(x + bias - (x + bias).max(axis=-1, keepdims=True))
    np.testing.assert_allclose(found, raised / raised.sum(axis=-1, keepdims=True), rtol=1e-4, atol=1e-6)

    case, (found,) = of("group-norm")
    normal = group_norm(*arrays(case), groups=4, epsilon=1e-5)
    np.testing.assert_allclose(found, normal / (1 + np.exp(-normal)), rtol=1e-4, atol=1e-4)

    case, (found, total) = of("skip-group-norm")
    x, scale, shift, skip, bias = arrays(case)
    np.testing.assert_allclose(total, x + skip + bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found, group_norm(x + skip + bias, scale, shift, 8, 1e-5), rtol=1e-3, atol=1e-4)


def attention(q: Array, k: Array, v: Array) -> Array:
    """(batch, heads, sequence, head)."""
    scores = np.einsum("bnsh,bnth->bnst", q, k) / math.sqrt(q.shape[-1])
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = raised / raised.sum(axis=-1, keepdims=True)
    y = np.einsum("bnst,bnth->bsnh", shares, v)
    return y.reshape(*y.shape[:2], -1)


def test_packed_operands_of_attention_against_numpy() -> None:
    case, (found,) = of("multi-head packed")
    q, k, v = (arrays(case)[0][:, :, :, place].transpose(0, 2, 1, 3) for place in range(3))
    np.testing.assert_allclose(found, attention(q, k, v), rtol=1e-4, atol=1e-5)

    case, (found,) = of("multi-head packed keys")
    flat, both = arrays(case)
    q = flat.reshape(*flat.shape[:2], both.shape[2], -1).transpose(0, 2, 1, 3)
    k, v = (both[:, :, :, place].transpose(0, 2, 1, 3) for place in range(2))
    np.testing.assert_allclose(found, attention(q, k, v), rtol=1e-4, atol=1e-5)


def test_norms_of_queries_and_keys_against_numpy_and_the_operator_without_them() -> None:
    """Each head by itself, before it is turned; the keys of the cache are normalised ones."""
    case, found = of("grouped norms")

    def normed(x: Array, weights: Array, epsilon: float) -> Array:
        heads = x.reshape(*x.shape[:2], -1, len(weights)).astype(np.float64)
        root = np.sqrt((heads**2).mean(axis=-1, keepdims=True) + epsilon)
        return np.asarray((heads / root * weights).reshape(x.shape), np.float32)

    q, k, *rest = case.inputs[:9]
    weights = case.inputs[14:]
    assert q is not None and k is not None and weights[0] is not None and weights[1] is not None
    attributes = {name: value for name, value in case.attributes.items() if not name.endswith("epsilon")}
    inputs = (normed(q, weights[0], 0.1), normed(k, weights[1], 0.3), *rest)
    plain = Case("plain", case.op, inputs, attributes, case.outputs)
    for got, exact in zip(found, session(plain.proto()).run(None, plain.feeds), strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5)


def test_a_convolution_with_its_channels_last_against_the_one_with_them_second() -> None:
    case, (found,) = of("conv channels last")
    x, kernel, bias = (array for array in case.inputs if array is not None)
    turned = (x.transpose(0, 3, 1, 2).copy(), kernel.transpose(0, 3, 1, 2).copy(), bias)
    plain = Case("plain", "Conv", turned, case.attributes, domain="")
    (exact,) = session(plain.proto()).run(None, plain.feeds)
    np.testing.assert_allclose(found, exact.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [("attention", {"do_rotary": 1}), ("grouped", {"qk_output": 1}), ("multi-head", {})],
)
def test_what_is_not_known_is_not_written(name: str, attributes: dict[str, int]) -> None:
    case = CASES[IDS.index(name)]
    proto = case.proto()
    for key, number in attributes.items():
        proto.graph.node[0].attribute.append(helper.make_attribute(key, number))
    if name == "multi-head":
        proto.graph.node[0].input.extend(["", "", "", "", "", "length"])
        proto.graph.input.append(helper.make_tensor_value_info("length", onnx.TensorProto.INT32, [1]))
    (node,) = load(proto).nodes
    assert node.domain == DOMAIN
    assert decompose(PlainSteps(node, 17, str), ["x"] * len(node.inputs)) is None
