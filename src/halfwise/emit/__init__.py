"""Writes what a target needs: a typed ONNX model, commands, scripts."""
