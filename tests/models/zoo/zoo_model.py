"""What every builder of the zoo returns: a model, inputs that show its failure, and the tolerance it misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx

Feed = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ZooModel:
    """A model of known behaviour in FP16.

    `tolerance` is the largest rel_l2 error allowed on any float output; `fails` says that rounding every float
    tensor to FP16 breaks it on every one of `inputs`; keeping the nodes in `known_good` in FP32 repairs it.
    """

    name: str
    model: onnx.ModelProto
    inputs: list[Feed]
    tolerance: float
    known_good: tuple[str, ...] = ()
    fails: bool = True
