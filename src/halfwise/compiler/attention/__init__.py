"""Attention that a compiler fuses: its FP32 regions, and advice on them."""
