"""What a graph states of the dimensions that its inputs leave open."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.model.inputs.synthetic import open_axes
from halfwise.model.model import load
from halfwise.model.patterns.stated_sizes import Stated, stated_sizes
from tests.models.build import model, node, value, weight

OPEN = ("batch", "c", "h", "w")
TURNED = node("Transpose", "x", "t", perm=[0, 3, 1, 2])


def stated(nodes: list[onnx.NodeProto], weights: dict[str, tuple[int, ...]], shape: tuple[Any, ...] = OPEN) -> Stated:
    held = [weight(name, np.ones(sizes, "f4")) for name, sizes in weights.items()]
    given = load(model(nodes, [value("x", shape=shape)], [value("y", shape=None)], held))
    return stated_sizes(given, open_axes(given.inputs))


@pytest.mark.parametrize(
    ("nodes", "weights", "shape", "sizes"),
    [
        ([node("Conv", "x k", "y")], {"k": (8, 3, 1, 1)}, OPEN, {"c": 3}),
        ([node("Conv", "x k", "y", group=5)], {"k": (10, 2, 1, 1)}, OPEN, {"c": 10}),
        ([node("ConvTranspose", "x k", "y")], {"k": (6, 3, 2, 2)}, OPEN, {"c": 6}),
        ([node("MatMul", "x k", "y")], {"k": (7, 4)}, OPEN, {"w": 7}),
        ([node("MatMul", "k x", "y")], {"k": (4, 7)}, OPEN, {"h": 7}),
        ([node("Gemm", "x k", "y", transB=1)], {"k": (4, 7)}, ("batch", "features"), {"features": 7}),
        ([node("Gemm", "x k", "y")], {"k": (4, 7)}, ("batch", "features"), {"features": 4}),
        ([node("LSTM", "x k r", "y", hidden_size=2)], {"k": (1, 8, 9), "r": (1, 8, 2)}, ("t", "n", "f"), {"f": 9}),
        ([node("Sub", "x k", "y")], {"k": (3, 1, 1)}, OPEN, {"c": 3}),
        ([node("Sub", "k x", "y")], {"k": (1, 3, 5, 1)}, OPEN, {"c": 3, "h": 5}),
        ([node("InstanceNormalization", "x k b", "y")], {"k": (12,), "b": (12,)}, OPEN, {"c": 12}),
        ([node("LayerNormalization", "x k", "y")], {"k": (12,)}, OPEN, {"w": 12}),
        ([node("Relu", "x", "r"), node("Conv", "r k", "y")], {"k": (8, 3, 1, 1)}, OPEN, {"c": 3}),
        ([TURNED, node("Conv", "t k", "y")], {"k": (8, 3, 1, 1)}, OPEN, {"w": 3}),
        ([node("Transpose", "k", "t", perm=[1, 0]), node("MatMul", "x t", "y")], {"k": (4, 7)}, OPEN, {"w": 7}),
        ([node("Relu", "x", "y")], {}, OPEN, {}),
        ([node("Mul", "x k", "y")], {"k": ()}, OPEN, {}),
    ],
)
def test_a_weight_states_what_it_reads(
    nodes: list[onnx.NodeProto], weights: dict[str, tuple[int, ...]], shape: tuple[Any, ...], sizes: dict[str, int]
) -> None:
    assert stated(nodes, weights, shape).sizes == sizes


@pytest.mark.parametrize(("rows", "edges"), [(16, [32]), (17, [32]), (18, [32]), (50, [56]), (23, []), (32, [])])
def test_a_table_of_positions_states_the_edges_of_a_picture(rows: int, edges: list[int]) -> None:
    """Patches of 8; in front of them stand 5 tokens at most."""
    nodes = [node("Conv", "x k", "p", strides=[8, 8]), node("Reshape", "p s", "f"), node("Add", "f table", "y")]
    weights = {"k": (24, 3, 8, 8), "table": (1, rows, 24)}
    held = [weight(name, np.ones(sizes, "f4")) for name, sizes in weights.items()]
    held.append(weight("s", np.array([1, 24, -1])))
    given = load(model(nodes, [value("x", shape=OPEN)], [value("y", shape=None)], held))
    found = stated_sizes(given, open_axes(given.inputs))
    assert found.sizes == {"c": 3}
    assert [dict(each) for each in found.edges] == [{"h": edge, "w": edge} for edge in edges]


def test_frames_behind_two_convolutions() -> None:
    nodes = [node("Conv", "x k", "a"), node("Gelu", "a", "g"), node("Conv", "g l", "b", strides=[2])]
    nodes += [node("Transpose", "b", "t", perm=[0, 2, 1]), node("Add", "t table", "y")]
    weights = {"k": (6, 80, 3), "l": (6, 6, 3), "table": (1500, 6)}
    found = stated(nodes, weights, ("batch", "mel", "frames"))
    assert found == Stated({"mel": 80}, ({"frames": 3000},))
