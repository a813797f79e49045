"""Reductions, poolings and resizing."""

from __future__ import annotations

from typing import Any

from halfwise.emulation.probes.form import Draw, Form, integers, normal, uniform

__all__ = ["poolings", "reductions", "resizes"]


def reductions() -> list[Form]:
    axis = integers(-1)
    forms = []
    for n in (16, 256, 1024, 4096, 16384, 65536):
        rows = max(2, min(64, (1 << 18) // n))
        forms.append(Form(f"mean of {n} positive values", "ReduceMean", (uniform(rows, n), axis), {}, n))
    for n in (256, 4096, 16384):
        rows = max(2, min(64, (1 << 18) // n))
        forms += [
            Form(f"sum of {n} positive values", "ReduceSum", (uniform(rows, n), axis), {}, n),
            Form(f"sum of {n} values", "ReduceSum", (normal(rows, n), axis), {}, n),
            Form(f"L2 norm of {n} values", "ReduceL2", (normal(rows, n), axis), {}, n),
            Form(f"sum of squares of {n} values", "ReduceSumSquare", (normal(rows, n), axis), {}, n),
        ]
    forms += [
        Form("mean over rows of a plane", "ReduceMean", (uniform(4, 16, 28, 28), integers(2, 3)), {}, 784),
        Form("mean over the first axis", "ReduceMean", (uniform(1000, 64), integers(0)), {}, 1000),
        Form("mean over the first of few rows", "ReduceMean", (uniform(100, 35), integers(0)), {}, 100),
        Form("mean over the first axis, two blocks", "ReduceMean", (uniform(150, 64), integers(0)), {}, 150),
        Form("sum over the first axis, two blocks", "ReduceSum", (uniform(150, 64), integers(0)), {}, 150),
        Form("sum over the first axis", "ReduceSum", (uniform(1000, 64), integers(0)), {}, 1000),
        Form(
            "sum of squares over the first axis, two blocks", "ReduceSumSquare", (normal(150, 64), integers(0)), {}, 150
        ),
        Form("log of a sum over the first axis, two blocks", "ReduceLogSum", (uniform(150, 64), integers(0)), {}, 150),
        Form("log-sum-exp over the first axis", "ReduceLogSumExp", (normal(150, 64), integers(0)), {}, 150),
        Form("mean over a middle axis", "ReduceMean", (uniform(4, 1000, 64), integers(1)), {}, 1000),
        Form("mean of large values", "ReduceMean", (uniform(64, 4096, low=20000.0, high=60000.0), axis), {}, 4096),
        Form("mean over two separate axes", "ReduceMean", (uniform(30, 8, 30, 8), integers(0, 2)), {}, 900),
        Form("sum over a middle axis", "ReduceSum", (uniform(4, 1000, 64), integers(1)), {}, 1000),
        Form("L1 norm of 1024 values", "ReduceL1", (normal(64, 1024), axis), {}, 1024),
        Form("L2 norm over a middle axis", "ReduceL2", (normal(4, 1000, 64), integers(1)), {}, 1000),
        Form("L2 norm of large values", "ReduceL2", (normal(64, 256, scale=900.0), axis), {}, 256),
        Form("maximum of 1024 values", "ReduceMax", (normal(64, 1024), axis)),
        Form("minimum of 1024 values", "ReduceMin", (normal(64, 1024), axis)),
        Form("product of 16 values", "ReduceProd", (uniform(256, 16, low=0.5, high=1.6), axis), {}, 16),
        Form("log of a sum of 256 values", "ReduceLogSum", (uniform(64, 256), axis), {}, 256),
        Form("log-sum-exp of 256 values", "ReduceLogSumExp", (normal(64, 256), axis), {}, 256),
        Form("log-sum-exp of 4096 values", "ReduceLogSumExp", (normal(64, 4096), axis), {}, 4096),
        Form("running sum over 16", "CumSum", (uniform(64, 16), integers(1, shape=(1,))), {}, 16),
        Form("running sum over 256", "CumSum", (uniform(64, 256), integers(1, shape=(1,))), {}, 256),
        Form("running sum over 2048", "CumSum", (uniform(16, 2048), integers(1, shape=(1,))), {}, 2048),
        Form("running sum of signed values", "CumSum", (normal(16, 2048), integers(1, shape=(1,))), {}, 2048),
        Form("argmax of 1000 values", "ArgMax", (normal(64, 1000),), {"axis": -1}),
    ]
    return forms


def poolings() -> list[Form]:
    forms = [
        Form(f"average pooling {k}x{k} of {k + side}x{k + side}", "AveragePool", (uniform(1, 64, k + side, k + side),),
             {"kernel_shape": [k, k]}, k * k)
        for k, side in ((2, 13), (3, 13), (7, 6), (13, 3), (17, 3), (33, 0), (33, 4), (65, 0))
    ]  # fmt: skip
    forms += [
        Form("average pooling 33x33 of signed values", "AveragePool", (normal(1, 64, 33, 33),),
             {"kernel_shape": [33, 33]}, 1089),
        Form("average pooling 3x3, stride 2, padded", "AveragePool", (uniform(1, 32, 28, 28),),
             {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}, 9),
        Form("average pooling 3x3, padding counted", "AveragePool", (uniform(1, 32, 28, 28),),
             {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}, 9),
        Form("average pooling, one dimension", "AveragePool", (uniform(1, 32, 400),), {"kernel_shape": [9]}, 9),
        *(Form(f"global average pooling {k}x{k}", "GlobalAveragePool", (uniform(1, 128, k, k),), {}, k * k)
          for k in (7, 14, 33, 65, 112)),
        Form("global average pooling of signed values", "GlobalAveragePool", (normal(1, 128, 33, 33),), {}, 1089),
        Form("global average pooling of 6.0", "GlobalAveragePool", (uniform(1, 128, 33, 33, low=0, high=6.0),), {},
             1089),
        Form("max pooling 3x3", "MaxPool", (normal(1, 32, 28, 28),), {"kernel_shape": [3, 3], "strides": [2, 2]}),
        Form("global max pooling", "GlobalMaxPool", (normal(1, 64, 28, 28),)),
        Form("L2 pooling 3x3", "LpPool", (normal(1, 16, 28, 28),), {"kernel_shape": [3, 3], "p": 2}, 9),
    ]  # fmt: skip
    return forms


def resizes() -> list[Form]:
    def resize(name: str, size: tuple[int, int], out: tuple[int, int], mode: str, ctm: str, draw: Draw | None = None,
               **more: Any) -> Form:  # fmt: skip
        x = draw or normal(1, 16, *size)
        sizes = integers(1, 16, *out)
        return Form(name, "Resize", (x, None, None, sizes),
                    {"mode": mode, "coordinate_transformation_mode": ctm, **more}, 0, 1, 19)  # fmt: skip

    return [
        resize("resize, nearest, 2x", (28, 28), (56, 56), "nearest", "asymmetric", nearest_mode="floor"),
        resize("resize, linear, 2x", (28, 28), (56, 56), "linear", "half_pixel"),
        resize("resize, linear, aligned corners", (33, 33), (65, 65), "linear", "align_corners"),
        resize("resize, linear, 33 to 260", (33, 33), (260, 260), "linear", "half_pixel"),
        resize("resize, linear, pytorch", (17, 17), (65, 65), "linear", "pytorch_half_pixel"),
        resize("resize, linear, down", (65, 65), (33, 33), "linear", "half_pixel"),
        resize("resize, linear, of one pixel", (1, 1), (33, 33), "linear", "half_pixel"),
        resize("resize, linear, of offset values", (28, 28), (56, 56), "linear", "half_pixel",
               normal(1, 16, 28, 28, mean=8.0)),
        resize("resize, cubic, 2x", (28, 28), (56, 56), "cubic", "half_pixel"),
        Form("grid sample, linear", "GridSample", (normal(1, 16, 28, 28), uniform(1, 20, 20, 2, low=-1.0)),
             {"mode": "linear"}),
        Form("depth to space", "DepthToSpace", (normal(1, 32, 14, 14),), {"blocksize": 2}),
        Form("upsample", "Upsample", (normal(1, 16, 14, 14), Draw("uniform", (4,), 2.0, 2.0, constant=True)),
             {"mode": "nearest"}, 0, 1, 9),
    ]  # fmt: skip
