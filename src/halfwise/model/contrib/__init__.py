"""ONNX Runtime's own operators: their schemas, kernels, shapes, and what they are in ONNX's operators."""
