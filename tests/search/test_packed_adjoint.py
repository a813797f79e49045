"""The backward step of a product with packed weights: beside ONNX Runtime's own kernel of it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from halfwise.model.model import load
from halfwise.search.vjp import Local, pull_back
from halfwise.search.vjp import own_operators as steps
from tests.support.packed_products import K, N, kernel, product


def local(*, bias: bool) -> tuple[Local, NDArray[np.float32]]:
    """With two probes, and the weight as the kernel multiplies with it."""
    model, rng = product(4, 32, "whole", bias=bias), np.random.default_rng(3)
    node = load(model).nodes[0]
    inputs = tuple(
        None if value is None else value.const_value.numpy() if value.const_value is not None else
        rng.standard_normal((2, 3, K)).astype(np.float32)
        for value in node.inputs
    )  # fmt: skip
    gradient = rng.standard_normal((2, 2, 3, N)).astype(np.float32)
    exact = kernel(product(4, 32, "whole"), "p", np.eye(K, dtype=np.float32)[None])[0]
    return Local(node, 17, inputs, (None,), (gradient,), lambda _: ()), exact


def test_a_gradient_goes_back_to_the_rows() -> None:
    node, weight = local(bias=True)
    wanted = np.einsum("pbrn,kn->pbrk", node.gradient(), weight)
    found = pull_back(node, 0)
    assert found is not None
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_gradient_goes_back_to_the_bias_and_none_to_the_scales() -> None:
    node, _ = local(bias=True)
    bias, scales = pull_back(node, 5), pull_back(node, 2)
    assert bias is not None and scales is not None
    np.testing.assert_allclose(bias, node.gradient().sum(axis=(1, 2)), rtol=1e-5, atol=1e-5)
    assert scales.shape == (2, N * K // 32) and not scales.any()


def test_steps_with_a_large_weight_in_them_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a session of its own, which holds the weight as long as it lives."""
    monkeypatch.setattr("halfwise.emulation.packed_weights.LARGE_BYTES", 1 << 40)  # as of a small weight
    before = steps._kept.cache_info().currsize
    node, weight = local(bias=False)
    found = pull_back(node, 0)
    assert found is not None
    np.testing.assert_allclose(found, np.einsum("pbrn,kn->pbrk", node.gradient(), weight), rtol=1e-4, atol=1e-5)
    assert steps._kept.cache_info().currsize == before
