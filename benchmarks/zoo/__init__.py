"""Generators of large models with random weights, written to disk without ever being held."""
