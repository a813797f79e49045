"""Small images and sounds, written to files."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

__all__ = ["image", "sound"]


def image(path: Path, pixels: np.ndarray, orientation: int = 1) -> Path:
    """Height x width, or height x width x channels; with `orientation`, a camera's note of how it was held."""
    pillow = pytest.importorskip("PIL.Image")
    made = pillow.fromarray(pixels.astype(np.uint8))
    exif = made.getexif()
    exif[0x0112] = orientation
    made.save(path, exif=exif.tobytes())
    return path


def sound(path: Path, values: np.ndarray, rate: int) -> Path:
    """16-bit; one channel, or values x channels."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if values.ndim == 1 else values.shape[1])
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(values, -1, 1) * 32767).astype("<i2").tobytes())
    return path
