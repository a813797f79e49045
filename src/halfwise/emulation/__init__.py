"""Runs a model with the roundings of a GPU; profiles say where its kernels round."""
