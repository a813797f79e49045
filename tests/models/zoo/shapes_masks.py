"""Small shapes: attention masks that stand for minus infinity and become it in FP16, with rows that are all masked."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from tests.models.zoo.blocks import trained_matrix
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.inputs import scales
from tests.models.zoo.zoo_model import Feed, ZooModel

_BATCH = 3
_TOKENS = 12
_WIDTH = 16
_LOWEST = -3.4028234663852886e38


def mask_minus_1e9() -> ZooModel:
    """scores + (1 - mask) * -1e9. One item of the batch is all padding: FP32 makes its row uniform, FP16 does not."""
    return _additive_mask("mask_minus_1e9", 11, -1e9)


def mask_float_min() -> ZooModel:
    """As `mask_minus_1e9` with the lowest FP32 number; unless clamped, 0 * -inf is NaN even where nothing is masked."""
    return _additive_mask("mask_float_min", 12, _LOWEST)


def mask_where_scaled() -> ZooModel:
    """Where(mask, scores, -1e9) times a learned temperature: beyond the lowest FP16 number even if -1e9 is clamped."""
    rng = np.random.default_rng(13)
    writer = GraphWriter("mask_where_scaled")
    values, scores = _scores(writer, rng)
    keep = writer.op("Cast", [_mask_input(writer)], "/mask", to=TensorProto.BOOL)
    masked = writer.op("Where", [keep, scores, writer.weight("mask.lowest", -1e9)], "/attn")
    scaled = writer.op("Mul", [masked, writer.weight("attn.temperature", 1.7)], "/attn")
    _attend(writer, scaled, values)
    known_good = ("/attn/Where", "/attn/Mul", "/attn/Softmax")
    return ZooModel("mask_where_scaled", writer.model(), _feeds(rng), 0.01, known_good)


def two_masks_added() -> ZooModel:
    """Causal and padding mask, both -1e9: with padding on the left, their sum masks the first rows throughout."""
    rng = np.random.default_rng(14)
    writer = GraphWriter("two_masks_added")
    values, scores = _scores(writer, rng)
    padding = _minus(writer, _mask_input(writer), -1e9, "/mask")
    causal = writer.weight("causal_mask", np.triu(np.full((_TOKENS, _TOKENS), -1e9), 1))
    both = writer.op("Add", [padding, causal], "/mask")
    _attend(writer, writer.op("Add", [scores, both], "/attn"), values)
    known_good = ("/mask/Mul", "/mask/Add", "/attn/Add", "/attn/Softmax")
    return ZooModel("two_masks_added", writer.model(), _feeds(rng), 0.01, known_good)


def _additive_mask(name: str, seed: int, lowest: float) -> ZooModel:
    rng = np.random.default_rng(seed)
    writer = GraphWriter(name)
    values, scores = _scores(writer, rng)
    _attend(writer, writer.op("Add", [scores, _minus(writer, _mask_input(writer), lowest, "/mask")], "/attn"), values)
    known_good = ("/mask/Mul", "/attn/Add", "/attn/Softmax")
    return ZooModel(name, writer.model(), _feeds(rng), 0.01, known_good)


def _scores(writer: GraphWriter, rng: np.random.Generator) -> tuple[str, str]:
    """The values, and scores with a spread of about 15, as peaked heads have them."""
    x = writer.input("x", [_BATCH, _TOKENS, _WIDTH])
    query, key, value = (
        writer.op("MatMul", [x, writer.weight(f"{part}.weight", trained_matrix(rng, _WIDTH, _WIDTH, gain))], f"/{part}")
        for part, gain in (("query", 2.0), ("key", 2.0), ("value", 1.0))
    )
    return value, writer.op("MatMul", [query, writer.op("Transpose", [key], "/attn", perm=[0, 2, 1])], "/attn")


def _mask_input(writer: GraphWriter) -> str:
    return writer.input("mask", [_BATCH, 1, _TOKENS])


def _minus(writer: GraphWriter, mask: str, lowest: float, scope: str) -> str:
    inverted = writer.op("Sub", [writer.weight("mask.one", 1.0), mask], scope)
    return writer.op("Mul", [inverted, writer.weight("mask.lowest", lowest)], scope)


def _attend(writer: GraphWriter, scores: str, values: str) -> None:
    weights = writer.op("Softmax", [scores], "/attn", axis=-1)
    writer.output(writer.op("MatMul", [weights, values], "/attn"), "y", [_BATCH, _TOKENS, _WIDTH])


def _feeds(rng: np.random.Generator) -> list[Feed]:
    """Left-padded items of different length; the last item of each batch is empty."""
    result: list[Feed] = []
    for scale in scales():
        padding = np.array([0, int(rng.integers(2, _TOKENS - 2)), _TOKENS])
        mask: npt.NDArray[np.float32] = (np.arange(_TOKENS) >= padding[:, None]).astype(np.float32)[:, None, :]
        x = scale * rng.standard_normal((_BATCH, _TOKENS, _WIDTH))
        result.append({"x": x.astype(np.float32), "mask": mask})
    return result
