"""Models in which choices between near equals decide, one behind the other: experts, codebooks, proposals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from halfwise import fix
from halfwise.emulation.emulate import Emulator
from halfwise.precision.assignment import Assignment
from tests.models.build import model, node, value, weight

LAYERS, WIDTH, CODES = 3, 16, 12


def chosen_rows(seed: int, rows: int = 256) -> onnx.ModelProto:
    """Each layer adds to every row the code that scores highest, and layers without a choice follow."""
    rng, nodes, weights, last = np.random.default_rng(seed), list[onnx.NodeProto](), list[onnx.TensorProto](), "x"

    def drawn(name: str, *shape: int, gain: float = WIDTH**-0.5) -> str:
        weights.append(weight(name, (gain * rng.standard_normal(shape)).astype(np.float32)))
        return name

    for n in range(LAYERS):
        nodes += [
            node("MatMul", f"{last} {drawn(f'a{n}', WIDTH, WIDTH)}", f"m{n}"),
            node("Tanh", f"m{n}", f"t{n}"),
            node("MatMul", f"t{n} {drawn(f'r{n}', WIDTH, CODES)}", f"s{n}"),
            node("Add", f"s{n} {drawn(f'b{n}', CODES, gain=0.05)}", f"c{n}"),
            node("ArgMax", f"c{n}", f"i{n}", axis=1, keepdims=0),
            node("Gather", f"{drawn(f'e{n}', CODES, WIDTH, gain=1.0)} i{n}", f"g{n}"),
            node("Add", f"t{n} g{n}", f"h{n}"),
        ]
        last = f"h{n}"
    for n in range(6):
        nodes += [node("MatMul", f"{last} {drawn(f'z{n}', WIDTH, WIDTH)}", f"u{n}"), node("Tanh", f"u{n}", f"v{n}")]
        last = f"v{n}"
    return model(nodes, [value("x", shape=(rows, WIDTH))], [value(last, shape=(rows, WIDTH))], weights)


def drawn_rows(seeds: range, rows: int = 256) -> list[dict[str, NDArray[Any]]]:
    return [{"x": np.random.default_rng(each).standard_normal((rows, WIDTH)).astype(np.float32)} for each in seeds]


@pytest.mark.parametrize("seed", [0, 3])
def test_what_choices_depend_on_stays_in_fp32_where_others_flip_with_every_input(seed: int) -> None:
    result = fix(chosen_rows(seed), drawn_rows(range(9, 13)), tolerance="rel_l2<=0.002", repairs="none")
    assert result.met and result.promise is not None and result.promise.carried
    assert {f"n_i{n}" for n in range(LAYERS)} <= set(result.fp32_nodes)
    assert {"n_u1", "n_v1", "n_u5", "n_v5"}.isdisjoint(result.fp32_nodes)
    formats = {result.sites.model.node_by_name[each.name]: each.format for each in result.plan.nodes}
    fixed = Emulator().session(Assignment.excepting(result.sites, formats))
    exact = Emulator().session(Assignment(result.sites, {}))
    for new in drawn_rows(range(100, 108)):
        fp32 = exact.run(new)["v5"]
        assert np.linalg.norm(fixed.run(new)["v5"] - fp32) <= 0.002 * np.linalg.norm(fp32)


@pytest.mark.parametrize("runs", [29, 33, 35])
def test_where_a_budget_ends_the_search_fp32_is_left(runs: float) -> None:
    """The scores alone decide, no derivative reaches them, and all that the noise model names misses the tolerance."""
    given = drawn_rows(range(9, 13), 1024)
    assert fix(chosen_rows(0, 1024), given, tolerance="rel_l2<=0.001", repairs="none", max_runs=runs).met
