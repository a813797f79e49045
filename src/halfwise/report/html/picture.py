"""The first image as the network sees it, as a small PNG in the page: preprocessing is the commonest mistake."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halfwise.core.english import say
from halfwise.core.notes import NoteKind
from halfwise.model.inputs.images import RANGES
from halfwise.verbs.fix.result import FixResult

__all__ = ["Picture", "picture_of", "png"]

_SIDE = 256  # pixels at most


@dataclass(frozen=True)
class Picture:
    """`source` is a data URL; `told` says how images become the input."""

    source: str
    width: int
    height: int
    told: str


def picture_of(result: FixResult) -> Picture | None:
    """Made from the numbers that the network gets, with the stated steps undone; None where no images were given."""
    note = next((note for note in result.samples.notes if note.kind is NoteKind.IMAGES_READ), None)
    held = result.samples.search[0].get(note.subject) if note is not None and result.samples.search else None
    if note is None or not isinstance(held, np.ndarray):
        return None
    values = held.astype(np.float64).reshape(held.shape[-3:])
    if note.values["layout"] == "nchw":
        values = values.transpose(1, 2, 0)
    low, high = RANGES[note.values["range"]]
    values = values * np.asarray(note.values["std"]) + np.asarray(note.values["mean"])
    pixels = np.clip((values - low) * (255.0 / (high - low)), 0, 255).round().astype(np.uint8)
    step = -(-max(pixels.shape[:2]) // _SIDE)
    small = np.ascontiguousarray(pixels[::step, ::step])
    source = "data:image/png;base64," + base64.b64encode(png(small)).decode("ascii")
    return Picture(source, small.shape[1], small.shape[0], say(note))


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Height x width x 1 or 3, as a file."""
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
