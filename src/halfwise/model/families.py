"""Standard operators by what they compute."""

from __future__ import annotations

__all__ = [
    "COMPARISONS",
    "INTEGER_ARITHMETIC",
    "INTEGER_SUMS",
    "NORMS",
    "PRODUCTS",
    "QUANTISERS",
    "RECURRENT",
    "REDUCTIONS",
    "STEPS",
]

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})  # whose second input is most often a weight
RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
NORMS = ("LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization")
COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
STEPS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})  # round to integers, whatever the format
REDUCTIONS = frozenset(f"Reduce{name}" for name in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split())
INTEGER_SUMS = frozenset({"ConvInteger", "MatMulInteger"})  # up to 2^31, where FP16 ends at 2^16
INTEGER_ARITHMETIC = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
)
