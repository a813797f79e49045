"""One node of each of ONNX Runtime's own operators, in the variants that its attributes and inputs make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper, numpy_helper

DOMAIN = "com.microsoft"
OPSET = 17

Array = NDArray[Any]
B, S, N, H = 2, 5, 4, 8  # batch, sequence, heads, head size
D = N * H


_NO_BIAS = tuple(map(int, onnxruntime.__version__.split(".")[:2])) >= (1, 32)  # earlier ones end the process


@dataclass(frozen=True, eq=False)
class Case:
    """`inputs` by slot, None where one is left out; `weights` are the slots that are initializers."""

    name: str
    op: str
    inputs: tuple[Array | None, ...]
    attributes: dict[str, Any]
    outputs: tuple[str, ...] = ("y",)
    weights: tuple[int, ...] = ()
    domain: str = DOMAIN
    runs: bool = True  # whether the CPU provider has a kernel

    def proto(self, opset: int = OPSET, *, shaped: bool = True) -> onnx.ModelProto:
        names = [f"x{slot}" if array is not None else "" for slot, array in enumerate(self.inputs)]
        given = [
            helper.make_tensor_value_info(
                names[slot],
                helper.np_dtype_to_tensor_dtype(array.dtype),
                array.shape if shaped else [None] * array.ndim,
            )
            for slot, array in enumerate(self.inputs)
            if array is not None and slot not in self.weights
        ]
        kept = [numpy_helper.from_array(self.inputs[slot], names[slot]) for slot in self.weights]
        made = [
            helper.make_tensor_value_info(
                name, onnx.TensorProto.INT32 if name == "mask" else onnx.TensorProto.FLOAT, None
            )
            for name in self.outputs
            if name
        ]
        node = helper.make_node(self.op, names, list(self.outputs), name="node", domain=self.domain, **self.attributes)
        graph = helper.make_graph([node], "case", given, made, kept)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    @property
    def feeds(self) -> dict[str, Array]:
        return {
            f"x{slot}": array
            for slot, array in enumerate(self.inputs)
            if array is not None and slot not in self.weights
        }


def cases() -> list[Case]:
    return [*_norms(), *_activations(), *_products(), *_attention(), *_multi_head(), *_group_query(), *_rotary()]


def _f(*shape: int, scale: float = 1.0) -> Array:
    return (np.random.default_rng([7, *shape]).standard_normal(shape) * scale).astype(np.float32)


def _i(*values: Any) -> Array:
    return np.array(values, dtype=np.int32)


def _norms() -> list[Case]:
    x, skip, g, b = _f(B, S, D), _f(1, B * S, D).reshape(B, S, D), _f(D), _f(D, 1)[:, 0]
    ids = np.arange(B * S, dtype=np.int32).reshape(B, S)
    word, position, segment = _f(20, D), _f(9, D), _f(2, D)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    four = ("y", "", "", "sum")
    return [
        Case("skip-norm", "SkipLayerNormalization", (x, skip, g), {"epsilon": 1e-5}),
        Case("skip-norm all", "SkipLayerNormalization", (x, skip, g, b, _f(1, D)[0]), {"epsilon": 1e-5}, four),
        Case("skip-norm broadcast", "SkipLayerNormalization", (x, skip[:1], g, b), {"epsilon": 1e-3}, four),
        Case("skip-norm plane", "SkipLayerNormalization", (x, skip[0], g, b), {"epsilon": 1e-3}, four),
        Case("skip-rms", "SkipSimplifiedLayerNormalization", (x, skip, g, b), {"epsilon": 1e-5}, four),
        Case("skip-rms plain", "SkipSimplifiedLayerNormalization", (x, skip, g), {"epsilon": 1e-5}),
        Case("rms", "SimplifiedLayerNormalization", (x, g), {"axis": -1, "epsilon": 1e-6}, domain=""),
        Case("rms two axes", "SimplifiedLayerNormalization", (x, _f(S, D)), {"axis": 1, "epsilon": 1e-6}, domain=""),
        Case(
            "embedding",
            "EmbedLayerNormalization",
            (ids % 20, ids % 2, word, position, segment, g, b, mask),
            {"epsilon": 1e-5},
            ("y", "mask", "sum"),
            weights=(2, 3, 4, 5, 6),
        ),
        Case(
            "embedding placed",
            "EmbedLayerNormalization",
            (ids % 20, None, word, position, None, g, b, None, ids[:1] + 2),
            {"epsilon": 1e-5},
            ("y", "mask"),
            weights=(2, 3, 5, 6),
        ),
    ]


def _activations() -> list[Case]:
    x, b = _f(B, S, D, scale=2.0), _f(D)
    image = _f(2, 4, 5, 32)
    return [
        Case("gelu", "Gelu", (x,), {}),
        Case("bias-gelu", "BiasGelu", (x, b), {}),
        Case("fast-gelu", "FastGelu", (x,), {}),
        Case("fast-gelu bias", "FastGelu", (x, b), {}),
        Case("quick-gelu", "QuickGelu", (x,), {}),
        Case("quick-gelu alpha", "QuickGelu", (x,), {"alpha": 1.0}),
        Case("split-gelu", "BiasSplitGelu", (x, b), {}, runs=False),
        Case("bias-add", "BiasAdd", (x, b, _f(S, B, D).reshape(B, S, D)), {}, runs=False),
        Case("bias-softmax", "BiasSoftmax", (x, _f(1, S, D)), {"axis": -1, "is_inner_broadcast": 0}, runs=False),
        Case(
            "group-norm",
            "GroupNorm",
            (image, _f(32), _f(32, 1)[:, 0]),
            {"groups": 4, "activation": 1, "epsilon": 1e-5, "channels_last": 1},
            runs=False,
        ),
        Case(
            "skip-group-norm",
            "SkipGroupNorm",
            (image, _f(32), _f(32, 1)[:, 0], _f(5, 4, 2, 32).reshape(2, 4, 5, 32), _f(1, 32)[0]),
            {"groups": 8, "activation": 0, "epsilon": 1e-5, "channels_last": 1},
            ("y", "sum"),
            runs=False,
        ),
    ]


def _products() -> list[Case]:
    a, b, image, kernel = _f(B, S, D), _f(D, 6), _f(2, 3, 8, 8), _f(4, 3, 3, 3)
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    weight = np.random.default_rng(3).integers(0, 256, (6, 2, 8)).astype(np.uint8)
    points = np.random.default_rng(4).integers(0, 256, (6, 1)).astype(np.uint8)
    bits = {"K": D, "N": 6, "bits": 4, "block_size": 16}
    return [
        Case("product", "FusedMatMul", (a, b), {"alpha": 0.25}),
        Case("product turned", "FusedMatMul", (_f(B, D, S), _f(6, D)), {"transA": 1, "transB": 1, "alpha": 2.0}),
        Case(
            "product batches",
            "FusedMatMul",
            (_f(S, B, D), _f(D, B, 6)),
            {"transBatchA": 1, "transBatchB": 1},
        ),
        Case("gemm relu", "FusedGemm", (_f(S, D), b, _f(6)), {"activation": "Relu", "alpha": 0.5, "beta": 2.0}),
        Case(
            "gemm leaky",
            "FusedGemm",
            (_f(D, S), _f(6, D)),
            {"activation": "LeakyRelu", "activation_alpha": 0.2, "transA": 1, "transB": 1},
        ),
        Case("conv relu", "FusedConv", (image, kernel, _f(4)), {"activation": "Relu", **conv}),
        Case("conv sum", "FusedConv", (image, kernel, _f(4), _f(2, 4, 4, 4)), {"activation": "Relu", **conv}),
        Case("conv plain", "FusedConv", (image, kernel), conv),
        Case(
            "conv clip",
            "FusedConv",
            (image, kernel, _f(4)),
            {"activation": "Clip", "activation_params": [0.0, 1.5], **conv},
        ),
        Case(
            "conv leaky",
            "FusedConv",
            (image, kernel, _f(4)),
            {"activation": "LeakyRelu", "activation_params": [0.3], **conv},
        ),
        Case(
            "conv hard sigmoid",
            "FusedConv",
            (image, kernel, _f(4)),
            {"activation": "HardSigmoid", "activation_params": [0.3, 0.4], **conv},
        ),
        Case("conv channels last", "NhwcConv", (_f(2, 8, 8, 3), _f(4, 3, 3, 3), _f(4)), conv, runs=False),
        Case("packed", "MatMulNBits", (a, weight, np.abs(_f(6, 2))), bits, weights=(1, 2)),
        Case("packed points", "MatMulNBits", (a, weight, np.abs(_f(6, 2)), points), bits, weights=(1, 2, 3)),
        Case(
            "packed bias",
            "MatMulNBits",
            (a, weight, np.abs(_f(6, 2)), None, None, _f(6)),
            bits,
            weights=(1, 2, 5),
        ),
    ]


_KINDS = {
    "ends": _i(3, 5),
    "both": _i(4, 5, 1, 0),
    "raw": np.array([[0, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32),
    "pairs": (np.random.default_rng(5).random((B, S, S)) < 0.8).astype(np.int32),
}


def _attention() -> list[Case]:
    x, w, b = _f(B, S, 24), _f(24, 3 * D, scale=0.3), _f(3 * D)
    past, bias = _f(2, B, N, 3, H), _f(1, N, S, S)
    raw = np.concatenate([np.ones((B, 3), np.int32), _KINDS["raw"]], axis=1)
    found = [Case(f"attention {kind}", "Attention", (x, w, b, mask), {"num_heads": N}) for kind, mask in _KINDS.items()]
    return [
        *found,
        Case("attention", "Attention", (x, w, b), {"num_heads": N, "scale": 0.5}),
        *([Case("attention no bias", "Attention", (x, w), {"num_heads": N})] if _NO_BIAS else []),
        Case("attention causal", "Attention", (x, w, b), {"num_heads": N, "unidirectional": 1}),
        Case(
            "attention causal raw",
            "Attention",
            (x, w, b, _KINDS["raw"]),
            {"num_heads": N, "unidirectional": 1, "mask_filter_value": -5e3},
        ),
        Case("attention bias", "Attention", (x, w, b, None, None, bias), {"num_heads": N}),
        Case(
            "attention past",
            "Attention",
            (x, w, b, raw, past),
            {"num_heads": N, "unidirectional": 1},
            ("y", "present"),
        ),
        Case(
            "attention sizes",
            "Attention",
            (x, _f(24, 2 * D + 2 * N, scale=0.3), _f(2 * D + 2 * N)),
            {"num_heads": N, "qkv_hidden_sizes": [D, D, 2 * N]},
        ),
    ]


def _multi_head() -> list[Case]:
    q, k, v = _f(B, S, D), _f(B, 6, D), _f(B, 6, D + N)[:, :, :D].copy()
    heads = {"num_heads": N}
    past_k, past_v = _f(B, N, 3, H), _f(B, N, 3, H, scale=0.5)
    mask = np.ones((B, 6), np.int32)
    mask[0, 4:] = 0
    three = ("y", "k", "v")
    return [
        Case("multi-head", "MultiHeadAttention", (q, k, v), heads),
        Case("multi-head bias", "MultiHeadAttention", (q, k, v, _f(3 * D), mask), heads),
        Case("multi-head ends", "MultiHeadAttention", (q, k, v, None, _i(3, 6)), {**heads, "scale": 0.3}),
        Case("multi-head added", "MultiHeadAttention", (q, k, v, None, None, _f(B, 1, S, 6)), heads),
        Case("multi-head added wide", "MultiHeadAttention", (q, k, v, None, None, _f(1, N, S, 6)), heads),
        Case("multi-head causal", "MultiHeadAttention", (q, q, q), {**heads, "unidirectional": 1}),
        Case("multi-head kept", "MultiHeadAttention", (q, q, q, _f(3 * D)), heads, three),
        Case(
            "multi-head past",
            "MultiHeadAttention",
            (q, q, q, None, None, None, past_k, past_v),
            {**heads, "unidirectional": 1},
            three,
        ),
        Case(
            "multi-head past masked",
            "MultiHeadAttention",
            (q, q, q, None, np.ones((B, 3 + S), np.int32), None, past_k, past_v),
            heads,
            three,
        ),
        Case("multi-head crossed", "MultiHeadAttention", (q, past_k, past_v), heads),
        Case("multi-head packed", "MultiHeadAttention", (_f(B, S, N, 3, H),), heads, runs=False),
        Case("multi-head packed keys", "MultiHeadAttention", (q, _f(B, 6, N, 2, H)), heads, runs=False),
        Case(
            "multi-head narrow values",
            "MultiHeadAttention",
            (q, k, _f(B, 6, 2 * N)),
            heads,
        ),
    ]


def _group_query() -> list[Case]:
    heads = {"num_heads": N, "kv_num_heads": 2}
    wide, size = 16 * N, 16  # the kernel turns heads of multiples of 16
    q, k, v = _f(B, S, wide), _f(B, S, 2 * size), _f(B, S, 2 * size, scale=0.5)
    past_k, past_v = _f(B, 2, 3, size), _f(B, 2, 3, size, scale=0.5)
    three = ("y", "k", "v")
    prompt = (_i(S - 1, S - 1), np.array(S, np.int32))
    cos, sin = _f(16, size // 2), _f(16, size // 2, scale=0.7)
    one = (_f(B, 1, wide), _f(B, 1, 2 * size), _f(B, 1, 2 * size, scale=0.5))
    step = (_i(3, 3), np.array(4, np.int32))
    ragged = (_i(2, 3), np.array(4, np.int32))
    normed = (q, k, v, None, None, *prompt, cos, sin, *[None] * 5, _f(size), _f(size))
    turned, epsilons = {**heads, "do_rotary": 1}, {"qk_norm_epsilon": 0.1, "k_norm_epsilon": 0.3}
    many = (past_k[:1], past_v[:1], _i(S + 2), np.array(S + 3, np.int32))
    return [
        Case("grouped", "GroupQueryAttention", (q, k, v, None, None, *prompt), heads, three),
        Case("grouped scale", "GroupQueryAttention", (q, k, v, None, None, *prompt), {**heads, "scale": 0.2}, three),
        Case("grouped cap", "GroupQueryAttention", (q, k, v, None, None, *prompt), {**heads, "softcap": 1.5}, three),
        Case(
            "grouped window",
            "GroupQueryAttention",
            (q, k, v, None, None, *prompt),
            {**heads, "local_window_size": 2},
            three,
        ),
        Case(
            "grouped turned",
            "GroupQueryAttention",
            (q, k, v, None, None, *prompt, cos, sin),
            {**heads, "do_rotary": 1},
            three,
        ),
        Case(
            "grouped turned pairs",
            "GroupQueryAttention",
            (q, k, v, None, None, *prompt, cos, sin),
            {**heads, "do_rotary": 1, "rotary_interleaved": 1},
            three,
        ),
        Case("grouped step", "GroupQueryAttention", (*one, past_k, past_v, *step), heads, three),
        Case(
            "grouped step turned",
            "GroupQueryAttention",
            (*one, past_k, past_v, *step, cos, sin),
            {**heads, "do_rotary": 1},
            three,
        ),
        Case(
            "grouped ragged",
            "GroupQueryAttention",
            (*one, past_k, past_v, *ragged, cos, sin),
            {**heads, "do_rotary": 1, "local_window_size": 3},
            three,
        ),
        Case(
            "grouped many",
            "GroupQueryAttention",
            (q[:1], k[:1], v[:1], *many, cos, sin),
            {**heads, "do_rotary": 1},
            three,
        ),
        Case(
            "grouped packed",
            "GroupQueryAttention",
            (_f(B, S, wide + 4 * size), None, None, None, None, *prompt, cos, sin),
            {**heads, "do_rotary": 1},
            three,
        ),
        Case("grouped norms", "GroupQueryAttention", normed, {**turned, **epsilons}, three, runs=False),
        Case(
            "grouped added",
            "GroupQueryAttention",
            (q, k, v, None, None, *prompt, None, None, None, _f(1, N, S, S)),
            heads,
            three,
        ),
        Case(
            "grouped sink",
            "GroupQueryAttention",
            (q, k, v, None, None, *prompt, None, None, None, None, _f(N)),
            heads,
            three,
        ),
        Case(
            "grouped smooth",
            "GroupQueryAttention",
            (q, k, v, *[None] * 2, *prompt),
            {**heads, "smooth_softmax": 1},
            three,
        ),
    ]


def _rotary() -> list[Case]:
    flat, split, cos, sin = _f(B, S, D), _f(B, N, S, H), _f(16, H // 2), _f(16, H // 2, scale=0.7)
    places, start = np.arange(B * S, dtype=np.int64).reshape(B, S), np.array([2], np.int64)
    part = (_f(16, 2), _f(16, 2, scale=0.7))
    return [
        Case("rotary", "RotaryEmbedding", (flat, places, cos, sin), {}),
        Case("rotary start", "RotaryEmbedding", (split, start, cos, sin), {}),
        Case("rotary pairs", "RotaryEmbedding", (split, places, cos, sin), {"interleaved": 1}),
        Case(
            "rotary part",
            "RotaryEmbedding",
            (flat, start, *part),
            {"num_heads": N, "rotary_embedding_dim": 4},
        ),
        Case(
            "rotary part pairs",
            "RotaryEmbedding",
            (split, places, *part),
            {"num_heads": N, "rotary_embedding_dim": 4, "interleaved": 1},
        ),
    ]
