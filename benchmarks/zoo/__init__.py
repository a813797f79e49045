"""Models that fail in FP16 in well-known ways, built from a seed; for benchmarks and tests."""

from benchmarks.zoo.detr_head import detr_head
from benchmarks.zoo.encoder import encoder
from benchmarks.zoo.transformer import transformer
from benchmarks.zoo.zoo_model import ZooModel

__all__ = ["ZooModel", "detr_head", "encoder", "transformer"]
