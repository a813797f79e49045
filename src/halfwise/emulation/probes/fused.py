"""Small graphs that become one kernel when fusions are on."""

from __future__ import annotations

from halfwise.emulation.probes.form import Draw, Form, integers, normal, uniform

__all__ = ["fusing"]


def _number(value: float) -> Draw:
    return Draw("uniform", (), value, value, constant=True)


def fusing() -> list[Form]:
    """Small graphs that become one kernel when fusions are on."""
    wide, last = 768, {"axis": -1}
    scale, bias = normal(wide, mean=1.0, scale=0.3, constant=True), normal(wide, scale=0.3, constant=True)
    axes = integers(-1)
    norm = (
        ("ReduceMean", "x0 x3", "mean"),
        ("Sub", "x0 mean", "d"),
        ("Pow", "d x4", "sq"),
        ("ReduceMean", "sq x3", "var"),
        ("Add", "var x5", "g"),
        ("Sqrt", "g", "s"),
        ("Div", "d s", "n"),
        ("Mul", "n x1", "m"),
        ("Add", "m x2", "y0"),
    )
    rms = (
        ("Pow", "x0 x3", "sq"),
        ("ReduceMean", "sq x2", "var"),
        ("Add", "var x4", "g"),
        ("Sqrt", "g", "s"),
        ("Div", "x5 s", "i"),
        ("Mul", "x0 i", "n"),
        ("Mul", "n x1", "y0"),
    )
    gelu = (("Div", "x0 x1", "a"), ("Erf", "a", "e"), ("Add", "e x2", "b"), ("Mul", "x0 b", "c"), ("Mul", "c x3", "y0"))
    tanh = (
        ("Pow", "x0 x1", "p"),
        ("Mul", "p x2", "a"),
        ("Add", "x0 a", "b"),
        ("Mul", "b x3", "c"),
        ("Tanh", "c", "t"),
        ("Add", "t x4", "u"),
        ("Mul", "x0 x5", "h"),
        ("Mul", "h u", "y0"),
    )
    spread = (Draw("every", (1 << 16,)),)
    numbers = (_number(2.0), _number(1e-5))
    return [
        Form(
            "fused layer norm",
            "ReduceMean",
            (normal(32, wide, mean=0.5, scale=2.0), scale, bias, axes, *numbers),
            {},
            wide,
            1,
            18,
            norm,
            kind="layer-norm",
        ),
        Form(
            "fused layer norm of large values",
            "ReduceMean",
            (normal(32, wide, mean=30.0, scale=600.0), scale, bias, axes, *numbers),
            {},
            wide,
            1,
            18,
            norm,
            kind="layer-norm",
        ),
        Form(
            "fused RMS norm",
            "Pow",
            (normal(32, wide, scale=2.0), scale, axes, *numbers, _number(1.0)),
            {},
            wide,
            1,
            18,
            rms,
            kind="rms-norm",
        ),
        Form(
            "fused RMS norm of large values",
            "Pow",
            (normal(32, wide, scale=900.0), scale, axes, *numbers, _number(1.0)),
            {},
            wide,
            1,
            18,
            rms,
            kind="rms-norm",
        ),
        Form(
            "fused Gelu by erf",
            "Erf",
            (*spread, _number(2.0**0.5), _number(1.0), _number(0.5)),
            {},
            0,
            1,
            17,
            gelu,
            kind="gelu",
        ),
        Form(
            "fused Gelu by tanh",
            "Tanh",
            (*spread, _number(3.0), _number(0.044715), _number(0.7978845608), _number(1.0), _number(0.5)),
            {},
            0,
            1,
            17,
            tanh,
            kind="fast-gelu",
        ),
        Form(
            "fused Gelu by tanh before another node",
            "Tanh",
            (*spread, _number(3.0), _number(0.044715), _number(0.7978845608), _number(1.0), _number(0.5)),
            {},
            0,
            1,
            17,
            (*tanh[:-1], ("Mul", "h u", "g"), ("Neg", "g", "y0")),
            kind="fast-gelu",
        ),
        Form(
            "fused x sigmoid(x)",
            "Sigmoid",
            spread,
            {},
            0,
            1,
            17,
            (("Sigmoid", "x0", "s"), ("Mul", "x0 s", "y0")),
            kind="quick-gelu",
        ),
        Form(
            "fused x sigmoid(1.702 x)",
            "Sigmoid",
            (*spread, _number(1.702)),
            {},
            0,
            1,
            17,
            (("Mul", "x0 x1", "v"), ("Sigmoid", "v", "s"), ("Mul", "x0 s", "y0")),
            kind="quick-gelu",
        ),
        Form(
            "fused scaled product",
            "MatMul",
            (normal(8, 96, 64), normal(8, 64, 96), _number(7.3)),
            {},
            64,
            1,
            17,
            (("MatMul", "x0 x1", "p"), ("Div", "p x2", "y0")),
            kind="scaled-product",
        ),
        Form(
            "fused masked softmax",
            "Softmax",
            (normal(2, 4, 64, 64, scale=3.0), normal(1, 1, 64, 64, scale=3.0)),
            {"Softmax": last},
            64,
            1,
            17,
            (("Add", "x0 x1", "a"), ("Softmax", "a", "y0")),
            kind="masked-softmax",
        ),
        Form(
            "fused sum and layer norm",
            "LayerNormalization",
            (normal(4, 16, wide), normal(4, 16, wide), scale, bias),
            {"LayerNormalization": last},
            wide,
            1,
            17,
            (("Add", "x0 x1", "a"), ("LayerNormalization", "a x2 x3", "y0")),
        ),
        Form(
            "fused matmul and bias",
            "MatMul",
            (normal(64, 512), normal(512, 128, scale=0.044, constant=True), normal(128, constant=True)),
            {},
            512,
            1,
            17,
            (("MatMul", "x0 x1", "p"), ("Add", "p x2", "y0")),
            kind="biased-product",
        ),
        Form(
            "fused conv and batch norm",
            "Conv",
            (
                normal(1, 64, 28, 28),
                normal(64, 64, 3, 3, scale=0.04, constant=True),
                normal(64, mean=1.0, scale=0.3, constant=True),
                normal(64, scale=0.3, constant=True),
                normal(64, scale=0.5, constant=True),
                uniform(64, low=0.3, high=3.0, constant=True),
            ),
            {},
            576,
            1,
            17,
            (("Conv", "x0 x1", "c"), ("BatchNormalization", "c x2 x3 x4 x5", "y0")),
            kind="conv-batch-norm",
        ),
        Form(
            "fused conv with a bias and batch norm",
            "Conv",
            (
                normal(1, 64, 28, 28),
                normal(64, 64, 3, 3, scale=0.04, constant=True),
                normal(64, mean=1.0, scale=0.3, constant=True),
                normal(64, scale=0.3, constant=True),
                normal(64, scale=0.5, constant=True),
                uniform(64, low=0.3, high=3.0, constant=True),
                normal(64, scale=0.5, constant=True),
            ),
            {},
            576,
            1,
            17,
            (("Conv", "x0 x1 x6", "c"), ("BatchNormalization", "c x2 x3 x4 x5", "y0")),
            kind="conv-batch-norm",
        ),
    ]
