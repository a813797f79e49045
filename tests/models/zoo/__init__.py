"""Models that fail in FP16 in well-known ways, built from a seed; for benchmarks and tests."""

from tests.models.zoo.chain import chain
from tests.models.zoo.cnn_tiny_weights import cnn_tiny_weights
from tests.models.zoo.detr_head import detr_head
from tests.models.zoo.encoder import encoder
from tests.models.zoo.norm_log_head import norm_log_head
from tests.models.zoo.shapes import SHAPES
from tests.models.zoo.transformer import transformer
from tests.models.zoo.zoo_model import ZooModel

__all__ = ["SHAPES", "ZooModel", "chain", "cnn_tiny_weights", "detr_head", "encoder", "norm_log_head", "transformer"]
