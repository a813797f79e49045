from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from halfwise.core.formats import Format
from halfwise.emulation import weights
from halfwise.emulation.lent_weights import LentWeights
from halfwise.emulation.weights import RoundedWeights, held_in_fp32
from halfwise.precision.rewrite import Weight


def node() -> ir.Node:
    return ir.Node("", "MatMul", [])


def weight(seed: int) -> Weight:
    array = np.random.default_rng(seed).standard_normal((64, 300)).astype(np.float32)
    return Weight(f"w{seed}", ir.tensor(array), Format.FP16)


@pytest.fixture(autouse=True)
def keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_ROOM", 0)


def test_a_node_is_lent_the_same_again_and_others_other_ones() -> None:
    lent, first, second = LentWeights(RoundedWeights()), node(), node()
    one, other = weight(1), weight(2)
    found = [lent.to(first, one), lent.to(first, other), lent.to(first, one)]
    assert found[0] is found[2]
    for array, of in zip(found, (one, other), strict=False):
        assert array.tobytes() == held_in_fp32(of.tensor.numpy(), Format.FP16).tobytes()
    there = lent.to(second, other)
    assert there.tobytes() == held_in_fp32(other.tensor.numpy(), Format.FP16).tobytes()
    assert any(np.shares_memory(there, each) for each in found)  # written over


def test_a_small_one_is_kept_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_ROOM", 1 << 20)
    lent, one = LentWeights(RoundedWeights()), weight(1)
    assert lent.to(node(), one) is lent.to(node(), one)
