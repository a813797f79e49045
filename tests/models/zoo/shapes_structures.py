"""Small shapes whose failure sits in an unusual place: a body, a function, shared weights, mixed or side types."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.models.zoo.blocks import (
    Array,
    decomposed_layer_norm,
    decomposed_rms_norm,
    linear,
    outlier_gamma,
    trained_matrix,
)
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.inputs import OUTLIER_WIDTH, feeds, outlier_tokens, scales
from tests.models.zoo.zoo_model import Feed, ZooModel

_TOKENS = 16
_WIDTH = OUTLIER_WIDTH
_FUNCTIONS = "zoo.functions"


def if_with_norms() -> ZooModel:
    """Both branches of an If overflow: one in a LayerNorm, the other in an RMSNorm. The inputs take turns."""
    rng = np.random.default_rng(41)
    writer = GraphWriter("if_with_norms")
    x = writer.input("x", [1, _TOKENS, _WIDTH])
    centre = writer.input("centre", [], TensorProto.BOOL)
    branches = {}
    for branch in ("then", "else"):
        body = GraphWriter(f"{branch}_body")
        scope = f"/norm/{branch}"
        if branch == "then":
            y = decomposed_layer_norm(body, x, scope, outlier_gamma(rng), rng.normal(0.0, 0.1, _WIDTH))
        else:
            y = decomposed_rms_norm(body, x, scope, outlier_gamma(rng))
        body.output(y, f"{branch}_normal", [1, _TOKENS, _WIDTH])
        branches[f"{branch}_branch"] = body.graph()
    _project(writer, rng, writer.op("If", [centre], "/norm", **branches))
    inputs: list[Feed] = [
        {"x": outlier_tokens(rng, scale), "centre": np.array(turn % 2 == 0)} for turn, scale in enumerate(scales())
    ]
    return ZooModel("if_with_norms", writer.model(), inputs, 0.01)


def loop_with_float_state() -> ZooModel:
    """A float state that grows past 65504 in 24 steps and is scaled back after the Loop."""
    rng = np.random.default_rng(42)
    writer = GraphWriter("loop_with_float_state")
    x = writer.input("x", [1, _WIDTH])
    body = GraphWriter("loop_body")
    body.input("step", [], TensorProto.INT64)
    go_on = body.input("go_on", [], TensorProto.BOOL)
    state = body.input("state", [1, _WIDTH])
    grown = body.op("Mul", [state, body.weight("loop.growth", 1.6)], "/loop/body")
    mixed = body.op("Add", [grown, x], "/loop/body")
    body.output(body.op("Identity", [go_on], "/loop/body"), "go_on_out", [], TensorProto.BOOL)
    body.output(mixed, "state_out", [1, _WIDTH])
    steps = writer.weight("loop.steps", 24, np.int64)
    final = writer.op("Loop", [steps, writer.weight("loop.start", True, np.bool_), x], "/loop", body=body.graph())
    scaled = writer.op("Mul", [final, writer.weight("loop.scale", 1e-5)], "/scale")
    y = linear(writer, scaled, "/proj", trained_matrix(rng, _WIDTH, 32), rng.normal(0.0, 0.02, 32))
    writer.output(y, "y", [1, 32])

    def rows(rng: np.random.Generator, scale: float) -> Array:
        return (4.0 * scale * rng.standard_normal((1, _WIDTH))).astype(np.float32)

    return ZooModel("loop_with_float_state", writer.model(), feeds(rng, "x", rows), 0.01)


def scan_with_energy() -> ZooModel:
    """A Scan that normalises each step by the energy so far; the sum of squares leaves FP16's range."""
    rng = np.random.default_rng(43)
    writer = GraphWriter("scan_with_energy")
    x = writer.input("x", [_TOKENS, _WIDTH])
    body = GraphWriter("scan_body")
    energy, frame = body.input("energy", [1]), body.input("frame", [_WIDTH])
    square = body.op("Mul", [frame, frame], "/scan/body")
    total = body.op("ReduceSum", [square, body.weight("scan.axes", [0], np.int64)], "/scan/body")
    summed = body.op("Add", [energy, total], "/scan/body")
    normal = body.op("Div", [frame, body.op("Sqrt", [summed], "/scan/body")], "/scan/body")
    body.output(summed, "energy_out", [1])
    body.output(normal, "frame_out", [_WIDTH])
    start = writer.weight("scan.start", [1.0])
    _, frames = writer.ops("Scan", [start, x], "/scan", 2, body=body.graph(), num_scan_inputs=1)
    y = linear(writer, frames, "/proj", trained_matrix(rng, _WIDTH, 32, 4.0), rng.normal(0.0, 0.02, 32))
    writer.output(y, "y", [_TOKENS, 32])

    def loud(rng: np.random.Generator, scale: float) -> Array:
        return (60.0 * scale * rng.standard_normal((_TOKENS, _WIDTH))).astype(np.float32)

    return ZooModel("scan_with_energy", writer.model(), feeds(rng, "x", loud), 0.01)


def local_function() -> ZooModel:
    """An overflowing RMSNorm as a model-local function, called twice."""
    rng = np.random.default_rng(44)
    steps = [
        helper.make_node("Constant", [], ["two"], name="two", value_float=2.0),
        helper.make_node("Constant", [], ["eps"], name="eps", value_float=1e-6),
        helper.make_node("Pow", ["x", "two"], ["square"], name="Pow"),
        helper.make_node("ReduceMean", ["square"], ["mean"], name="ReduceMean", axes=[-1]),
        helper.make_node("Add", ["mean", "eps"], ["guarded"], name="Add"),
        helper.make_node("Sqrt", ["guarded"], ["deviation"], name="Sqrt"),
        helper.make_node("Div", ["x", "deviation"], ["normal"], name="Div"),
        helper.make_node("Mul", ["normal", "gamma"], ["y"], name="Mul"),
    ]
    opsets = [helper.make_opsetid("", 17)]
    norm = helper.make_function(_FUNCTIONS, "RmsNorm", ["x", "gamma"], ["y"], steps, opsets)
    writer = GraphWriter("local_function")
    x = writer.input("x", [1, _TOKENS, _WIDTH])
    for layer in range(2):
        gamma = writer.weight(f"layers.{layer}.weight", outlier_gamma(rng))
        normal = writer.op("RmsNorm", [x, gamma], f"/layers.{layer}", domain=_FUNCTIONS)
        weight, bias = trained_matrix(rng, _WIDTH, _WIDTH, 10.0), rng.normal(0.0, 0.1, _WIDTH)
        x = writer.op("Add", [x, linear(writer, normal, f"/layers.{layer}/proj", weight, bias)], f"/layers.{layer}")
    gamma = writer.weight("norm.weight", outlier_gamma(rng))
    _project(writer, rng, writer.op("RmsNorm", [x, gamma], "/norm", domain=_FUNCTIONS))
    return ZooModel("local_function", writer.model(functions=[norm]), feeds(rng, "x", outlier_tokens), 0.01)


def shared_initializers() -> ZooModel:
    """Exponent, epsilon, weight of a quiet and of an overflowing norm are the same tensors, the embedding is tied."""
    rng = np.random.default_rng(45)
    writer = GraphWriter("shared_initializers")
    x = writer.input("x", [1, _TOKENS, _WIDTH])
    two, eps = writer.weight("shared.two", 2.0), writer.weight("shared.eps", 1e-5)
    quiet = writer.op("Mul", [x, writer.weight("quiet.scale", 0.05)], "/quiet")
    gamma = writer.weight("shared.gamma", outlier_gamma(rng))
    embedding = writer.weight("shared.embedding", trained_matrix(rng, _WIDTH, _WIDTH))
    products = []
    for source, scope in ((x, "/loud"), (quiet, "/quiet")):
        mean = writer.op("ReduceMean", [writer.op("Pow", [source, two], scope)], scope, axes=[-1])
        deviation = writer.op("Sqrt", [writer.op("Add", [mean, eps], scope)], scope)
        normal = writer.op("Mul", [writer.op("Div", [source, deviation], scope), gamma], scope)
        products.append(writer.op("MatMul", [normal, embedding], scope))
    tied = writer.op("Transpose", [embedding], "/head", perm=[1, 0])
    mixed = writer.op("Sub", products, "/head")
    bent = writer.op("Tanh", [writer.op("Add", [mixed, products[0]], "/head")], "/head")
    writer.output(writer.op("MatMul", [bent, tied], "/head"), "y", [1, _TOKENS, _WIDTH])
    known_good = ("/loud/Pow", "/loud/ReduceMean")
    return ZooModel("shared_initializers", writer.model(), feeds(rng, "x", outlier_tokens), 0.01, known_good)


def partly_fp16() -> ZooModel:
    """An overflowing FP32 norm in front of a layer that is FP16 already, with an FP16 output beside the FP32 one."""
    rng = np.random.default_rng(46)
    writer = GraphWriter("partly_fp16")
    x = writer.input("x", [1, _TOKENS, _WIDTH])
    normal = decomposed_rms_norm(writer, x, "/norm", outlier_gamma(rng))
    half = writer.op("Cast", [normal], "/proj", to=TensorProto.FLOAT16)
    weight = writer.weight("proj.weight", trained_matrix(rng, _WIDTH, 32), np.float16)
    product = writer.op("MatMul", [half, weight], "/proj")
    added = writer.op("Add", [product, writer.weight("proj.bias", rng.normal(0.0, 0.02, 32), np.float16)], "/proj")
    single = writer.op("Cast", [added], "/out", to=TensorProto.FLOAT)
    bent = writer.op("Tanh", [single], "/out")
    writer.output(bent, "y", [1, _TOKENS, 32])
    writer.output(added, "half", [1, _TOKENS, 32], TensorProto.FLOAT16)
    known_good = ("/norm/Pow", "/norm/ReduceMean")
    return ZooModel("partly_fp16", writer.model(), feeds(rng, "x", outlier_tokens), 0.01, known_good)


def side_tensors() -> ZooModel:
    """Token ids, a double clock, a flag and a string pass beside an overflowing norm, and must come out untouched."""
    rng = np.random.default_rng(47)
    writer = GraphWriter("side_tensors")
    ids = writer.input("ids", [1, _TOKENS], TensorProto.INT64)
    clock = writer.input("clock", [1, _TOKENS, 1], TensorProto.DOUBLE)
    label = writer.input("label", [1], TensorProto.STRING)
    table = np.concatenate([outlier_tokens(rng, 1.0)[0] for _ in range(4)])
    embedded = writer.op("Gather", [writer.weight("embedding.weight", table), ids], "/embedding", axis=0)
    start = writer.op("ReduceMin", [clock], "/clock", axes=[1])
    elapsed = writer.op("Sub", [clock, start], "/clock")
    single = writer.op("Cast", [elapsed], "/clock", to=TensorProto.FLOAT)
    drift = writer.op(
        "MatMul", [single, writer.weight("clock.weight", 3.0 * rng.standard_normal((1, _WIDTH)))], "/clock"
    )
    tokens = writer.op("Add", [embedded, drift], "/embedding")
    _project(writer, rng, decomposed_rms_norm(writer, tokens, "/norm", outlier_gamma(rng)))
    known = writer.op("Greater", [ids, writer.weight("padding", 0, np.int64)], "/ids")
    count = writer.op("ReduceSum", [writer.op("Cast", [known], "/ids", to=TensorProto.INT64)], "/ids", keepdims=0)
    writer.output(count, "count", [], TensorProto.INT64)
    writer.output(elapsed, "elapsed", [1, _TOKENS, 1], TensorProto.DOUBLE)
    writer.output(writer.op("Identity", [label], "/label"), "label_out", [1], TensorProto.STRING)

    inputs: list[Feed] = []
    for number, scale in enumerate(scales()):
        seconds = 1.7e9 + np.cumsum(scale * rng.uniform(0.0, 0.2, (1, _TOKENS, 1)), axis=1)
        ids_drawn = rng.integers(0, len(table), (1, _TOKENS))
        inputs.append({"ids": ids_drawn, "clock": seconds, "label": np.array([f"clip {number}"], dtype=object)})
    known_good = ("/norm/Pow", "/norm/ReduceMean")
    return ZooModel("side_tensors", writer.model(), inputs, 0.01, known_good)


def _project(writer: GraphWriter, rng: np.random.Generator, x: str) -> None:
    y = linear(writer, x, "/proj", trained_matrix(rng, _WIDTH, 32), rng.normal(0.0, 0.02, 32))
    writer.output(y, "y", [1, _TOKENS, 32])
