"""A deep narrow transformer, written out as an exporter with dynamic shapes does: 61 nodes a layer and 13 more."""

from __future__ import annotations

import numpy as np

from tests.models.zoo.blocks import ResidualStream, decomposed_layer_norm, linear, tanh_gelu, trained_matrix
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.inputs import token_inputs
from tests.models.zoo.zoo_model import Feed, ZooModel

_HEADS = 4
_WIDTH = 64
_SEQ = 16


def transformer(layers: int, seed: int = 61) -> ZooModel:
    """Fails as the encoder does: Pow overflows in every norm behind layer 0, the mean of the squares (2e4) fits.

    379, 1,477 and 2,941 nodes at 6, 24 and 48 layers; cheap to run, so that it shows how a method grows with the graph.
    """
    rng = np.random.default_rng(seed)
    stream = ResidualStream(_WIDTH, 10.0, {3: 880.0, 30: -610.0, 51: 350.0})
    # The branches of a trained deep network are small beside the stream; so the depth does not change its scale.
    gain = 0.3 * stream.typical * float(np.sqrt(6.0 / max(6, layers)))
    writer = GraphWriter("transformer")
    x = writer.input("hidden_states", ["batch", _SEQ, _WIDTH])
    for layer in range(layers):
        deviation = stream.typical if layer == 0 else stream.deviation
        scope = f"/layers.{layer}"
        normal = _norm(writer, rng, x, f"{scope}/norm1", stream, deviation)
        x = writer.op("Add", [x, _attention(writer, rng, normal, f"{scope}/self_attn", gain)], scope)
        normal = _norm(writer, rng, x, f"{scope}/norm2", stream, deviation)
        outliers = stream if layer == 0 else ResidualStream(_WIDTH, stream.typical, {})
        x = writer.op("Add", [x, _feed_forward(writer, rng, normal, f"{scope}/mlp", gain, outliers)], scope)
    normal = _norm(writer, rng, x, "/norm", stream, stream.deviation)
    first = writer.op("Gather", [normal, writer.weight("pooler.first", 0, np.int64)], "/pooler", axis=1)
    dense = linear(writer, first, "/pooler/dense", trained_matrix(rng, _WIDTH, _WIDTH), rng.normal(0.0, 0.1, _WIDTH))
    pooled = writer.op("Tanh", [dense], "/pooler")
    writer.output(pooled, "pooled", ["batch", _WIDTH])

    scales = np.geomspace(5.0, 9.0, 10)
    inputs: list[Feed] = [{"hidden_states": token_inputs(rng, 2, _SEQ, _WIDTH, float(scale))} for scale in scales]
    norms = [f"/layers.{layer}/norm{which}" for layer in range(1, layers) for which in (1, 2)] + ["/norm"]
    known_good = tuple(f"{norm}/{op}" for norm in norms for op in ("Pow", "ReduceMean_1"))
    return ZooModel(f"transformer_{layers}", writer.model(), inputs, 0.01, known_good)


def _norm(
    writer: GraphWriter, rng: np.random.Generator, x: str, scope: str, stream: ResidualStream, deviation: float
) -> str:
    return decomposed_layer_norm(writer, x, scope, stream.gamma(rng, deviation), rng.normal(0.0, 0.1, _WIDTH))


def _attention(writer: GraphWriter, rng: np.random.Generator, x: str, scope: str, gain: float) -> str:
    """Multi-head attention: projections, shapes computed from the input, a relative position bias."""
    key = scope.strip("/").replace("/", ".")
    head = _WIDTH // _HEADS
    sizes = []
    for axis, dimension in enumerate(("batch", "seq")):
        index = writer.weight(f"{key}.{dimension}_axis", axis, np.int64)
        size = writer.op("Gather", [writer.op("Shape", [x], scope), index], scope, axis=0)
        sizes.append(writer.op("Unsqueeze", [size, writer.weight(f"{key}.{dimension}_zero", [0], np.int64)], scope))
    heads = writer.weight(f"{key}.heads", [_HEADS, head], np.int64)
    split = writer.op("Concat", [*sizes, heads], scope, axis=0)
    merge = writer.op("Concat", [*sizes, writer.weight(f"{key}.width", [_WIDTH], np.int64)], scope, axis=0)
    parts = {}
    for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        weight, bias = trained_matrix(rng, _WIDTH, _WIDTH), rng.normal(0.0, 0.2, _WIDTH)
        projected = linear(writer, x, f"{scope}/{part}_proj", weight, bias)
        parts[part] = writer.op("Transpose", [writer.op("Reshape", [projected, split], scope)], scope, perm=order)
    scores = writer.op("MatMul", [parts["q"], parts["k"]], scope)
    scaled = writer.op("Div", [scores, writer.weight(f"{key}.sqrt_head", np.sqrt(head))], scope)
    distance = np.abs(np.subtract.outer(np.arange(_SEQ), np.arange(_SEQ)))
    slopes = rng.uniform(0.02, 0.2, (_HEADS, 1, 1))
    biased = writer.op("Add", [scaled, writer.weight(f"{key}.position_bias", -slopes * distance)], scope)
    attended = writer.op("MatMul", [writer.op("Softmax", [biased], scope, axis=-1), parts["v"]], scope)
    merged = writer.op("Reshape", [writer.op("Transpose", [attended], scope, perm=[0, 2, 1, 3]), merge], scope)
    weight, bias = trained_matrix(rng, _WIDTH, _WIDTH, gain), rng.normal(0.0, 0.1 * gain, _WIDTH)
    return linear(writer, merged, f"{scope}/out_proj", weight, bias)


def _feed_forward(
    writer: GraphWriter, rng: np.random.Generator, x: str, scope: str, gain: float, outliers: ResidualStream
) -> str:
    hidden = 2 * _WIDTH
    up = linear(writer, x, f"{scope}/fc1", trained_matrix(rng, _WIDTH, hidden), rng.normal(0.0, 0.2, hidden))
    bent = tanh_gelu(writer, up, f"{scope}/act")
    weight, bias = trained_matrix(rng, hidden, _WIDTH, gain), rng.normal(0.0, 0.1 * gain, _WIDTH)
    for channel, value in outliers.outliers.items():
        # The outliers move with the input, by about a tenth of their size.
        weight[:, channel] *= 0.1 * abs(value) / gain
        bias[channel] = value
    return linear(writer, bent, f"{scope}/fc2", weight, bias)
