"""Probes whose sums FP32 adds without rounding, in any order: what differs was rounded to FP16 on the way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from halfwise.core.formats import Format
from halfwise.emulation.probes.form import Draw, Form, exact, floats, integers, normal, uniform

__all__ = ["exact_forms"]


def exact_forms() -> list[Form]:
    return [*_products(), *_convolutions(), *_sums(), *_beyond(), *_steps(), *_conversions(), *_chains(), *_biased()]


def _products() -> list[Form]:
    forms = []
    for rows, length, columns in (
        (64, 16, 64),
        (64, 64, 64),
        (1, 256, 256),
        (64, 256, 64),
        (64, 1024, 64),
        (16, 4096, 64),
        (24, 45, 11),
    ):
        name = f"{rows}x{length}x{columns}"
        x, w = exact(rows, length, terms=length), exact(length, columns, terms=length, constant=True)
        bias = exact(columns, terms=length, constant=True)
        forms.append(Form(f"exact matmul {name}", "MatMul", (x, w), {}, length))
        forms.append(Form(f"exact gemm {name}, bias", "Gemm", (x, w, bias), {}, length))
    batch = (exact(4, 48, 64, terms=64), exact(4, 64, 48, terms=64))
    forms.append(Form("exact matmul, batched, over 64", "MatMul", batch, {}, 64))
    turned = (exact(32, 512, terms=512), exact(64, 512, terms=512, constant=True), exact(64, terms=512, constant=True))
    forms.append(Form("exact gemm, transposed, bias", "Gemm", turned, {"transB": 1}, 512))
    return forms


def _conv(
    name: str,
    ins: int,
    outs: int,
    kernel: Sequence[int],
    size: Sequence[int],
    *,
    group: int = 1,
    op: str = "Conv",
    **attributes: Any,
) -> Form:
    terms = ins // group * int(np.prod(kernel))
    rows = (outs, ins // group) if op == "Conv" else (ins, outs // group)
    inputs: tuple[Draw | None, ...] = (
        exact(1, ins, *size, terms=terms),
        exact(*rows, *kernel, terms=terms, constant=True),
        exact(outs, terms=terms, constant=True),
    )
    return Form(f"exact {name}, bias", op, inputs, {"kernel_shape": list(kernel), "group": group, **attributes}, terms)


def _convolutions() -> list[Form]:
    p1: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    return [
        _conv("conv 1x1, 64 channels", 64, 32, (1, 1), (14, 14)),
        _conv("conv 1x1, 512 channels", 512, 32, (1, 1), (7, 7)),
        _conv("conv 3x3, 3 channels, stride 2", 3, 32, (3, 3), (32, 32), strides=[2, 2], **p1),
        _conv("conv 3x3, 64 channels", 64, 32, (3, 3), (14, 14), **p1),
        _conv("conv 3x3, 256 channels", 256, 32, (3, 3), (7, 7), **p1),
        _conv("conv 3x3, depthwise", 64, 64, (3, 3), (14, 14), group=64, **p1),
        _conv("conv 3x3, 4 groups", 64, 64, (3, 3), (14, 14), group=4, **p1),
        _conv("conv of one dimension", 64, 32, (5,), (100,), pads=[2, 2]),
        _conv("transposed conv 2x2, stride 2", 32, 32, (2, 2), (14, 14), op="ConvTranspose", strides=[2, 2]),
    ]


def _sums() -> list[Form]:
    forms, last = [], integers(-1)
    for n in (48, 768, 1024, 6000):
        x = exact(256 if n < 2000 else 64, n, terms=n)
        forms += [
            Form(f"exact mean of {n}", "ReduceMean", (x, last), {}, n),
            Form(f"exact sum of {n}", "ReduceSum", (x, last), {}, n),
            Form(f"exact sum of squares of {n}", "ReduceSumSquare", (x, last), {}, n),
            Form(f"exact L2 norm of {n}", "ReduceL2", (x, last), {}, n),
        ]
    forms += [
        Form(
            f"exact global average pooling {k}x{k}", "GlobalAveragePool", (exact(1, 32, k, k, terms=k * k),), {}, k * k
        )
        for k in (7, 28)
    ]
    return forms


def _beyond() -> list[Form]:
    """Sums beyond the range of FP16 whose mean or log is within it, and sums of many rows."""
    large = partial(uniform, low=20000.0, high=60000.0)
    return [
        Form("log of a sum of large values", "ReduceLogSum", (large(64, 256), integers(-1)), {}, 256),
        Form("global average pooling of large values", "GlobalAveragePool", (large(1, 64, 14, 14),), {},
             196),
        Form("average pooling of large values", "AveragePool", (large(1, 64, 20, 20),),
             {"kernel_shape": [7, 7]}, 49),
        *(Form(f"{what} over the first axis", op, (uniform(1000, 64), integers(0)), {}, 1000)
          for what, op in (("sum of squares", "ReduceSumSquare"), ("log of a sum", "ReduceLogSum"))),
    ]  # fmt: skip


def _steps() -> list[Form]:
    """Norms and softmax at sizes where a narrow statistic shows: values far from 0, and squares beyond FP16."""
    wide = 512
    scale, bias = normal(wide, mean=1.0, scale=0.3, constant=True), normal(wide, scale=0.3, constant=True)
    return [
        Form(
            "layer norm of offset values",
            "LayerNormalization",
            (normal(32, wide, mean=40.0), scale, bias),
            {"axis": -1},
            wide,
        ),
        Form(
            "RMS norm of offset values",
            "RMSNormalization",
            (normal(32, wide, mean=40.0), scale),
            {"axis": -1},
            wide,
            1,
            23,
        ),
        Form(
            "quotient of positive values", "Div", (uniform(4096, low=0.5, high=60.0), uniform(4096, low=0.01, high=9))
        ),
    ]


def _conversions() -> list[Form]:
    return [Form("conversion of FP32 to FP16", "Neg", (floats(),), io=Format.FP32)]


def _chains() -> list[Form]:
    """Attention and residual sums, whose scores or sums may stay in FP32 between two nodes."""
    attention = (
        ("MatMul", "x0 x1", "p"),
        ("Mul", "p x3", "s"),
        ("Softmax", "s", "w"),
        ("MatMul", "w x2", "y0"),
    )
    masked = (
        ("MatMul", "x0 x1", "p"),
        ("Mul", "p x3", "s"),
        ("Add", "s x4", "m"),
        ("Softmax", "m", "w"),
        ("MatMul", "w x2", "y0"),
    )
    share = Draw("uniform", (), 0.125, 0.125, constant=True)
    forms: list[Form] = []
    given: tuple[Draw, ...]
    for tokens in (16, 64, 197):
        given = (normal(1, 4, tokens, 64), normal(1, 4, 64, tokens, scale=3.0), normal(1, 4, tokens, 64), share)
        last = {"Softmax": {"axis": -1}}
        forms.append(Form(f"attention over {tokens}", "Softmax", given, last, tokens, 1, 17, attention, "attention"))
        forms.append(
            Form(
                f"masked attention over {tokens}",
                "Softmax",
                (*given, normal(1, 1, tokens, tokens, scale=4.0)),
                last,
                tokens,
                1,
                17,
                masked,
                "attention",
            )
        )
    for rows, length, columns in ((64, 64, 64), (64, 1024, 64)):
        given = (
            exact(rows, length, terms=length),
            exact(length, columns, terms=length, constant=True),
            exact(rows, columns, terms=length),
        )
        forms.append(
            Form(
                f"product and residual over {length}",
                "MatMul",
                given,
                {},
                length,
                1,
                17,
                (("MatMul", "x0 x1", "p"), ("Add", "p x2", "y0")),
                "residual",
            )
        )
    given = (
        exact(1, 32, 14, 14, terms=288),
        exact(32, 32, 3, 3, terms=288, constant=True),
        exact(1, 32, 14, 14, terms=288),
    )
    forms.append(
        Form(
            "convolution and residual",
            "Conv",
            given,
            {"Conv": {"pads": [1, 1, 1, 1]}},
            288,
            1,
            17,
            (("Conv", "x0 x1", "c"), ("Add", "c x2", "y0")),
            "residual",
        )
    )
    return forms


def _biased() -> list[Form]:
    """Products and the vectors behind them: sizes at which some runtimes add it before they store the product."""
    forms = []
    for rows, length, columns in ((64, 256, 64), (16, 4096, 64), (24, 45, 11)):
        given = (
            exact(rows, length, terms=length),
            exact(length, columns, terms=length, constant=True),
            exact(columns, terms=length, constant=True),
        )
        name, nodes = f"product and bias {rows}x{length}x{columns}", (("MatMul", "x0 x1", "p"), ("Add", "p x2", "y0"))
        forms.append(Form(name, "MatMul", given, {}, length, 1, 17, nodes, "biased-product"))
    one = Draw("uniform", (), 1.0, 1.0, constant=True)
    given = (uniform(4096, low=0.3, high=9.0), uniform(4096, low=0.3, high=9.0), one)
    nodes = (("Div", "x2 x0", "i"), ("Mul", "i x1", "y0"))
    return [*forms, Form("product with 1/x", "Div", given, {}, 0, 1, 17, nodes, "quotient")]
