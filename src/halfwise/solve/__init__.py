"""Measured noise in, the cheapest set of FP32 nodes out."""
