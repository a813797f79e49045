"""An ONNX model in one normal form, its patterns, checkpoints, and the inputs that are fed to it."""
