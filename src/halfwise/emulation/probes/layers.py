"""Recurrent layers, pointwise operators, and what only moves values."""

from __future__ import annotations

from typing import Any

from halfwise.emulation.probes.form import Draw, Form, every_number, integers, normal, pairs, uniform

__all__ = ["moves", "pointwise", "recurrent"]


def recurrent() -> list[Form]:
    forms = []
    for op, gates in (("GRU", 3), ("LSTM", 4), ("RNN", 1)):
        for steps, hidden, inputs, batch, sides in (
            (1, 32, 48, 4, 1), (16, 32, 48, 4, 1), (64, 64, 48, 4, 1), (1, 128, 128, 1, 1), (1, 256, 256, 4, 1),
            (1, 50, 100, 4, 1), (8, 16, 8, 1, 1), (8, 8, 16, 16, 2),
        ):  # fmt: skip
            weights = normal(sides, gates * hidden, inputs, scale=0.14, constant=True)
            recurrent = normal(sides, gates * hidden, hidden, scale=0.18, constant=True)
            bias = normal(sides, 2 * gates * hidden, scale=0.1, constant=True)
            attributes: dict[str, Any] = {"hidden_size": hidden}
            if op == "GRU":
                attributes["linear_before_reset"] = 1
            given: tuple[Draw | None, ...] = (normal(steps, batch, inputs), weights, recurrent, bias)
            name = f"{op}, {steps} steps of {hidden}"
            if (inputs, batch) != (48, 4):  # from a state, as most models run it
                states = normal(sides, batch, hidden, scale=0.5)
                given += (None, states, states) if op == "LSTM" else (None, states)
                name += f" by {inputs}, {'both directions' if sides == 2 else 'from a state'}"
            if sides == 2:
                attributes["direction"] = "bidirectional"
            forms.append(Form(name, op, given, attributes, steps))
    forms.append(
        Form("GRU that resets before its product", "GRU",
             (normal(8, 4, 48), normal(1, 96, 48, scale=0.14, constant=True),
              normal(1, 96, 32, scale=0.18, constant=True), normal(1, 192, scale=0.1, constant=True)),
             {"hidden_size": 32}, 8)
    )  # fmt: skip
    return forms


def pointwise() -> list[Form]:
    unary: dict[str, dict[str, Any]] = {
        "Relu": {}, "LeakyRelu": {"alpha": 0.01}, "Sigmoid": {}, "Tanh": {}, "Gelu": {}, "Erf": {},
        "HardSigmoid": {"alpha": 0.2, "beta": 0.5}, "HardSwish": {}, "Mish": {}, "Elu": {"alpha": 1.0},
        "Selu": {}, "Softplus": {}, "Softsign": {}, "ThresholdedRelu": {"alpha": 0.5}, "Exp": {}, "Log": {},
        "Sqrt": {}, "Reciprocal": {}, "Abs": {}, "Neg": {}, "Floor": {}, "Ceil": {}, "Round": {}, "Sign": {},
        "Sin": {}, "Cos": {}, "Tan": {}, "Atan": {}, "Asin": {}, "Sinh": {}, "Cosh": {}, "Asinh": {}, "Identity": {},
        "IsNaN": {},
    }  # fmt: skip
    forms = [Form(op, op, (every_number(),), attributes) for op, attributes in unary.items() if op != "IsNaN"]
    forms += [
        Form("Gelu by tanh", "Gelu", (every_number(),), {"approximate": "tanh"}),
        Form("PRelu", "PRelu", (every_number(), normal(1, constant=True))),
        Form("Clip", "Clip", (every_number(), uniform(constant=True), normal(mean=6.0, constant=True))),
        *(Form(op, op, (pairs(), pairs())) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
        Form("Pow", "Pow", (uniform(1 << 16, low=0.0, high=8.0), normal(1 << 16, scale=2.0))),
        *(
            Form(f"Pow {name}", "Pow", (every_number(), Draw("uniform", (), value, value, constant=True)))
            for name, value in (("2", 2.0), ("3", 3.0), ("0.5", 0.5), ("-0.5", -0.5), ("1.7", 1.7))
        ),
        Form("Mod", "Mod", (normal(4096, scale=30.0), uniform(4096, low=0.5, high=4.0)), {"fmod": 1}),
        Form("Sum of four", "Sum", (normal(4096), normal(4096), normal(4096), normal(4096))),
        Form("Mean of four", "Mean", (normal(4096), normal(4096), normal(4096), normal(4096))),
    ]
    return forms


def moves() -> list[Form]:
    return [
        Form("Concat", "Concat", (normal(4, 16), normal(4, 32)), {"axis": 1}),
        Form("Gather", "Gather", (normal(64, 32), integers(3, 5, 60))),
        Form("Transpose", "Transpose", (normal(4, 8, 16),), {"perm": [2, 0, 1]}),
        Form("Slice", "Slice", (normal(16, 16), integers(2), integers(14), integers(1))),
        Form("Pad", "Pad", (normal(4, 8), integers(0, 1, 2, 0))),
        Form("Expand", "Expand", (normal(1, 16), integers(4, 16))),
        Form("Tile", "Tile", (normal(2, 8), integers(2, 3))),
        Form("Reshape", "Reshape", (normal(4, 8), integers(8, 4))),
        Form("ScatterND", "ScatterND", (normal(16, 8), integers(3, 7, shape=(2, 1)), normal(2, 8))),
        Form("GatherND", "GatherND", (normal(16, 8), integers(3, 7, shape=(2, 1)))),
        Form("ScatterElements", "ScatterElements",
             (normal(4, 8), integers(0, 1, 2, 3, 4, 5, 6, 7, shape=(1, 8)), normal(1, 8)), {"axis": 1}),
        Form("TopK", "TopK", (normal(16, 200), integers(7)), {"axis": -1}, 0, 2),
        Form("Trilu", "Trilu", (normal(16, 16),)),
    ]  # fmt: skip
