"""Inputs that differ in content and in scale: correlated tokens, tokens with outlier channels, any draw."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tests.models.zoo.zoo_model import Feed

Array = npt.NDArray[np.float32]
OUTLIER_WIDTH = 64
OUTLIERS = {5: 900.0, 23: -600.0, 40: 320.0}


def scales() -> list[float]:
    """The scales of ten inputs, over a factor of two."""
    return [float(scale) for scale in np.geomspace(0.7, 1.4, 10)]


def feeds(rng: np.random.Generator, name: str, draw: Callable[[np.random.Generator, float], Array]) -> list[Feed]:
    """Ten draws for the one input `name`, each different in content and in scale."""
    return [{name: draw(rng, scale)} for scale in scales()]


def token_inputs(rng: np.random.Generator, batch: int, sequence: int, width: int, scale: float) -> Array:
    """Token embeddings that are correlated along the sequence and across channels, as text is; never white noise."""
    topics = rng.standard_normal((batch, 1, 8)) + 0.8 * rng.standard_normal((batch, sequence, 8))
    shared = topics @ rng.standard_normal((8, width)) / np.sqrt(8.0)
    own = rng.standard_normal((batch, sequence, width)) * rng.lognormal(0.0, 0.3, (1, 1, width))
    tokens: Array = (scale * (0.7 * shared + 0.7 * own)).astype(np.float32)
    return tokens


def outlier_tokens(rng: np.random.Generator, scale: float) -> Array:
    """Sixteen tokens in whose 64 channels three are outliers, so that every token's squares exceed 65504."""
    tokens = 10.0 * scale * rng.standard_normal((1, 16, OUTLIER_WIDTH))
    tokens[..., list(OUTLIERS)] = np.array(list(OUTLIERS.values())) * rng.uniform(0.9, 1.1, (1, 16, len(OUTLIERS)))
    return tokens.astype(np.float32)
