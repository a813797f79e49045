"""The models of the fidelity suite with eight inputs each: built ones, and real trained ones where they are at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.cases import models_folder
from benchmarks.gpu.held_out import HELD_OUT
from benchmarks.gpu.networks import NETWORKS
from benchmarks.gpu.segmenters import SEGMENTERS
from tests.models.zoo import SHAPES, ZooModel, cnn_tiny_weights, detr_head, encoder, norm_log_head, transformer
from tests.models.zoo.zoo_model import Feed

__all__ = ["SUITE", "Subject", "subject"]

Array = NDArray[Any]
INPUTS = 8

_ZOO: dict[str, Callable[[], ZooModel]] = {
    "encoder": encoder,
    "encoder_healthy": lambda: encoder(overflow=False),
    "detr_head": detr_head,
    "cnn_tiny_tensors": lambda: cnn_tiny_weights("tensors"),
    "cnn_tiny_channels": lambda: cnn_tiny_weights("channels"),
    "norm_log_head": norm_log_head,
    "transformer_6": lambda: transformer(6),
    **{name: SHAPES[name] for name in ("gram_matrix", "log_sum_exp_by_hand", "cumulative_sum", "inverse_sigmoid",
                                       "global_average_pool_large", "group_norm_overflow", "l2_norm_of_padding")},
    **NETWORKS,
    **HELD_OUT,
}  # fmt: skip
_REAL = ("gtcrn_stream", "lighterglue_L3", "magika_v1", "nanotrack_v3_head", "silero_vad_16k", "ultraface_rfb320",
         "yolox_nano")  # fmt: skip
SUITE = (*_ZOO, *_REAL)


@dataclass(frozen=True)
class Subject:
    """A model, its inputs, and the error that is allowed."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Feed, ...]
    tolerance: float
    held_out: bool = False  # no rule of a profile was fitted to it


def subject(name: str, folder: Path | None = None) -> Subject | None:
    """A model of the suite by name; None for a real one that is not there."""
    if name in _ZOO:
        built = _ZOO[name]()
        return Subject(name, built.model, tuple(built.inputs[:INPUTS]), built.tolerance, name in HELD_OUT)
    if name in SEGMENTERS:
        built = SEGMENTERS[name]()
        return Subject(name, built.model, tuple(built.inputs[:INPUTS]), built.tolerance, held_out=True)
    path = (folder or models_folder()) / name / "model.onnx"
    if not path.exists():
        return None
    given = []
    for file in sorted(path.parent.glob("inputs_*.npz")):
        with np.load(file) as saved:
            given.append({key: saved[key] for key in saved.files})
    feeds = given + [_varied(feed) for feed in given]
    while len(feeds) < INPUTS:
        feeds += [_varied(feed) for feed in feeds]
    return Subject(name, onnx.load(path), tuple(feeds[:INPUTS]), 0.01)


def _varied(feed: Feed) -> Feed:
    """Another input of the same kind: rolled along its last axis, real numbers a little weaker."""
    varied = {}
    for name, array in feed.items():
        rolled = np.roll(array, max(1, array.shape[-1] // 3), axis=-1) if array.ndim else array
        varied[name] = (rolled * np.float32(0.9)).astype(array.dtype) if array.dtype.kind == "f" else rolled
    return varied
