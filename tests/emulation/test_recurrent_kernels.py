"""Recurrent layers as cuDNN runs them in FP16: the emulation against the same arithmetic written with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.gpu.held_out import HELD_OUT
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import ORT_CUDA_UNFUSED, STRICT, Profile
from halfwise.emulation.profiles.recurrent import terms_per_step
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.verbs.fix.fix import fix

Array = NDArray[Any]
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 40, 24


def h(array: Any) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype=np.float32).astype(np.float16).astype(np.float32)


def product(x: Array, weight: Array, columns: int) -> Array:
    total = np.zeros((len(x), len(weight)))
    for start, end in terms_per_step(x.shape[1], columns):
        total = h(total + x[:, start:end].astype(np.float64) @ weight[:, start:end].T.astype(np.float64))
    return total


def sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return h(1 / h(1 + h(np.exp(-x))))


def tanh(x: Array) -> Array:
    return h(2 * sigmoid(2 * x) - 1)


def one_direction(op: str, x: Array, w: Array, r: Array, b: Array, state: Array, cell: Array) -> tuple[Array, ...]:
    n, every = HIDDEN, []
    inward = product(x.reshape(-1, INPUTS), w, STEPS * BATCH).reshape(STEPS, BATCH, -1)
    first, second = b[: GATES[op] * n], b[GATES[op] * n :]
    for mine in inward:
        other = product(state, r, BATCH)
        joined = h(h(h(mine + other) + first) + second)
        if op == "RNN":
            state = tanh(joined)
        elif op == "LSTM":
            let_in, let_out, keep = (sigmoid(joined[:, k * n : (k + 1) * n]) for k in range(3))
            cell = h(keep * cell + h(let_in * tanh(joined[:, 3 * n :])))
            state = h(let_out * tanh(cell))
        else:
            update, reset, last = sigmoid(joined[:, :n]), sigmoid(joined[:, n : 2 * n]), slice(2 * n, None)
            new = tanh(h(reset * h(other[:, last] + second[last]) + h(mine[:, last] + first[last])))
            state = h(h(1 - update) * new + h(update * state))
        every.append(state)
    return np.stack(every), state, cell


def drawn(op: str, sides: int) -> dict[str, Array]:
    rng, gates = np.random.default_rng(GATES[op]), GATES[op]
    sizes = {
        "x": (STEPS, BATCH, INPUTS),
        "w": (sides, gates * HIDDEN, INPUTS),
        "r": (sides, gates * HIDDEN, HIDDEN),
        "b": (sides, 2 * gates * HIDDEN),
        "h": (sides, BATCH, HIDDEN),
        "c": (sides, BATCH, HIDDEN),
    }
    return {name: h(rng.standard_normal(size) * (1.0 if name == "x" else 0.3)) for name, size in sizes.items()}


def layer(
    op: str, arrays: dict[str, Array], given: str, opset: int = 17, wanted: str = "y yh yc", **attributes: Any
) -> onnx.ModelProto:
    """A model of one node. `given`: which of the bias b, the lengths s, the states h and c it has."""
    names = ["x", "w", "r", *(name if name in given else "" for name in "bshc"[: 4 if op == "LSTM" else 3])]
    while not names[-1]:
        names.pop()
    outputs = [name if name in wanted.split() else "" for name in ("y", "yh", "yc")[: 3 if op == "LSTM" else 2]]
    node = helper.make_node(op, names, outputs, "layer", hidden_size=HIDDEN, **attributes)
    values = {"s": np.full(BATCH, STEPS, np.int32), **arrays}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, values[name].shape)
        for name in names
        if name in "xhc" and name
    ]
    weights = [numpy_helper.from_array(values[name], name) for name in names if name in "wrbs" and name]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name]
    graph = helper.make_graph([node], "layer", inputs, infos, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(proto)


def run(proto: onnx.ModelProto, arrays: dict[str, Array], profile: Profile = ORT_CUDA_UNFUSED) -> dict[str, Array]:
    session = Emulator(profile).session(Assignment.all_narrow(Sites(load(proto))))
    return session.run({name: arrays[name] for name in session.input_names})


@pytest.mark.parametrize("op", list(GATES))
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", ["", "b", "bhc"])
def test_every_step_is_stored_as_cudnn_stores_it(op: str, direction: str, given: str) -> None:
    sides = 2 if direction == "bidirectional" else 1
    arrays = drawn(op, sides)
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    got = run(layer(op, arrays, given, direction=direction, **more), arrays)
    told: dict[str, list[Array]] = {"y": [], "yh": [], "yc": []}
    for side in range(sides):
        back = direction == "reverse" or side == 1
        zeros = {name: arrays[name][side] * (name in given) for name in "bhc"}
        x = arrays["x"][::-1] if back else arrays["x"]
        y, last, cell = one_direction(op, x, arrays["w"][side], arrays["r"][side], zeros["b"], zeros["h"], zeros["c"])
        for name, array in zip(told, (y[::-1] if back else y, last, cell), strict=True):
            told[name].append(array)
    assert np.array_equal(got["y"], np.stack(told["y"], axis=1))
    assert np.array_equal(got["yh"], np.stack(told["yh"]))
    if op == "LSTM":
        assert np.array_equal(got["yc"], np.stack(told["yc"]))


@pytest.mark.parametrize("opset", [9, 11, 14, 22])
def test_opsets_and_results_that_nobody_reads_change_nothing(opset: int) -> None:
    arrays = drawn("LSTM", 1)
    whole = run(layer("LSTM", arrays, "bhc"), arrays)
    for wanted in ("y", "yh", "yh yc"):
        got = run(layer("LSTM", arrays, "bhc", opset, wanted), arrays)
        assert got.keys() == set(wanted.split())
        assert all(np.array_equal(array, whole[name]) for name, array in got.items())


def test_tanh_has_no_values_between_zero_and_a_2048th() -> None:
    arrays = {name: array * 0 for name, array in drawn("RNN", 1).items()}
    arrays["x"][..., 0] = np.geomspace(1e-4, 4e-3, STEPS * BATCH).reshape(STEPS, BATCH)
    arrays["w"][0, :, 0] = 1.0
    seen = run(layer("RNN", arrays, ""), arrays)["y"]
    assert set(np.unique(seen)) <= set(np.arange(9) * 2.0**-11)
    assert len(np.unique(run(layer("RNN", arrays, ""), arrays, STRICT)["y"])) == STEPS * BATCH


@pytest.mark.parametrize(
    ("op", "more", "wide"),
    [
        ("GRU", {"linear_before_reset": 1}, False),
        ("GRU", {}, True),
        ("RNN", {"activations": ["Relu"]}, True),
        ("RNN", {"activations": ["Tanh"]}, False),
        ("LSTM", {"clip": 3.0}, True),
    ],
)
def test_forms_that_the_provider_leaves_to_the_cpu_are_wide(op: str, more: dict[str, Any], wide: bool) -> None:
    arrays = drawn(op, 1)
    proto = layer(op, arrays, "b", **more)
    same = np.array_equal(run(proto, arrays)["y"], run(proto, arrays, STRICT)["y"])
    assert same is wide
    assert not any(ORT_CUDA_UNFUSED.loose(node) for node in load(proto).nodes)


def test_sequences_of_different_lengths_are_not_followed_and_said_to_be_loose() -> None:
    arrays = drawn("LSTM", 1)
    proto = layer("LSTM", arrays, "bs")
    assert [ORT_CUDA_UNFUSED.loose(node) for node in load(proto).nodes] == [True]
    assert np.array_equal(run(proto, arrays)["y"], run(proto, arrays, STRICT)["y"])


@pytest.mark.parametrize(
    ("length", "columns", "steps"),
    [
        (8, 4, [(0, 8)]),
        (48, None, [(0, 16), (16, 32), (32, 48)]),
        (40, 4, [(0, 8), (8, 24), (24, 40)]),  # what is left over of a tile of 32 comes first
        (40, 64, [(0, 16), (16, 32), (32, 40)]),
        (100, 1, [(0, 16), (16, 32), (32, 36), (36, 52), (52, 68), (68, 84), (84, 100)]),
        (130, 5, [(0, 2), *((start, start + 16) for start in range(2, 130, 16))]),
    ],
)
def test_a_sum_is_stored_every_sixteen_terms(length: int, columns: int | None, steps: list[tuple[int, int]]) -> None:
    assert terms_per_step(length, columns) == steps


def test_layers_that_are_worse_on_the_gpu_than_they_look_stay_alone_in_fp32() -> None:
    tagger = HELD_OUT["tagger_lstm"]()
    feeds = [{"words": feed["words"][:, :16]} for feed in tagger.inputs[:3]]
    for each in (*tagger.model.graph.input, *tagger.model.graph.output):
        each.type.tensor_type.shape.dim[1].dim_value = 16
    for weight in tagger.model.graph.initializer:
        if weight.name.endswith(".sides"):
            weight.CopyFrom(numpy_helper.from_array(np.array([16, 1, 256]), weight.name))
    made = fix(tagger.model, feeds, tolerance="*:rel_l2<=0.0012", target="ort-cuda", repairs=())
    assert made.verdict.met
    assert {node.name for node in made.plan.nodes} <= {"/lstm.0/LSTM", "/lstm.1/LSTM"}
