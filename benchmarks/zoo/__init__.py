"""Models that fail in FP16 in well-known ways, built from a seed; for benchmarks and tests."""

from benchmarks.zoo.cnn_tiny_weights import cnn_tiny_weights
from benchmarks.zoo.detr_head import detr_head
from benchmarks.zoo.encoder import encoder
from benchmarks.zoo.norm_log_head import norm_log_head
from benchmarks.zoo.shapes import SHAPES
from benchmarks.zoo.transformer import transformer
from benchmarks.zoo.zoo_model import ZooModel

__all__ = ["SHAPES", "ZooModel", "cnn_tiny_weights", "detr_head", "encoder", "norm_log_head", "transformer"]
