"""What the profiles fuse."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest

from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import (
    ORT_CUDA,
    ORT_CUDA_UNFUSED,
)
from halfwise.emulation.profiles.fusions import fused_nodes
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import f32, model, node, value, weight
from tests.models.zoo import encoder, transformer
from tests.models.zoo.blocks import erf_gelu, tanh_gelu
from tests.models.zoo.graph_writer import GraphWriter
from tests.support.profiles import h, narrow, run

# -- fusions ---------------------------------------------------------------------------------------------------------


def kinds(proto: onnx.ModelProto, keep: frozenset[str] = frozenset()) -> list[str]:
    sites = Sites(load(proto))
    kept = frozenset(site.node for site in sites.free if site.name in keep)
    fused = fused_nodes(Assignment.all_narrow(sites, kept), "ort")
    return sorted(fusion.kind for fusion in fused.ending.values())


def test_the_norms_and_activations_of_an_encoder_fuse() -> None:
    found = kinds(encoder(layers=2).model)
    assert {kind: found.count(kind) for kind in set(found)} == {"layer-norm": 5, "gelu": 2, "scaled-product": 2}
    found = kinds(transformer(1).model)
    assert {kind: found.count(kind) for kind in set(found)} == {"layer-norm": 3, "fast-gelu": 1, "scaled-product": 1}


def test_a_norm_with_a_node_in_fp32_does_not_fuse() -> None:
    assert kinds(encoder(layers=1).model).count("layer-norm") == 3
    assert kinds(encoder(layers=1).model, frozenset({"/layers.0/norm1/Pow"})).count("layer-norm") == 2


def test_a_fused_norm_does_not_overflow_and_the_stepper_agrees() -> None:
    zoo = encoder(layers=2)
    assignment = narrow(zoo.model)
    feed = zoo.inputs[0]
    exact = Emulator().session(Assignment(assignment.sites, {})).run(feed)["logits"]
    fused = Emulator(ORT_CUDA).session(assignment).run(feed)["logits"]
    alone = Emulator(ORT_CUDA_UNFUSED).session(assignment).run(feed)["logits"]
    size = np.linalg.norm(exact)
    assert np.linalg.norm(fused - exact) < 0.005 * size
    assert np.linalg.norm(alone - exact) > 0.5 * size
    emulator = Emulator(ORT_CUDA)
    store = Store(emulator, assignment, feed)
    last = {step.node: step for step in Stepper(emulator).walk(store)}
    output = assignment.sites.model.graph.outputs[0]
    stepped = next(step.outputs[output] for step in last.values() if output in step.outputs)
    assert np.linalg.norm(stepped - exact) < 0.005 * size


def test_what_others_read_is_stored() -> None:
    nodes = [node("Sigmoid", "x", "s"), node("Mul", "x s", "y"), node("Neg", "s", "z")]
    assert kinds(model(nodes, [value("x")], [value("y"), value("z")])) == []
    assert kinds(model(nodes[:2], [value("x")], [value("y")])) == ["quick-gelu"]
    assert kinds(model(nodes[:2], [value("x")], [value("y"), value("s")])) == []


def test_a_gelu_that_is_the_model_s_result_stays_in_pieces_by_tanh_and_not_by_erf() -> None:
    writer = GraphWriter("gelus")
    by_tanh = tanh_gelu(writer, writer.input("x", [64]), "/tanh")
    writer.output(erf_gelu(writer, by_tanh, "/erf"), "y", [64])
    assert kinds(writer.model()) == ["fast-gelu", "gelu"]
    for made, wanted in ((erf_gelu, ["gelu"]), (tanh_gelu, [])):
        writer = GraphWriter("gelu")
        writer.output(made(writer, writer.input("x", [64]), "/gelu"), "y", [64])
        assert kinds(writer.model()) == wanted


def test_a_fused_gelu_takes_exact_numbers_where_the_model_s_are_rounded() -> None:
    x = h(np.linspace(-2, 8, 2001))
    writer = GraphWriter("gelu")
    writer.output(erf_gelu(writer, writer.input("x", [2001]), "/gelu"), "y", [2001])
    exact = [0.5 * each * (1 + math.erf(each / math.sqrt(2))) for each in x.tolist()]
    assert np.mean(run(ORT_CUDA, writer.model(), x=x) == h(exact)) > 0.995
    assert np.mean(run(ORT_CUDA_UNFUSED, writer.model(), x=x) == h(exact)) < 0.9


def test_x_times_sigmoid_becomes_one_kernel_that_stores_every_step() -> None:
    x = h(np.linspace(-8, 8, 1001))
    proto = model([node("Sigmoid", "x", "s"), node("Mul", "x s", "y")], [value("x", shape=x.shape)],
                  [value("y", shape=x.shape)])  # fmt: skip
    upper = h(1 / h(1 + h(np.exp(-np.abs(x)))))
    assert np.array_equal(run(ORT_CUDA, proto, x=x), h(x * np.where(x > 0, upper, h(1 - upper))))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("length", "finite"), [(1024, True), (2048, False)])
def test_a_factor_beside_a_product_is_taken_in_and_protects_short_sums_only(
    before: bool, length: int, finite: bool
) -> None:
    shape = (8, length)
    if before:
        nodes = [node("Mul", "x s", "a"), node("MatMul", "a w", "y")]
    else:
        nodes = [node("MatMul", "x w", "a"), node("Mul", "a s", "y")]
    weights = [weight("s", np.float32(2.0**-6)), weight("w", np.full((length, 8), 16.0, np.float32))]
    proto = model(nodes, [value("x", shape=shape)], [value("y", shape=(8, 8))], weights)
    assert np.isfinite(run(ORT_CUDA, proto, x=np.full(shape, 8.0, np.float32))).all() == finite


def test_a_batch_norm_goes_into_the_weights_before_it() -> None:
    weights = [weight("w", np.full((1, 1, 1), 1 / 3, np.float32)), *(weight(n, f32(v)) for n, v in
               (("scale", 0.7), ("shift", 0.0), ("mean", 0.0), ("var", 3.0)))]  # fmt: skip
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c scale shift mean var", "y", epsilon=0.0)]
    proto = model(nodes, [value("x", shape=(1, 1, 1))], [value("y", shape=None)], weights)
    folded = h(h(1 / 3) * h(h(0.7) / h(np.sqrt(np.float32(3)))))
    assert run(ORT_CUDA, proto, x=f32(100).reshape(1, 1, 1)).item() == h(100 * folded)


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("samples", [1, 2])
def test_an_instance_norm_of_several_samples_stores_its_steps(opset: int, samples: int) -> None:
    rng = np.random.default_rng(3)
    x = h(0.5 + 2 * rng.standard_normal((samples, 3, 5, 7)))
    scale, bias = h(rng.standard_normal(3)), h(rng.standard_normal(3))
    wide = x.astype(np.float64)
    mean, variance = wide.mean((2, 3), keepdims=True), wide.var((2, 3), keepdims=True, ddof=1)
    s, b = scale[:, None, None], bias[:, None, None]
    stored = h(np.sqrt(h(h(variance) * h(34 / 35) + h(1e-5))))
    several = h(h(h(s * h(x - h(mean))) / stored) + b)
    exact = h(s * (wide - mean) / np.sqrt(variance * 34 / 35 + 1e-5) + b)
    for first in (samples, "N"):
        proto = model(
            [node("InstanceNormalization", "x s b", "y")],
            [value("x", shape=(first, 3, 5, 7))],
            [value("y", shape=None)],
            [weight("s", scale), weight("b", bias)],
            opset,
        )
        got = run(ORT_CUDA_UNFUSED, proto, x=x)
        assert np.mean(got == (exact if samples == 1 else several)) > 0.98, first
    assert np.mean(exact == several) < 0.95
