"""A DETR-like decoder head on pixel coordinates: sine position embedding and iterative box refinement, 169 nodes."""

from __future__ import annotations

import numpy as np

from tests.models.zoo.blocks import Array, linear, trained_matrix
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.zoo_model import Feed, ZooModel

_WIDTH = 64
_HEADS = 4
_QUERIES = 30
_MEMORY = 80
_CLASSES = 8
_IMAGE = 4000.0
_PERIOD = 50.0  # pixels in a full turn of the fastest sine
_INVERSE_SIGMOID = ("Clip", "Sub", "Div", "Log")
_POSITION = ("Slice", "Mul", "Unsqueeze", "Div", "Sin", "Cos")


def detr_head() -> ZooModel:
    """Every node has a float output. Two things need more than FP16's 11 bits, and only together do they suffice:

    the phases of the position embedding (a coordinate near 4000 is rounded to 2 pixels), and the chain that refines
    the boxes of block 0, because block 1 computes its own position embedding from their pixels. The rest is healthy.
    """
    rng = np.random.default_rng(169)
    writer = GraphWriter("detr_head")
    pixels = writer.input("anchors", [1, _QUERIES, 4])
    memory = writer.input("memory", [1, _MEMORY, _WIDTH])
    image = writer.weight("image_size", [_IMAGE] * 4)
    keys = writer.op("Add", [memory, writer.weight("memory_position", _memory_position())], "/decoder")
    boxes = writer.op("Div", [pixels, image], "/decoder")
    target = writer.weight("query_features", rng.standard_normal((1, _QUERIES, _WIDTH)))
    for block in range(2):
        scope = f"/decoder/layers.{block}"
        position = _query_position(writer, rng, pixels, target, scope)
        query = writer.op("Add", [target, position], f"{scope}/self_attn")
        attended = _attention(writer, rng, (query, query, target), f"{scope}/self_attn", _QUERIES)
        target = _residual_norm(writer, rng, target, attended, f"{scope}/norm1")
        query = writer.op("Add", [target, position], f"{scope}/cross_attn")
        attended = _attention(writer, rng, (query, keys, memory), f"{scope}/cross_attn", _MEMORY)
        target = _residual_norm(writer, rng, target, attended, f"{scope}/norm2")
        target = _residual_norm(writer, rng, target, _mlp(writer, rng, target, f"{scope}/ffn", 128), f"{scope}/norm3")
        delta = _mlp(writer, rng, target, f"/decoder/bbox_embed.{block}", _WIDTH, outputs=4, gain=0.2)
        boxes = _refine(writer, boxes, delta, f"/decoder/refine.{block}")
        pixels = writer.op("Mul", [boxes, image], f"/decoder/refine.{block}")
    logits = linear(writer, target, "/class_embed", trained_matrix(rng, _WIDTH, _CLASSES), np.full(_CLASSES, -1.0))
    writer.output(pixels, "boxes", [1, _QUERIES, 4])
    writer.output(writer.op("Sigmoid", [logits], "/class_embed"), "scores", [1, _QUERIES, _CLASSES])

    known_good = [f"/decoder/layers.{block}/position/{op}" for block in range(2) for op in _POSITION]
    known_good += [f"/decoder/refine.0/{op}" for op in (*_INVERSE_SIGMOID, "Add", "Sigmoid", "Mul")] + ["/decoder/Div"]
    return ZooModel("detr_head", writer.model(), _inputs(rng), 0.002, tuple(known_good))


def _query_position(writer: GraphWriter, rng: np.random.Generator, pixels: str, target: str, scope: str) -> str:
    """Sine and cosine of each centre coordinate at 16 frequencies, interleaved, then an MLP, scaled by the content."""
    position = f"{scope}/position"
    key = position.strip("/").replace("/", ".")
    bounds = [
        writer.weight(f"{key}.{name}", [value], np.int64) for name, value in (("start", 0), ("end", 2), ("axis", -1))
    ]
    centre = writer.op("Slice", [pixels, *bounds], position)
    scaled = writer.op("Mul", [centre, writer.weight(f"{key}.turn", 2.0 * np.pi / _PERIOD)], position)
    column = writer.op("Unsqueeze", [scaled, writer.weight(f"{key}.last", [-1], np.int64)], position)
    phase = writer.op("Div", [column, writer.weight(f"{key}.dim_t", _periods())], position)
    waves = [
        writer.op(
            "Unsqueeze",
            [writer.op(op, [phase], position), writer.weight(f"{key}.{op}_axis", [-1], np.int64)],
            f"{position}/{op.lower()}",
        )
        for op in ("Sin", "Cos")
    ]
    pairs = writer.op("Concat", waves, position, axis=-1)
    flat = writer.op("Reshape", [pairs, writer.weight(f"{key}.flat", [1, _QUERIES, _WIDTH], np.int64)], position)
    mixed = _mlp(writer, rng, flat, f"{scope}/position_mlp", _WIDTH)
    weight = trained_matrix(rng, _WIDTH, _WIDTH)
    query_scale = writer.op("MatMul", [target, writer.weight(f"{key}.query_scale", weight)], f"{scope}/query_scale")
    return writer.op("Mul", [mixed, query_scale], f"{scope}/query_scale")


def _attention(
    writer: GraphWriter, rng: np.random.Generator, sources: tuple[str, str, str], scope: str, keys: int
) -> str:
    key, head = scope.strip("/").replace("/", "."), _WIDTH // _HEADS
    parts = []
    for part, source, length, order in zip(
        "qkv", sources, (_QUERIES, keys, keys), ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True
    ):
        weight, bias = trained_matrix(rng, _WIDTH, _WIDTH), rng.normal(0.0, 0.1, _WIDTH)
        projected = linear(writer, source, f"{scope}/{part}_proj", weight, bias)
        shape = writer.weight(f"{key}.{part}_shape", [1, length, _HEADS, head], np.int64)
        parts.append(writer.op("Transpose", [writer.op("Reshape", [projected, shape], scope)], scope, perm=order))
    query = writer.op("Mul", [parts[0], writer.weight(f"{key}.scale", head**-0.5)], scope)
    weights = writer.op("Softmax", [writer.op("MatMul", [query, parts[1]], scope)], scope, axis=-1)
    attended = writer.op("Transpose", [writer.op("MatMul", [weights, parts[2]], scope)], scope, perm=[0, 2, 1, 3])
    shape = writer.weight(f"{key}.merge_shape", [1, _QUERIES, _WIDTH], np.int64)
    merged = writer.op("Reshape", [attended, shape], scope)
    weight, bias = trained_matrix(rng, _WIDTH, _WIDTH), rng.normal(0.0, 0.1, _WIDTH)
    return linear(writer, merged, f"{scope}/out_proj", weight, bias)


def _residual_norm(writer: GraphWriter, rng: np.random.Generator, x: str, branch: str, scope: str) -> str:
    total = writer.op("Add", [x, branch], scope)
    key = scope.strip("/").replace("/", ".")
    gamma = writer.weight(f"{key}.weight", rng.lognormal(0.0, 0.2, _WIDTH))
    beta = writer.weight(f"{key}.bias", rng.normal(0.0, 0.1, _WIDTH))
    return writer.op("LayerNormalization", [total, gamma, beta], scope, axis=-1, epsilon=1e-5)


def _mlp(
    writer: GraphWriter,
    rng: np.random.Generator,
    x: str,
    scope: str,
    hidden: int,
    outputs: int = _WIDTH,
    gain: float = 1.0,
) -> str:
    up = linear(writer, x, f"{scope}/0", trained_matrix(rng, _WIDTH, hidden), rng.normal(0.0, 0.1, hidden))
    bent = writer.op("Relu", [up], scope)
    weight, bias = trained_matrix(rng, hidden, outputs, gain), rng.normal(0.0, 0.1 * gain, outputs)
    return linear(writer, bent, f"{scope}/1", weight, bias)


def _refine(writer: GraphWriter, boxes: str, delta: str, scope: str) -> str:
    """sigmoid(log(x / (1 - x)) + delta)"""
    key = scope.strip("/").replace("/", ".")
    bounds = [writer.weight(f"{key}.low", 1e-5), writer.weight(f"{key}.high", 1.0 - 1e-5)]
    inside = writer.op("Clip", [boxes, *bounds], scope)
    rest = writer.op("Sub", [writer.weight(f"{key}.one", 1.0), inside], scope)
    logit = writer.op("Log", [writer.op("Div", [inside, rest], scope)], scope)
    return writer.op("Sigmoid", [writer.op("Add", [logit, delta], scope)], scope)


def _periods() -> Array:
    """dim_t: what the phase is divided by, from 1 to nearly 10000."""
    frequencies = _WIDTH // 4
    return (10000.0 ** (np.arange(frequencies) / frequencies)).astype(np.float32)


def _memory_position() -> Array:
    """The position embedding of a fixed grid of feature cells, folded into a table as exporters do."""
    rows, columns = np.divmod(np.arange(_MEMORY), 10)
    centres = np.stack([(columns + 0.5) * _IMAGE / 10, (rows + 0.5) * _IMAGE / 8], axis=-1)
    phase = centres[:, :, None] * (2.0 * np.pi / _PERIOD) / _periods().astype(np.float64)
    return np.stack([np.sin(phase), np.cos(phase)], axis=-1).reshape(1, _MEMORY, _WIDTH).astype(np.float32)


def _inputs(rng: np.random.Generator) -> list[Feed]:
    """Scenes of different layout and contrast, all with boxes up to the far edge of the image."""
    channels = rng.lognormal(0.0, 0.4, _WIDTH)
    basis = rng.standard_normal((6, _WIDTH))
    feeds: list[Feed] = []
    for contrast in np.geomspace(0.5, 2.0, 12):
        spread = rng.uniform(300.0, 1200.0)
        focus = rng.uniform(0.3, 0.7, 2) * _IMAGE
        centres = np.clip(focus + spread * rng.standard_normal((_QUERIES, 2)), 60.0, _IMAGE - 60.0)
        sizes = np.clip(rng.lognormal(5.5, 0.7, (_QUERIES, 2)), 20.0, 0.6 * _IMAGE)
        objects = rng.standard_normal((_MEMORY, 6)) @ basis / np.sqrt(6.0)
        features = contrast * channels * (objects + 0.5 * rng.standard_normal((_MEMORY, _WIDTH)))
        anchors = np.concatenate([centres, sizes], axis=-1)[None]
        feeds.append({"anchors": anchors.astype(np.float32), "memory": features[None].astype(np.float32)})
    return feeds
