"""A guard that FP16 rounds to 0: kept in FP32 or rewritten where a graph may leave a sum empty, told elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise import fix
from halfwise.core.notes import NoteKind
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds, only

NODES, WIDTH = 12, 8
Feed = Mapping[str, NDArray[Any]]


def attention(
    by_edge: bool = False, epsilon: float = 1e-16, start: float = 0.0, to_zeros: bool = False, reduction: str = "add"
) -> onnx.ModelProto:
    """A graph attention layer. Its softmax over a node's edges divides each edge's share, or the sum for the node.
    `to_zeros`: the sum is added to zeros, as exporters write index_add."""
    rng = np.random.default_rng(0)
    weights = [
        weight("w", rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) * 0.4),
        weight("a", rng.standard_normal((WIDTH, 1)).astype(np.float32) * 0.3),
        weight("least", np.float32(epsilon)),
        weight("start", np.full((1, 1), start, np.float32)),
        weight("one", np.array([NODES, 1])),
        weight("all", np.array([NODES, WIDTH])),
        weight("last", np.array([-1])),
    ]
    nodes = [
        node("MatMul", "x w", "h"),
        node("Gather", "h from", "sent", axis=0),
        node("Gather", "h to", "met", axis=0),
        node("Add", "sent met", "both"),
        node("LeakyRelu", "both", "e"),
        node("MatMul", "e a", "logits"),
        node("Exp", "logits", "p"),
        node("Unsqueeze", "to last", "places"),
        node("Expand", "start one", "none"),
        node("ScatterND", "none places p", "sum" if to_zeros else "total", reduction=reduction),
        *([node("Add", "none sum", "total")] if to_zeros else []),
        node("ConstantOfShape", "all", "nothing"),
    ]
    by_node = [
        node("Mul", "p sent", "messages"),
        node("ScatterND", "nothing places messages", "sums", reduction="add"),
        node("Add", "total least", "guarded"),
        node("Div", "sums guarded", "y"),
    ]
    of_each = [
        node("Add", "total least", "kept"),
        node("Gather", "kept to", "guarded", axis=0),
        node("Div", "p guarded", "shares"),
        node("Mul", "shares sent", "messages"),
        node("ScatterND", "nothing places messages", "y", reduction="add"),
    ]
    edges = [value(name, TensorProto.INT64, ("edges",)) for name in ("from", "to")]
    inputs = [value("x", shape=(NODES, WIDTH)), *edges]
    whole = [*nodes, *(of_each if by_edge else by_node)]
    return model(whole, inputs, [value("y", shape=(NODES, WIDTH))], weights)


def graph(seed: int, alone: Sequence[int] = ()) -> Feed:
    """Every node has an edge that leads to it, but those `alone`."""
    rng = np.random.default_rng(seed)
    to = np.concatenate([np.arange(NODES), rng.integers(0, NODES, 20)])
    to = to[~np.isin(to, alone)]
    return {
        "x": rng.standard_normal((NODES, WIDTH)).astype(np.float32),
        "from": rng.integers(0, NODES, len(to)),
        "to": to,
    }


GRAPHS = [graph(seed) for seed in range(4)]


def answer(folder: Path, feed: Feed) -> NDArray[Any]:
    (path,) = folder.glob("*.onnx")
    return np.asarray(ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, dict(feed))[0])


@pytest.mark.parametrize("written", [{}, {"to_zeros": True}, {"to_zeros": True, "reduction": "max"}])
def test_a_node_without_edges_is_no_nan(written: Any, tmp_path: Path) -> None:
    made = fix(attention(**written), GRAPHS, out=tmp_path / "out")
    assert made.met and {"n_guarded", "n_y"} <= set(made.fp32_nodes)
    assert set(only(made.notes, NoteKind.OVERFLOW_HEALED).values["nodes"]) == {"n_guarded", "n_y"}
    assert NoteKind.GUARD_VANISHES not in kinds(made.notes)
    assert np.isfinite(answer(tmp_path / "out", graph(9, alone=(3,)))).all()


def test_what_lies_between_the_guard_and_the_division_is_kept_with_them() -> None:
    made = fix(attention(by_edge=True), GRAPHS)
    assert made.met and {"n_kept", "n_guarded", "n_shares"} <= set(made.fp32_nodes)


def test_a_repair_takes_their_place_where_it_can(tmp_path: Path) -> None:
    made = fix(attention(epsilon=1e-9), GRAPHS, out=tmp_path / "out")
    assert {repair.rule for repair in made.plan.repairs} == {"HW404"}
    assert not {"n_guarded", "n_y"} & set(made.fp32_nodes)
    assert NoteKind.GUARD_VANISHES not in kinds(made.notes)
    assert np.isfinite(answer(tmp_path / "out", graph(9, alone=(3,)))).all()


@pytest.mark.parametrize("harmless", [{"epsilon": 1e-6}, {"start": 1.0}], ids=["kept in FP16", "never empty"])
def test_nothing_is_kept_for_a_guard_that_holds_or_is_not_needed(harmless: dict[str, float]) -> None:
    made = fix(attention(**harmless), GRAPHS)
    assert made.met and not {"n_guarded", "n_y"} & set(made.fp32_nodes)
    assert NoteKind.OVERFLOW_HEALED not in kinds(made.notes)


def test_a_guard_that_is_left_is_told_as_scan_tells_it() -> None:
    """Of no sum over edges: whether another input needs it is not known."""
    made = fix(attention(start=1.0), GRAPHS)
    told = only(made.notes, NoteKind.GUARD_VANISHES).values
    assert (told["epsilon"], told["count"], list(told["nodes"])) == (pytest.approx(1e-16), 1, ["n_guarded"])


def test_so_is_one_that_the_user_forces() -> None:
    made = fix(attention(), GRAPHS, force=["name:n_guarded", "name:n_y"], repairs="none")
    assert {NoteKind.OVERFLOW_LEFT, NoteKind.GUARD_VANISHES} <= set(kinds(made.notes))


def test_nothing_is_told_of_a_guard_of_weights_alone() -> None:
    """As of the frequency of a periodic activation, 1 / (exp(a) + epsilon)."""
    weights = [weight("a", np.linspace(-1, 1, WIDTH, dtype=np.float32)), weight("least", np.float32(1e-9))]
    nodes = [
        node("Exp", "a", "grown"),
        node("Add", "grown least", "guarded"),
        node("Mul", "x guarded", "phase"),
        node("Sin", "phase", "wave"),
        node("Div", "wave guarded", "y"),
    ]
    shape = (NODES, WIDTH)
    made = fix(model(nodes, [value("x", shape=shape)], [value("y", shape=shape)], weights), [{"x": GRAPHS[0]["x"]}])
    assert made.met and NoteKind.GUARD_VANISHES not in kinds(made.notes)


def normalised(behind_a_layer: bool = False, epsilon: float = 1e-5, factor: float = 1.0) -> onnx.ModelProto:
    """A forecast of a series without its mean and deviation, which are given back to it. Where there is a `factor`,
    the deviation is multiplied by it."""
    rng = np.random.default_rng(1)
    weights = [
        weight("mix", np.eye(WIDTH, dtype=np.float32) + rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8),
        weight("w", rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 3),
        weight("least", np.float32(epsilon)),
        weight("along", np.array([1])),
        weight("bias", rng.standard_normal(WIDTH).astype(np.float32)),
        weight("factor", np.float32(factor)),
    ]
    layer = [node("MatMul", "x mix", "mixed"), node("Add", "mixed bias", "series")]
    nodes = [
        *(layer if behind_a_layer else [node("Identity", "x", "series")]),
        node("ReduceMean", "series along", "mean"),
        node("Sub", "series mean", "off"),
        node("ReduceMean", "off along", "nothing"),
        node("Sub", "off nothing", "centred"),
        node("Mul", "centred centred", "squares"),
        node("ReduceMean", "squares along", "variance"),
        node("Add", "variance least", "guarded"),
        node("Sqrt", "guarded", "deviation" if factor == 1.0 else "root"),
        *([] if factor == 1.0 else [node("Mul", "root factor", "deviation")]),
        node("Div", "off deviation", "even"),
        node("MatMul", "even w", "made"),
        node("Mul", "made deviation", "wide"),
        node("Add", "wide mean", "y"),
    ]
    shape = ("series", WIDTH)
    return model(nodes, [value("x", shape=shape)], [value("y", shape=shape)], weights, opset=18)


def series(seed: int, size: float = 5e3) -> Feed:
    rng = np.random.default_rng(seed)
    return {"x": (size * (1 + 0.3 * rng.standard_normal((6, WIDTH)))).astype(np.float32)}


def test_a_flat_series_is_no_nan_though_its_variance_is_scaled(tmp_path: Path) -> None:
    made = fix(normalised(), [series(seed) for seed in range(4)], out=tmp_path / "out")
    assert {repair.rule for repair in made.plan.repairs} == {"HW405"}
    flat = series(9)["x"]
    flat[2] = 5e3
    right = ort.InferenceSession(normalised().SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = np.asarray(right.run(None, {"x": flat})[0])
    assert made.met and np.linalg.norm(answer(tmp_path / "out", {"x": flat}) - wanted) <= 0.01 * np.linalg.norm(wanted)


def test_a_guard_of_how_an_input_varies_is_kept_and_of_a_hidden_layer_told() -> None:
    """A silent input is usual; that a trained layer gives the same everywhere is not."""
    inputs = [series(seed, 3.0) for seed in range(4)]
    made = fix(normalised(epsilon=1e-9), inputs, repairs="none")
    assert made.met and {"n_guarded", "n_deviation"} == set(made.fp32_nodes)  # its root is no smaller than FP16
    assert NoteKind.GUARD_VANISHES not in kinds(made.notes)
    made = fix(normalised(behind_a_layer=True, epsilon=1e-9), inputs, repairs="none")
    assert made.met and "n_guarded" not in made.fp32_nodes
    assert NoteKind.GUARD_VANISHES in kinds(made.notes)


def test_so_is_one_whose_root_is_made_small_again(tmp_path: Path) -> None:
    inputs = [series(seed, 3.0) for seed in range(4)]
    made = fix(normalised(epsilon=1e-9, factor=5e-4), inputs, repairs="none", out=tmp_path / "out")
    assert made.met and {"n_guarded", "n_root", "n_deviation", "n_even"} <= set(made.fp32_nodes)
    assert np.isfinite(answer(tmp_path / "out", {"x": np.full((6, WIDTH), 3, np.float32)})).all()


def test_a_count_that_is_read_off_a_shape_hides_no_silent_input(tmp_path: Path) -> None:
    """As PyTorch writes x / (x.std() + epsilon)."""
    nodes = [
        node("ReduceMean", "x along", "mean"),
        node("Sub", "x mean", "off"),
        node("Mul", "off off", "squares"),
        node("ReduceMean", "squares along", "variance"),
        node("Shape", "x", "sizes"),
        node("Gather", "sizes along", "size"),
        node("Cast", "size", "count", to=TensorProto.FLOAT),
        node("Mul", "variance count", "sum"),
        node("Div", "sum one_less", "fair"),
        node("Sqrt", "fair", "deviation"),
        node("Add", "deviation least", "guarded"),
        node("Div", "off guarded", "y"),
    ]
    weights = [
        weight("along", np.array([1])),
        weight("one_less", np.float32(WIDTH - 1)),
        weight("least", np.float32(1e-9)),
    ]
    shape = ("series", WIDTH)
    proto = model(nodes, [value("x", shape=shape)], [value("y", shape=shape)], weights, opset=18)
    made = fix(proto, [series(seed, 3.0) for seed in range(4)], repairs="none", out=tmp_path / "out")
    assert made.met and {"n_guarded", "n_y"} <= set(made.fp32_nodes)
    assert not answer(tmp_path / "out", {"x": np.full((6, WIDTH), 3, np.float32)}).any()


def spectrum(biased: bool, held: type[Any] = np.float32, mode: str = "", around: float = 0.0) -> onnx.ModelProto:
    """The logarithm of the power of a signal, padded in this `mode`, in a few bands."""
    rng = np.random.default_rng(2)
    weights = [
        weight("bands", rng.standard_normal((4, 1, 9)).astype(np.float32)),
        weight("least", np.float32(1e-10)),
        weight("shift", np.ones(4, np.float32)),
        weight("pads", np.array([0, 0, 4, 0, 0, 4])),
        weight("around", np.float32(around)),
    ]
    nodes = [
        node("Cast", "x", "signal" if not mode else "heard", to=TensorProto.FLOAT),
        *([node("Pad", "heard pads around", "signal", mode=mode)] if mode else []),
        node("Conv", "signal bands shift" if biased else "signal bands", "amplitude"),
        node("Mul", "amplitude amplitude", "power"),
        node("Max", "power least", "guarded"),
        node("Log", "guarded", "y"),
    ]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(held))
    return model(nodes, [value("x", kind, (1, 1, 200))], [value("y", shape=(1, 4, 200 if mode else 192))], weights)


@pytest.mark.parametrize(("biased", "held"), [(False, np.float32), (False, np.int16), (True, np.float32)])
@pytest.mark.parametrize("mode", ["", "constant", "reflect"])
def test_the_power_of_a_silent_signal_keeps_its_guard(biased: bool, held: type[Any], mode: str, tmp_path: Path) -> None:
    signals = [{"x": (9 * np.random.default_rng(seed).standard_normal((1, 1, 200))).astype(held)} for seed in range(4)]
    made = fix(spectrum(biased, held, mode), signals, repairs="none", out=tmp_path / "out")
    assert made.met and ({"n_guarded", "n_y"} <= set(made.fp32_nodes)) is not biased
    if not biased:
        silent = answer(tmp_path / "out", {"x": np.zeros((1, 1, 200), held)})
        assert np.allclose(silent, np.log(1e-10), rtol=1e-2)


def test_a_signal_with_a_pulse_around_it_is_never_silent() -> None:
    signals = [{"x": 9 * np.random.default_rng(seed).standard_normal((1, 1, 200), np.float32)} for seed in range(4)]
    made = fix(spectrum(False, mode="constant", around=1.0), signals, repairs="none")
    assert made.met and "n_guarded" not in made.fp32_nodes


@pytest.mark.parametrize("axes", [(), (0, 1), (1,)])
def test_a_sum_of_exponentials_whose_largest_is_one_needs_no_guard(axes: Sequence[int]) -> None:
    nodes = [
        node("ReduceMax", "x", "largest", axes=axes) if axes else node("Identity", "zero", "largest"),
        node("Sub", "x largest", "below"),
        node("Exp", "below", "e"),
        node("ReduceSum", "e along", "total"),
        node("Add", "total least", "guarded"),
        node("Div", "e guarded", "y"),
    ]
    weights = [weight("least", np.float32(1e-10)), weight("along", np.array([1])), weight("zero", np.float32(0))]
    proto = model(nodes, [value("x", shape=(6, WIDTH))], [value("y", shape=(6, WIDTH))], weights)
    made = fix(proto, [series(seed, 1.0) for seed in range(4)], repairs="none")
    assert made.met and (NoteKind.GUARD_VANISHES in kinds(made.notes)) is (axes != (1,))
