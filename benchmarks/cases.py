"""The models of the main benchmark: built ones with known failures, and real trained ones where they are at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from tests.models.zoo import ZooModel, chain, detr_head, encoder, transformer
from tests.models.zoo.zoo_model import Feed

__all__ = ["BUILT", "FOLDS", "REAL", "Case", "load_case", "models_folder"]

REAL = ("magika_v1", "gtcrn_stream", "yolox_nano", "silero_vad_16k", "ultraface_rfb320", "nanotrack_v3_head")
FOLDS = 4  # ways to hold out a part of the inputs
BUILT: dict[str, Callable[[], ZooModel]] = {"encoder": encoder, "detr_head": detr_head}
GROWING: dict[str, Callable[[int], ZooModel]] = {  # of any depth
    "transformer_": transformer,
    "chain_": chain,
    "encoder_": encoder,
}


@dataclass(frozen=True)
class Case:
    """A model, the inputs that a tool is given, and those that the benchmark keeps to judge its answer."""

    name: str
    model: onnx.ModelProto
    given: tuple[Feed, ...]
    held_out: tuple[Feed, ...]
    tolerance: float


def models_folder() -> Path:
    """Where real models lie, beside the project."""
    return Path(__file__).resolve().parents[1].parent / "shared" / "models"


def load_case(name: str, folder: Path, fold: int = FOLDS - 1) -> Case | None:
    """A case by name; None for a real model that is not there. Every fourth input is held out, from the `fold`th on."""
    if name in BUILT:
        return _of_zoo(BUILT[name](), fold)
    for prefix, build in GROWING.items():
        if name.startswith(prefix):
            return _of_zoo(build(int(name.removeprefix(prefix))), fold)
    path = folder / name / "model.onnx"
    if not path.exists():
        return None
    feeds = [_read(file) for file in sorted(path.parent.glob("inputs_*.npz"))]
    given, held_out = _split(feeds, fold)
    return Case(name, onnx.load(path), given, held_out, 0.01)


def _of_zoo(built: ZooModel, fold: int) -> Case:
    given, held_out = _split(built.inputs, fold)
    return Case(built.name, built.model, given, held_out, built.tolerance)


def _split(feeds: Sequence[Feed], fold: int) -> tuple[tuple[Feed, ...], tuple[Feed, ...]]:
    given = tuple(feed for index, feed in enumerate(feeds) if index % FOLDS != fold)
    return given, tuple(feeds[fold::FOLDS])


def _read(path: Path) -> Feed:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}
