"""Sums that leave FP16 inside a kernel are seen, and cost no more than the nodes whose kernels store them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise import fix
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import ORT_CUDA, ORT_CUDA_UNFUSED, STRICT
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.search.sensitivity import Sensitivity, measure_sensitivity
from halfwise.search.stored_sums import kernels_apart

WIDTH = 64


def loud_norms(layers: int) -> onnx.ModelProto:
    """A residual stream of about 100, whose squares are FP16 numbers and their sums are not."""
    rng = np.random.default_rng(0)
    weights = {"two": np.float32(2.0), "eps": np.float32(1e-6)}
    nodes, x = [], "x"
    for i in range(layers):
        weights[f"u{i}"] = rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH))
        weights[f"d{i}"] = rng.normal(0, 120 * WIDTH**-0.5, (WIDTH, WIDTH))
        for op, given, made in (
            ("Pow", [x, "two"], "square"), ("ReduceMean", ["square"], "mean"), ("Add", ["mean", "eps"], "moved"),
            ("Sqrt", ["moved"], "root"), ("Div", [x, "root"], "norm"), ("MatMul", ["norm", f"u{i}"], "up"),
            ("Relu", ["up"], "kept"), ("MatMul", ["kept", f"d{i}"], "down"), ("Add", [x, "down"], "sum"),
        ):  # fmt: skip
            inputs = [f"{name}{i}" if name.isalpha() and name not in ("x", "two", "eps") else name for name in given]
            more = {"axes": [-1]} if op == "ReduceMean" else {}
            nodes.append(helper.make_node(op, inputs, [f"{made}{i}"], name=f"{made}{i}", **more))
        x = f"sum{i}"
    held = [numpy_helper.from_array(np.asarray(each, np.float32), name) for name, each in weights.items()]
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, WIDTH])
    given_out = helper.make_tensor_value_info(x, TensorProto.FLOAT, [4, WIDTH])
    graph = helper.make_graph(nodes, "loud", [taken], [given_out], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _feeds() -> list[dict[str, np.ndarray]]:
    return [{"x": np.random.default_rng(i).normal(0, 50, (4, WIDTH)).astype(np.float32)} for i in range(4)]


@pytest.mark.parametrize(("profile", "seen"), [(ORT_CUDA_UNFUSED, {"mean0"}), (ORT_CUDA, set()), (STRICT, set())])
def test_a_sum_that_a_kernel_stores_is_seen_to_overflow(profile: object, seen: set[str]) -> None:
    sites, found = Sites(load(loud_norms(1))), Sensitivity()
    apart = kernels_apart([Emulator(profile)])  # type: ignore[arg-type]
    measure_sensitivity(Stepper(Emulator()), sites, _feeds()[0], found, apart=apart)
    assert {node.name for node, value in found.breaks if value in node.outputs} == seen


def test_such_sums_keep_the_norms_and_nothing_else() -> None:
    result = fix(loud_norms(3), _feeds(), target="ort-cuda", repairs="none")
    assert result.met
    kept = {result.model.node_by_name[name].op_type for name in result.fp32_nodes}
    assert "ReduceMean" in kept
    assert not kept & {"MatMul", "Relu"}
