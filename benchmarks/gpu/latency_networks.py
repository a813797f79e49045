"""Networks whose latency is predicted and measured: real architectures with random weights, at real sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx

from benchmarks.gpu.held_out import HELD_OUT
from benchmarks.gpu.networks import NETWORKS
from benchmarks.thousand.export import export

__all__ = ["BATCHED", "NAMES", "network"]

Built = tuple[onnx.ModelProto, list[Any]]
_SCRIPT17 = 1  # of the exporters
_NOTHING_PLANTED = 6  # the seed
_INPUTS = 2

# Architecture of timm, and side of the picture. The second half was added after the way to predict was settled.
_PICTURES = {
    "resnet18": 224, "deit_tiny_patch16_224": 224, "convnext_atto": 224, "mobilenetv3_small_100": 224,
    "regnety_002": 224, "resnet34": 224, "repvgg_a0": 224, "mixer_s32_224": 224, "resmlp_12_224": 224,
    "poolformer_s12": 224, "vit_small_patch32_224": 224, "deit_small_patch16_224": 224, "gmixer_12_224": 224,
    "efficientnet_b0": 224, "mobilevit_xxs": 256,
    "fasternet_t0": 224,
}  # fmt: skip
_WRITTEN = ("convnext_like", "unet_like", "speech_encoder", "segmenter_257", "tagger_lstm")
BATCHED = (
    "bert_4", "mixer_s32_224", "resnet18", "vit_small_patch32_224", "deit_tiny_patch16_224", "resmlp_12_224",
    "resnet34", "repvgg_a0", "poolformer_s12", "deit_small_patch16_224", "gmixer_12_224", "convnext_atto",
    "mobilenetv3_small_100", "regnety_002", "deeplab_like",
)  # fmt: skip
NAMES = (*BATCHED, *(name for name in _PICTURES if name not in BATCHED), *_WRITTEN)


def network(name: str, batch: int = 1) -> Built:
    if name in _PICTURES:
        return _exported(partial(_picture_model, name), partial(_picture, _PICTURES[name], batch))
    if name == "bert_4":
        return _exported(_bert, partial(_words, batch))
    builders: dict[str, Callable[..., Any]] = {**NETWORKS, **HELD_OUT}
    built = builders[name](batch) if name in NETWORKS else builders[name]()
    feeds = [{key: np.concatenate([each[key]] * batch) for key in each} for each in built.inputs[:_INPUTS]]
    return built.model, feeds if name in NETWORKS else built.inputs[:_INPUTS]


def _exported(build: Callable[[], Any], sample: Callable[[], list[tuple[str, Any]]]) -> Built:
    made = export(build, sample, _SCRIPT17, _NOTHING_PLANTED)
    assert made.model is not None
    return made.model, list(made.feeds)[:_INPUTS]


def _picture_model(name: str) -> Any:
    import timm

    return timm.create_model(name, num_classes=1000)


def _picture(side: int, batch: int) -> list[tuple[str, Any]]:
    import torch

    return [("x", torch.randn(batch, 3, side, side))]


def _bert() -> Any:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=4000, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048
    )
    return BertModel._from_config(config, attn_implementation="eager").float()


def _words(batch: int) -> list[tuple[str, Any]]:
    import torch

    ids = torch.randint(3, 4000, (batch, 128))
    return [("input_ids", ids), ("attention_mask", torch.ones(batch, 128, dtype=torch.int64))]
