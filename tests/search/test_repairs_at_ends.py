"""Factors at the ends of a graph stay in FP32 themselves: they are taken only where fewer nodes do so with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import FixResult, fix
from tests.models.build import model, node, value, weight
from tests.support.rescaled import normal

Array = NDArray[Any]

_WIDTH = 8
_X, _Y = (value(name, shape=("n", "s", _WIDTH)) for name in "xy")


def _pair(quiet: float, seed: int) -> tuple[Array, Array]:
    """Weights that make three channels as quiet as that, and that read them."""
    powers = np.where(np.isin(np.arange(_WIDTH), [1, 2, 7]), quiet, 0.0)
    made, read = (normal(each, _WIDTH, _WIDTH, scale=0.3) for each in (seed, seed + 1))
    return np.float32(made * np.exp2(powers)), np.float32(read / np.exp2(powers)[:, None])


def _caches(pairs: Mapping[str, tuple[Array, Array]]) -> onnx.ModelProto:
    """A layer for each: what is made is held in a cache, and read beside the mean of that."""
    parts, held, x = list[onnx.NodeProto](), list[onnx.TensorProto](), "x"
    for name, (made, read) in pairs.items():
        parts += [
            node("MatMul", f"{x} made_{name}", f"new_{name}"),
            node("Concat", f"past_{name} new_{name}", f"present_{name}", axis=1),
            node("ReduceMean", f"present_{name}", f"mean_{name}", axes=[1], keepdims=1),
            node("Add", f"new_{name} mean_{name}", f"both_{name}"),
            node("MatMul", f"both_{name} read_{name}", f"moved_{name}"), node("Add", f"{x} moved_{name}", f"x_{name}"),
        ]  # fmt: skip
        held += [weight(f"made_{name}", made), weight(f"read_{name}", read)]
        x = f"x_{name}"
    past, present = (
        [value(f"{word}_{name}", shape=("n", word, _WIDTH)) for name in pairs] for word in ("past", "present")
    )
    return model([*parts, node("Identity", x, "y")], [_X, *past], [_Y, *present], held)


def _fixed(pairs: Mapping[str, tuple[Array, Array]], repairs: str = "all") -> FixResult:
    """Over first steps, and others with a cache."""
    feeds = []
    for seed in range(6):
        past = {
            f"past_{name}": normal(seed + 50, 2, 3 * (seed % 2), _WIDTH) @ made for name, (made, _) in pairs.items()
        }
        feeds.append({"x": normal(seed, 2, 4, _WIDTH), **past})
    found = fix(_caches(pairs), feeds, repairs=repairs)
    assert found.met
    return found


def _added(found: FixResult) -> list[str]:
    return [name for name in found.fp32_nodes if "scaled" in name]


@pytest.mark.parametrize(("quiet", "seed"), [(-16, 2), (-17, 12)])
def test_what_does_without_factors_at_the_ends_is_tried_as_well(quiet: float, seed: int) -> None:
    """With them two nodes stay in FP32; powers that are undone right behind the weight leave none."""
    assert not _fixed({"a": _pair(quiet, seed)}).fp32_nodes


@pytest.mark.parametrize("seed", [2, 12])
@pytest.mark.parametrize("quiet", [-17, -18, -20, -26])
def test_factors_at_the_ends_are_not_in_fp32_in_place_of_as_many_nodes(quiet: float, seed: int) -> None:
    pair = {"a": _pair(quiet, seed)}
    found, without = _fixed(pair), _fixed(pair, "none")
    assert len(found.fp32_nodes) < len(without.fp32_nodes) or not _added(found)


@pytest.mark.parametrize(("quiet", "seed"), [(-14, 12), (-15, 12), (-15, 2)])
def test_a_cache_that_fp16_bears_gets_no_factors_beside_one_that_it_does_not(quiet: float, seed: int) -> None:
    found = _fixed({"a": _pair(-26, seed), "b": _pair(quiet, seed + 2)})
    assert len(found.fp32_nodes) == 2 and all("present_a" in name for name in found.fp32_nodes)
