"""A pre-norm transformer encoder whose decomposed LayerNorms overflow FP16 silently: 305 nodes at six layers."""

from __future__ import annotations

import numpy as np

from tests.models.zoo.blocks import ResidualStream, decomposed_layer_norm, erf_gelu, linear, trained_matrix
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.inputs import token_inputs
from tests.models.zoo.zoo_model import Feed, ZooModel

_HEADS = 4


def encoder(layers: int = 6, width: int = 128, seq: int = 64, overflow: bool = True) -> ZooModel:
    """Layer 0's feed-forward writes outlier channels of up to about 900 into the residual stream.

    From then on every norm's Pow exceeds 65504, while the mean of the squares (about 1e4) fits into FP16. So Pow and
    the ReduceMean behind it must be FP32 in every norm but the two of layer 0; all else is healthy. Strictly in FP16
    the variance is infinite, x / inf is 0, and no NaN ever tells. With `overflow=False` the outliers stay below 256.
    """
    rng = np.random.default_rng(305)
    size = 1.0 if overflow else 0.2
    stream = ResidualStream(width, 10.0, {7: 880.0 * size, width // 2 + 5: -610.0 * size, width - 9: 350.0 * size})
    writer = GraphWriter("encoder")
    x = writer.input("hidden_states", [1, seq, width])
    for layer in range(layers):
        deviation = stream.typical if layer == 0 else stream.deviation
        scope = f"/layers.{layer}"
        gamma, beta = stream.gamma(rng, deviation), rng.normal(0.0, 0.1, width)
        normal = decomposed_layer_norm(writer, x, f"{scope}/norm1", gamma, beta)
        attended = _self_attention(writer, rng, normal, f"{scope}/self_attn", stream, seq)
        x = writer.op("Add", [x, attended], scope)
        gamma, beta = stream.gamma(rng, deviation), rng.normal(0.0, 0.1, width)
        normal = decomposed_layer_norm(writer, x, f"{scope}/norm2", gamma, beta)
        x = writer.op("Add", [x, _feed_forward(writer, rng, normal, f"{scope}/mlp", stream, layer == 0)], scope)
    gamma, beta = stream.gamma(rng, stream.deviation), rng.normal(0.0, 0.1, width)
    normal = decomposed_layer_norm(writer, x, "/norm", gamma, beta)
    logits = linear(writer, normal, "/head", trained_matrix(rng, width, 32), rng.normal(0.0, 0.1, 32))
    writer.output(logits, "logits", [1, seq, 32])

    scales = np.geomspace(4.0, 9.0, 12)
    inputs: list[Feed] = [{"hidden_states": token_inputs(rng, 1, seq, width, float(scale))} for scale in scales]
    norms = [f"/layers.{layer}/norm{which}" for layer in range(1, layers) for which in (1, 2)] + ["/norm"]
    known_good = tuple(f"{norm}/{op}" for norm in norms for op in ("Pow", "ReduceMean_1")) if overflow else ()
    name = "encoder" if overflow else "encoder_healthy"
    return ZooModel(name, writer.model(), inputs, 0.01, known_good, fails=overflow)


def _self_attention(
    writer: GraphWriter, rng: np.random.Generator, x: str, scope: str, stream: ResidualStream, seq: int
) -> str:
    width, head = stream.width, stream.width // _HEADS
    key = scope.strip("/").replace("/", ".")
    split = writer.weight(f"{key}.split_shape", [1, seq, _HEADS, head], np.int64)
    merge = writer.weight(f"{key}.merge_shape", [1, seq, width], np.int64)
    parts = {}
    for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        weight, bias = trained_matrix(rng, width, width), rng.normal(0.0, 0.2, width)
        projected = linear(writer, x, f"{scope}/{part}_proj", weight, bias)
        parts[part] = writer.op("Transpose", [writer.op("Reshape", [projected, split], scope)], scope, perm=order)
    scores = writer.op("MatMul", [parts["q"], parts["k"]], scope)
    scaled = writer.op("Div", [scores, writer.weight(f"{key}.sqrt_head", np.sqrt(head))], scope)
    attended = writer.op("MatMul", [writer.op("Softmax", [scaled], scope, axis=-1), parts["v"]], scope)
    merged = writer.op("Reshape", [writer.op("Transpose", [attended], scope, perm=[0, 2, 1, 3]), merge], scope)
    weight = trained_matrix(rng, width, width, 0.3 * stream.typical)
    return linear(writer, merged, f"{scope}/out_proj", weight, stream.bias(rng, False))


def _feed_forward(
    writer: GraphWriter, rng: np.random.Generator, x: str, scope: str, stream: ResidualStream, write_outliers: bool
) -> str:
    width, hidden = stream.width, 4 * stream.width
    up = linear(writer, x, f"{scope}/fc1", trained_matrix(rng, width, hidden), rng.normal(0.0, 0.2, hidden))
    bent = erf_gelu(writer, up, f"{scope}/act")
    weight = trained_matrix(rng, hidden, width, 0.3 * stream.typical)
    if write_outliers:
        # The outliers move with the input, by about a tenth of their size.
        for channel, value in stream.outliers.items():
            weight[:, channel] *= 0.03 * abs(value)
    return linear(writer, bent, f"{scope}/fc2", weight, stream.bias(rng, write_outliers))
