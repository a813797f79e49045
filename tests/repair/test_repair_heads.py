"""HW401 through the heads of attention: a power of two for each channel of each head."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.repair.rescale import RESCALE
from tests.models.build import model, node, value, weight
from tests.support.repairing import effect
from tests.support.rescaled import normal, rows

_WIDTH, _HEADS, _TINY = 8, 2, 2.0**-26


class _Attention:
    """Over x of (n, s, 8): two heads of four channels. Some channels of the values lie far below the others."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, op: str, inputs: str, **attributes: Any) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(node(op, inputs, name, **attributes))
        return name

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(weight(name, np.asarray(array)))
        return name

    def integers(self, *numbers: int) -> str:
        return self.constant(np.array(numbers))

    def matrix(self, power: Any = 0, into: Any = 0) -> str:
        """Column j is 2^power[j] of what it would be, row i 2^into[i]."""
        array = normal(len(self.weights), _WIDTH, _WIDTH)
        return self.constant((array * np.exp2(power) * np.exp2(into)[..., None]).astype(np.float32))

    def heads(self, x: str, matrix: str) -> str:
        apart = self.op("Reshape", f"{self.op('MatMul', f'{x} {matrix}')} {self.integers(0, 0, _HEADS, -1)}")
        return self.op("Transpose", apart, perm=[0, 2, 1, 3])

    def shares(self, q: str, k: str) -> str:
        scores = self.op("MatMul", f"{q} {self.op('Transpose', k, perm=[0, 1, 3, 2])}")
        return self.op("Softmax", self.op("Add", f"{scores} {self.constant(np.float32(0.5))}"), axis=-1)

    def together(self, shares: str, v: str, matrix: str) -> str:
        back = self.op("Transpose", self.op("MatMul", f"{shares} {v}"), perm=[0, 2, 1, 3])
        return self.op("MatMul", f"{self.op('Reshape', f'{back} {self.integers(0, 0, _WIDTH)}')} {matrix}")

    def model(self, y: str) -> onnx.ModelProto:
        self.nodes.append(node("Identity", y, "y"))
        ends = [value("x", shape=("n", "s", _WIDTH))], [value("y", shape=("n", "s", _WIDTH))]
        return model(self.nodes, *ends, self.weights)


@pytest.mark.parametrize("quiet", [[0, 3, 5], [2], [4, 5, 6, 7]])
def test_channels_of_values_have_powers_of_their_own(quiet: list[int]) -> None:
    net, power = _Attention(), np.isin(np.arange(_WIDTH), quiet) * np.log2(_TINY)
    shares = net.shares(net.heads("x", net.matrix()), net.heads("x", net.matrix()))
    y = net.together(shares, net.heads("x", net.matrix(power)), net.matrix(0, -power))
    found = effect(RESCALE, net.model(y), rows(3, 2, 5, _WIDTH))
    assert found.bit_identical and found.after < 1 < found.before
