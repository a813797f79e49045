"""What a target needs: commands, scripts, memory layouts, known defects, changes for ONNX Runtime."""
