"""Reads TensorRT build logs: what they say about precision, and how their layers map to ONNX nodes."""

from halfwise.compiler.buildlog.reader import read_lines, read_log
from halfwise.compiler.buildlog.report import LogReport, LogStructure, NodeType, ReformatLayer
from halfwise.compiler.buildlog.weights import ModelNames, WeightOrigin, map_weights, model_names, with_origins

__all__ = [
    "LogReport",
    "LogStructure",
    "ModelNames",
    "NodeType",
    "ReformatLayer",
    "WeightOrigin",
    "map_weights",
    "model_names",
    "read_lines",
    "read_log",
    "with_origins",
]
