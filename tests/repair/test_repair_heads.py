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

_WIDTH, _HEADS, _EACH = 8, 2, 4
_QUIET = np.where(np.isin(np.arange(_WIDTH), [0, 3, 5]), -26, 0)


class _Attention:
    """Over x of (n, s, 8): two heads of four channels."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(node(op, " ".join(inputs), name, **attributes))
        return name

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(weight(name, np.asarray(array)))
        return name

    def integers(self, *numbers: int) -> str:
        return self.constant(np.array(numbers))

    def linear(self, x: str, power: Any = 0, into: Any = 0, outputs: int = _WIDTH) -> str:
        """Column j of the matrix is 2^power[j] of what it would be, row i 2^into[i]."""
        array = normal(len(self.weights), _WIDTH, outputs, scale=0.3)
        return self.op("MatMul", x, self.constant(np.float32(array * np.exp2(power) * np.exp2(into)[..., None])))

    def shape(self, x: str, *parts: int | str) -> str:
        """Numbers, and sizes of a tensor by its axis."""
        made = []
        for part in parts:
            if isinstance(part, int):
                made.append(self.integers(part))
            else:
                size = self.op("Gather", self.op("Shape", x), self.constant(np.array(int(part))))
                made.append(self.op("Unsqueeze", size, self.integers(0)))
        return self.op("Concat", *made, axis=0)

    def heads(self, x: str, *shape: int | str) -> str:
        apart = self.op("Reshape", x, self.shape("x", *(shape or (0, 0, _HEADS, -1))))
        return self.op("Transpose", apart, perm=[0, 2, 1, 3])

    def shares(self, q: str, k: str) -> str:
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        return self.op("Softmax", self.op("Add", scores, self.constant(np.float32(0.5))), axis=-1)

    def together(self, shares: str, v: str, *shape: int | str, quiet: Any = _QUIET) -> onnx.ModelProto:
        back = self.op("Transpose", self.op("MatMul", shares, v), perm=[0, 2, 1, 3])
        return self.flat(back, *(shape or (0, 0, _WIDTH)), quiet=quiet)

    def flat(self, apart: str, *shape: int | str, quiet: Any = _QUIET) -> onnx.ModelProto:
        flat = self.op("Reshape", apart, self.shape("x", *shape))
        self.nodes.append(node("Identity", self.linear(flat, 0, -quiet), "y"))
        ends = [value("x", shape=("n", "s", _WIDTH))], [value("y", shape=("n", "s", _WIDTH))]
        return model(self.nodes, *ends, self.weights)

    def queries_and_keys(self) -> str:
        return self.shares(self.heads(self.linear("x")), self.heads(self.linear("x")))


def _with_zeros() -> onnx.ModelProto:
    net = _Attention()
    return net.together(net.queries_and_keys(), net.heads(net.linear("x", _QUIET)))


def _with_sizes() -> onnx.ModelProto:
    """How many heads there are, and how wide they are together, is left to Reshape."""
    net = _Attention()
    v = net.heads(net.linear("x", _QUIET), "0", "1", -1, _EACH)
    return net.together(net.queries_and_keys(), v, "0", "1", -1)


def _repeated(*, tiled: bool) -> onnx.ModelProto:
    """Both heads of queries read the same values."""
    net, quiet = _Attention(), _QUIET[:_EACH]
    v = net.heads(net.linear("x", quiet, outputs=_EACH), 0, 0, 1, _EACH)
    if tiled:
        v = net.op("Tile", v, net.integers(1, _HEADS, 1, 1))
    else:
        wide = net.op("Unsqueeze", v, net.integers(2))
        shape = net.shape(v, "0", "1", _HEADS, "2", "3")
        ones = net.op("ConstantOfShape", net.op("Shape", shape), value=weight("", np.ones(1, np.int64)))
        given = net.op("Equal", shape, net.op("Mul", ones, net.integers(-1)))
        wide = net.op("Expand", wide, net.op("Where", given, ones, shape))
        v = net.op("Reshape", wide, net.shape(v, "0", _HEADS, "2", "3"))
    return net.together(net.queries_and_keys(), v, quiet=np.tile(quiet, _HEADS))


def _fused() -> onnx.ModelProto:
    """Queries, keys and values of one matrix."""
    net = _Attention()
    made = net.linear("x", np.concatenate([np.zeros(2 * _WIDTH), _QUIET]), outputs=3 * _WIDTH)
    apart = net.op("Reshape", made, net.integers(0, 0, 3, _HEADS, _EACH))
    turned = net.op("Transpose", apart, perm=[2, 0, 3, 1, 4])
    q, k, v = (net.op("Gather", turned, net.constant(np.array(part)), axis=0) for part in range(3))
    return net.together(net.shares(q, k), v)


def _cut_by_head() -> onnx.ModelProto:
    """Queries, keys and values of one matrix, head by head."""
    net = _Attention()
    quiet = np.concatenate([np.zeros((_HEADS, 2 * _EACH)), _QUIET.reshape(_HEADS, _EACH)], axis=1).reshape(-1)
    made = net.heads(net.linear("x", quiet, outputs=3 * _WIDTH), "0", "1", -1, 3 * _EACH)
    third = net.op("Div", net.op("Add", net.op("Gather", net.op("Shape", made), net.integers(3)), net.integers(2)),
                   net.integers(3))  # fmt: skip
    ends = [net.op("Mul", third, net.integers(count)) for count in range(4)]
    q, k, v = (net.op("Slice", made, ends[i], ends[i + 1], net.integers(-1)) for i in range(3))
    return net.together(net.shares(q, k), v)


def _batch_merged() -> onnx.ModelProto:
    """Heads and an open batch on one axis."""
    net = _Attention()
    shares = net.queries_and_keys()
    shares = net.op("Reshape", shares, net.shape("x", -1, "1", "1"))
    v = net.op("Reshape", net.heads(net.linear("x", _QUIET)), net.shape("x", -1, "1", _EACH))
    apart = net.op("Reshape", net.op("MatMul", shares, v), net.shape("x", "0", _HEADS, "1", _EACH))
    back = net.op("Transpose", apart, perm=[0, 2, 1, 3])
    return net.flat(back, 0, 0, _WIDTH)


def _einsum() -> onnx.ModelProto:
    net = _Attention()
    q, k, v = (net.op("Reshape", net.linear("x", power), net.integers(0, 0, _HEADS, _EACH)) for power in (0, 0, _QUIET))
    shares = net.op("Softmax", net.op("Einsum", q, k, equation="bthd,bshd->bhts"), axis=-1)
    return net.flat(net.op("Einsum", shares, v, equation="bhts,bshd -> bthd"), 0, 0, _WIDTH)


_WAYS = {
    "batch merged": _batch_merged,
    "einsum": _einsum,
    "zeros": _with_zeros,
    "sizes": _with_sizes,
    "expanded": lambda: _repeated(tiled=False),
    "tiled": lambda: _repeated(tiled=True),
    "fused": _fused,
    "by head": _cut_by_head,
}


@pytest.mark.parametrize("way", _WAYS)
def test_channels_of_values_have_powers_of_their_own(way: str) -> None:
    found = effect(RESCALE, _WAYS[way](), rows(3, 2, 5, _WIDTH))
    assert found.bit_identical and found.after < 1 < found.before


def test_powers_of_queries_and_keys_cancel() -> None:
    net = _Attention()
    shares = net.shares(net.heads(net.linear("x", _QUIET)), net.heads(net.linear("x", -_QUIET)))
    found = effect(RESCALE, net.together(shares, net.heads(net.linear("x")), quiet=0), rows(3, 2, 5, _WIDTH))
    assert found.bit_identical and found.after < 1 < found.before


def test_a_head_that_is_handed_out_is_scaled_back_there_alone() -> None:
    proto = _with_zeros()
    values = next(
        each.input[1] for each in proto.graph.node[::-1] if each.op_type == "MatMul" and "Soft" in each.input[0]
    )
    proto.graph.output.append(value(values, shape=("n", _HEADS, "s", _EACH)))
    found = effect(RESCALE, proto, rows(3, 2, 5, _WIDTH))
    (repair,) = found.repairs
    assert found.bit_identical and len(repair.parameters["ends"]) == 1
    assert found.ops().count("Mul") == 1
