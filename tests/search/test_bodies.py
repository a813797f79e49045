"""The search inside branches and loops: each node by itself, an island where one is needed, the rest narrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from halfwise.search.body_noise import MOST, body_parts
from halfwise.verbs.fix.fix import fix
from tests.models.build import graph, model, node, value, weight

Array = np.ndarray[Any, Any]


def parts(energies: list[float], broken: tuple[int, ...] = (), together: bool = False) -> tuple[list[Any], int]:
    """Of numbered nodes: what is found, and after how many questions."""
    asked = 0

    def trial(nodes: Any) -> tuple[float, bool]:
        nonlocal asked
        asked += 1
        hit = [n for n in broken if n in nodes]
        return sum(energies[n] for n in nodes), len(hit) == len(broken) if together and broken else bool(hit)

    return list(body_parts(list(range(len(energies))), trial)), asked  # type: ignore[arg-type]


def test_a_quiet_body_is_asked_once() -> None:
    found, asked = parts([1e-12] * 100)
    assert asked == 1
    assert found == [(tuple(range(100)), pytest.approx(1e-10), False)]


@pytest.mark.parametrize("culprit", [0, 37, 99])
def test_the_culprit_is_found_by_halving(culprit: int) -> None:
    energies = [1e-12] * 100
    energies[culprit] = 1.0
    found, asked = parts(energies)
    assert ((culprit,), 1.0, False) in found
    assert sorted(n for nodes, _, _ in found for n in nodes) == list(range(100))
    assert asked <= 15


def test_what_breaks_is_found_too() -> None:
    found, _ = parts([0.0] * 32, broken=(5, 20))
    assert [nodes for nodes, _, breaks in found if breaks] == [(5,), (20,)]


def test_what_breaks_only_together_stays_together() -> None:
    found, _ = parts([0.0] * 8, broken=(1, 6), together=True)
    assert [nodes for nodes, _, breaks in found if breaks] == [tuple(range(8))]


def test_the_questions_are_bounded() -> None:
    found, asked = parts([1.0] * 1000)
    assert asked <= MOST + 12
    assert sorted(n for nodes, _, _ in found for n in nodes) == list(range(1000))


def loop(width: int = 8) -> onnx.ModelProto:
    """h = tanh(h @ w), with a root of a mean of squares of 1000 h on the way: the squares do not fit."""
    rng = np.random.default_rng(1)
    body = graph(
        [
            node("MatMul", "h w", "m"),
            node("Mul", "m thousand", "big"),
            node("Mul", "big big", "squares"),
            node("ReduceMean", "squares", "mean", axes=[1]),
            node("Sqrt", "mean", "root"),
            node("Div", "big root", "unit"),
            node("Tanh", "unit", "next"),
            node("Add", "next captured", "seen"),
            node("Identity", "go", "on"),
        ],
        [value("i", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("h", shape=[2, width])],
        [value("on", TensorProto.BOOL, []), value("next", shape=[2, width]), value("seen", shape=[2, width])],
        [
            weight("w", (rng.standard_normal((width, width)) / 3).astype(np.float32)),
            weight("thousand", np.float32(1e3)),
        ],
    )
    return model(
        [node("Neg", "x", "captured"), node("Loop", "n - x", "last all", body=body)],
        [value("x", shape=[2, width])],
        [value("last", shape=[2, width]), value("all", shape=[4, 2, width])],
        [weight("n", np.array(4, np.int64))],
    )


def branches() -> onnx.ModelProto:
    """The same trouble in one branch only, which these inputs take or do not take."""
    then = graph(
        [node("Mul", "a million", "big"), node("Mul", "big small", "t")],
        [],
        [value("t", shape=[4])],
        [weight("million", np.float32(1e6)), weight("small", np.float32(1e-6))],
    )
    other = graph([node("Tanh", "a", "e")], [], [value("e", shape=[4])])
    return model(
        [
            node("Add", "x x", "a"),
            node("ReduceSum", "x", "total", keepdims=0),
            node("Greater", "total zero", "c"),
            node("If", "c", "y", then_branch=then, else_branch=other),
        ],
        [value("x")],
        [value("y")],
        [weight("zero", np.float32(0))],
    )


def fixed(proto: onnx.ModelProto, feeds: list[dict[str, Array]], folder: Path) -> set[str]:
    """The FP32 nodes; what is delivered runs at every level of optimisation and keeps the tolerance."""
    onnx.save(proto, folder / "m.onnx")
    result = fix(folder / "m.onnx", feeds, out=folder / "out", repairs=["none"])
    assert result.met and result.typed is not None
    for level in (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
        onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    ):
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.graph_optimization_level = 4, level
        wide, narrow = (
            onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for path in (folder / "m.onnx", result.typed.path)
        )
        for feed in feeds:
            for one, other in zip(narrow.run(None, feed), wide.run(None, feed), strict=True):
                assert np.linalg.norm(one - other) <= 0.01 * np.linalg.norm(other)
    return set(result.fp32_nodes)


def test_an_overflow_in_a_loop_costs_an_island_in_its_body(tmp_path: Path) -> None:
    feeds = [{"x": np.random.default_rng(i).standard_normal((2, 8)).astype(np.float32)} for i in range(5)]
    kept = fixed(loop(), feeds, tmp_path)
    assert {"n_squares", "n_mean"} <= kept
    assert not kept & {"n_m", "n_next", "n_seen", "n_last", "n_captured"}


def test_an_overflow_in_a_branch_costs_its_nodes_alone(tmp_path: Path) -> None:
    feeds = [{"x": np.random.default_rng(i).uniform(0.1, 1, 4).astype(np.float32)} for i in range(5)]
    assert fixed(branches(), feeds, tmp_path) == {"n_big", "n_t"}
