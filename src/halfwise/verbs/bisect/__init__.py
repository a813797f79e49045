"""Finds every node that a real backend needs in FP32, with as few builds as it can."""
