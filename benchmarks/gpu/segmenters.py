"""Segmenters whose convolutions are large and dilated: cuDNN chooses their kernels by size, machine and moment.

python -m benchmarks.gpu.segmenters FOLDER      writes them as models, for `prove --model`
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from benchmarks.gpu.held_out import segmenter_257
from benchmarks.gpu.networks import Weights, pictures
from tests.models.zoo.graph_writer import GraphWriter
from tests.models.zoo.zoo_model import ZooModel

__all__ = ["SEGMENTERS", "atrous_257"]

_SIDE, _WIDE = 33, 512


def atrous_257() -> ZooModel:
    """Plain convolutions of 3x3 over 512 channels at 33x33, dilated by 2, 6, 12 and 18, and a mean of 33x33."""
    writer = GraphWriter("atrous_257")
    w, x, ins = Weights(writer, 33), writer.input("image", [1, 3, 257, 257]), 3

    def conv(x: str, name: str, ins: int, outs: int, kernel: int, step: int = 1, dilation: int = 1) -> str:
        made = w.conv(x, f"/{name}", ins, outs, kernel, stride=step, dilation=dilation, gain=1.5, bias=0.3)
        return writer.op("Relu", [made], f"/{name}")

    for place, (outs, step) in enumerate(((64, 2), (128, 2), (256, 2), (_WIDE, 1))):
        x, ins = conv(x, f"stem.{place}", ins, outs, 3, step), outs
    for place in range(2):
        x = writer.op("Add", [x, conv(x, f"body.{place}", _WIDE, _WIDE, 3, dilation=2)], f"/body.{place}")
    branches = [conv(x, f"aspp.{rate}", _WIDE, 256, 3, dilation=rate) for rate in (6, 12, 18)]
    pooled = writer.op("AveragePool", [x], "/pool", kernel_shape=[_SIDE, _SIDE])
    pooled = conv(pooled, "pool", _WIDE, 256, 1)
    size = writer.weight("pool.size", [1, 256, _SIDE, _SIDE], np.int64)
    branches.append(writer.op("Resize", [pooled, "", "", size], "/pool", mode="linear"))
    x = conv(writer.op("Concat", branches, "/aspp", axis=1), "project", 4 * 256, 256, 1)
    writer.output(w.conv(x, "/classifier", 256, 21, 1, gain=3.0), "logits", [1, 21, _SIDE, _SIDE])
    return ZooModel("atrous_257", writer.model(), pictures(3330, 257), 0.01, fails=False)


SEGMENTERS: dict[str, Callable[[], ZooModel]] = {"atrous_257": atrous_257, "segmenter_257": segmenter_257}


if __name__ == "__main__":
    for name, build in SEGMENTERS.items():
        Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
        onnx.save(build().model, Path(sys.argv[1], f"{name}.onnx"))
