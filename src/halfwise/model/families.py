"""Standard operators by what they compute."""

from __future__ import annotations

__all__ = ["COMPARISONS", "INTEGER_ARITHMETIC", "NORMS", "PRODUCTS", "QUANTISERS", "RECURRENT"]

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})  # whose second input is most often a weight
RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
NORMS = ("LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization")
COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
INTEGER_ARITHMETIC = frozenset(
    {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
)
