"""Convolutions and products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halfwise.emulation.probes.form import Draw, Form, normal, uniform

__all__ = ["convolutions", "products"]


def _conv(name: str, channels: int, outs: int, kernel: Sequence[int], size: Sequence[int], *, bias: bool,
          group: int = 1, op: str = "Conv", **attributes: Any) -> Form:  # fmt: skip
    length = channels // group * int(np.prod(kernel))
    scale = 1.0 / np.sqrt(length)
    rows = (outs, channels // group) if op == "Conv" else (channels, outs // group)
    weights = normal(*rows, *kernel, scale=float(scale), constant=True)
    inputs: tuple[Draw | None, ...] = (normal(1, channels, *size), weights)
    if bias:
        inputs += (normal(outs, constant=True),)
    attributes = {"kernel_shape": list(kernel), "group": group, **attributes}
    return Form(name, op, inputs, attributes, length)


def convolutions() -> list[Form]:
    p1: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    return [
        _conv("conv 1x1, 16 channels", 16, 32, (1, 1), (16, 16), bias=False),
        _conv("conv 1x1, 16 channels, bias", 16, 32, (1, 1), (16, 16), bias=True),
        _conv("conv 1x1, 256 channels, bias", 256, 64, (1, 1), (14, 14), bias=True),
        _conv("conv 1x1, 2048 channels", 2048, 32, (1, 1), (14, 14), bias=False),
        _conv("conv 1x1, 2048 channels, bias", 2048, 32, (1, 1), (14, 14), bias=True),
        _conv("conv 1x1 of one position, bias", 256, 256, (1, 1), (1, 1), bias=True),
        _conv("conv 3x3, 3 channels, stride 2, bias", 3, 32, (3, 3), (64, 64), bias=True, strides=[2, 2], **p1),
        _conv("conv 3x3, 64 channels", 64, 64, (3, 3), (28, 28), bias=False, **p1),
        _conv("conv 3x3, 64 channels, bias", 64, 64, (3, 3), (28, 28), bias=True, **p1),
        _conv("conv 3x3, 512 channels, bias", 512, 64, (3, 3), (14, 14), bias=True, **p1),
        _conv("conv 7x7, 3 channels, stride 2, bias", 3, 64, (7, 7), (64, 64), bias=True, strides=[2, 2],
              pads=[3, 3, 3, 3]),
        _conv("conv 3x3, dilation 6, bias", 64, 64, (3, 3), (28, 28), bias=True, dilations=[6, 6], pads=[6] * 4),
        _conv("conv 3x3, depthwise", 64, 64, (3, 3), (28, 28), bias=False, group=64, **p1),
        _conv("conv 3x3, depthwise, bias", 64, 64, (3, 3), (28, 28), bias=True, group=64, **p1),
        _conv("conv 3x3, depthwise, stride 2, bias", 96, 96, (3, 3), (56, 56), bias=True, group=96, strides=[2, 2],
              **p1),
        _conv("conv 5x5, depthwise, bias", 64, 64, (5, 5), (28, 28), bias=True, group=64, pads=[2] * 4),
        _conv("conv 7x7, depthwise, bias", 96, 96, (7, 7), (28, 28), bias=True, group=96, pads=[3] * 4),
        _conv("conv 3x3, depthwise, dilation 2, bias", 64, 64, (3, 3), (28, 28), bias=True, group=64,
              dilations=[2, 2], pads=[2] * 4),
        _conv("conv 3x3, 4 groups, bias", 64, 64, (3, 3), (28, 28), bias=True, group=4, **p1),
        _conv("conv 16x16 patches, bias", 3, 256, (16, 16), (112, 112), bias=True, strides=[16, 16]),
        _conv("conv of one dimension, bias", 64, 64, (5,), (400,), bias=True, pads=[2, 2]),
        _conv("conv of three dimensions, bias", 16, 32, (3, 3, 3), (8, 12, 12), bias=True, pads=[1] * 6),
        _conv("transposed conv 2x2, stride 2", 32, 32, (2, 2), (28, 28), bias=False, op="ConvTranspose",
              strides=[2, 2]),
        _conv("transposed conv 2x2, stride 2, bias", 32, 32, (2, 2), (28, 28), bias=True, op="ConvTranspose",
              strides=[2, 2]),
        _conv("transposed conv 3x3, stride 2, bias", 64, 32, (3, 3), (20, 20), bias=True, op="ConvTranspose",
              strides=[2, 2], pads=[1, 1, 1, 1]),
        _conv("transposed conv, depthwise, bias", 16, 16, (3, 3), (20, 20), bias=True, op="ConvTranspose", group=16,
              strides=[2, 2], pads=[1, 1, 1, 1]),
    ]  # fmt: skip


def products() -> list[Form]:
    forms = [
        Form(f"matmul over {k}", "MatMul",
             (normal(64, k), normal(k, 256, scale=float(1 / np.sqrt(k)), constant=True)), length=k)
        for k in (8, 64, 256, 1024, 4096, 16384)
    ]  # fmt: skip
    forms += [
        Form("matmul of positive values over 4096", "MatMul",
             (uniform(64, 4096), uniform(4096, 256, constant=True)), length=4096),
        Form("matmul, batched, over 64", "MatMul", (normal(8, 96, 64), normal(8, 64, 96, scale=0.125)), length=64),
        Form("matmul, batched, over 1024", "MatMul", (normal(4, 64, 1024), normal(4, 1024, 64, scale=0.03)),
             length=1024),
        Form("matmul of three axes by a weight", "MatMul",
             (normal(2, 49, 384), normal(384, 384, scale=0.05, constant=True)), length=384),
        Form("matmul of a vector", "MatMul", (normal(1, 768), normal(768, 768, scale=0.036, constant=True)),
             length=768),
        Form("matmul of odd sizes", "MatMul", (normal(3, 37), normal(37, 11, scale=0.16, constant=True)), length=37),
        Form("gemm", "Gemm", (normal(32, 512), normal(512, 128, scale=0.044, constant=True)), length=512),
        Form("gemm, bias", "Gemm",
             (normal(32, 512), normal(512, 128, scale=0.044, constant=True), normal(128, constant=True)), length=512),
        Form("gemm, transposed, bias", "Gemm",
             (normal(32, 512), normal(128, 512, scale=0.044, constant=True), normal(128, constant=True)),
             {"transB": 1}, 512),
        Form("gemm, alpha and beta", "Gemm",
             (normal(32, 512), normal(512, 128, scale=0.044, constant=True), normal(128, constant=True)),
             {"alpha": 0.3, "beta": 0.7}, 512),
        Form("einsum bij,bjk", "Einsum", (normal(4, 48, 64), normal(4, 64, 48, scale=0.125)),
             {"equation": "bij,bjk->bik"}, 64),
        Form("einsum bhid,bhjd", "Einsum", (normal(2, 4, 48, 32), normal(2, 4, 48, 32, scale=0.17)),
             {"equation": "bhid,bhjd->bhij"}, 32),
    ]  # fmt: skip
    return forms
