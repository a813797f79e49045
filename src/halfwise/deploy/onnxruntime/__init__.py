"""What ONNX Runtime must be spared: casts it cannot load and fusions it would lose."""
