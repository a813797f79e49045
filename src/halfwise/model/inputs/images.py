"""Folders of images as the inputs of a network: resized, scaled and normalised in the way that is stated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.exhausted import not_loaded
from halfwise.core.file_order import by_number
from halfwise.core.metrics import is_float
from halfwise.core.wording import counted
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.readable import readable

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["RANGES", "Images", "Prepared", "image_files", "prepared_for", "read_image"]

RANGES = {"0-1": (0.0, 1.0), "0-255": (0.0, 255.0), "-1-1": (-1.0, 1.0)}
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif")
_PAD = 114  # grey, as detectors are trained with
_LARGEST = 1 << 14


@dataclass(frozen=True)
class Images:
    """Stands among the inputs of a verb: every image of a folder, or one image, is a sample.

    `size` is width and height, else the model's; `layout` "nchw" or "nhwc", else the model's. Values are scaled to
    `range` ("0-1", "0-255", "-1-1"), then `mean` is subtracted and divided by `std` (one number, or one a channel).
    `letterbox` keeps the proportions and pads with grey; else the image is stretched.
    """

    folder: str | Path
    size: tuple[int, int] | None = None
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    layout: Literal["nchw", "nhwc"] | None = None
    range: str | None = None
    letterbox: bool = True


@dataclass(frozen=True)
class Prepared:
    """How images become one input of a model: everything that was left open is decided."""

    name: str
    dtype: np.dtype[Any]
    width: int
    height: int
    channels: int
    layout: str
    range: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    letterbox: bool
    rank: int  # 4, or 3 where the model takes a single image without a batch


def image_files(folder: Path) -> list[Path]:
    """The images of a folder, "2" before "10"."""
    if folder.is_file():
        return [folder]
    if not folder.exists():
        raise InputError(f"--images {folder}: there is no such folder")
    with readable(str(folder)):
        found = [path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and path.is_file()]
    if not found:
        raise InputError(f"--images {folder}: there is no image ({', '.join(_SUFFIXES)}) in this folder")
    return sorted((path for path in found if not path.name.startswith(".")), key=by_number)


def prepared_for(images: Images, specs: Sequence[InputSpec]) -> Prepared:
    """Decide what was left open by what the model declares; what cannot be is refused."""
    spec = _image_input(specs)
    shape = spec.shape or ()
    layout = images.layout or ("nhwc" if _is_channels(shape[-1]) and not _is_channels(shape[-3]) else "nchw")
    if layout not in ("nchw", "nhwc"):
        raise InputError(f"--layout {layout}: write nchw or nhwc")
    *_, first, second, third = shape
    channels, height, width = (third, first, second) if layout == "nhwc" else (first, second, third)
    size = images.size or ((width, height) if isinstance(width, int) and isinstance(height, int) else None)
    if size is None:
        raise InputError(f"--images: input {spec.name!r} has open dimensions: state the size, such as --size 640x640")
    if not all(isinstance(each, int) and 0 < each <= _LARGEST for each in size):
        raise InputError(f"--size {size[0]}x{size[1]}: write WIDTHxHEIGHT, each from 1 to {_LARGEST}")
    for stated, declared in zip(size, (width, height), strict=True):
        if isinstance(declared, int) and declared != stated:
            raise InputError(f"--size {size[0]}x{size[1]}: the model takes {width}x{height}")
    count = channels if isinstance(channels, int) else 3
    if count not in (1, 3):
        raise InputError(
            f"--images: input {spec.name!r} has {counted(count, 'channel')} in layout {layout}; images have 1 or 3"
        )
    scale = images.range or ("0-1" if is_float(spec.dtype) else "0-255")
    if scale not in RANGES:
        raise InputError(f"--range {scale}: write {', '.join(RANGES)}")
    mean, std = (_each(values, count, what) for values, what in ((images.mean, "--mean"), (images.std, "--std")))
    low, high = RANGES[scale]
    if any(not low - high <= value <= 2 * high for value in mean):
        raise InputError(f"--mean {mean[0]:g}: it lies outside the range {scale}; state the range of the values first")
    if any(value <= 0 for value in std):
        raise InputError(f"--std {min(std):g}: give numbers above 0")
    if not is_float(spec.dtype) and (mean or std or scale != "0-255"):
        raise InputError(f"--images: input {spec.name!r} is {spec.dtype}, which takes pixels as they are: 0-255")
    return Prepared(
        spec.name, spec.dtype, size[0], size[1], count, layout, scale, mean, std, images.letterbox, len(shape)
    )


def read_image(path: Path, how: Prepared) -> dict[str, NDArray[Any]]:
    """One image as the input that the network sees."""
    image = _opened(path, how.channels)
    pixels = np.asarray(_fitted(image, how), np.float32).reshape(how.height, how.width, how.channels)
    low, high = RANGES[how.range]
    values: NDArray[Any] = pixels * ((high - low) / 255.0) + low
    if how.mean:
        values = values - np.asarray(how.mean, np.float32)
    if how.std:
        values = values / np.asarray(how.std, np.float32)
    ordered = values.transpose(2, 0, 1) if how.layout == "nchw" else values
    array = np.ascontiguousarray(ordered if how.rank == 3 else ordered[None])
    return {how.name: array.astype(how.dtype)}


def _image_input(specs: Sequence[InputSpec]) -> InputSpec:
    found = [spec for spec in specs if spec.shape is not None and len(spec.shape) == 4]
    found = found or [spec for spec in specs if spec.shape is not None and len(spec.shape) == 3]
    if len(found) != 1:
        raise InputError(f"--images: the model has {len(found) or 'no'} inputs that may be an image; give .npz files")
    others = [spec.name for spec in specs if spec is not found[0] and not spec.optional]
    if others:
        told = ", ".join(map(repr, others))
        raise InputError(
            f"--images: images are input {found[0].name!r}, but the model also takes {told}; give .npz files"
        )
    return found[0]


def _is_channels(dim: int | str | None) -> bool:
    return dim in (1, 3)


def _each(values: Sequence[float], channels: int, what: str) -> tuple[float, ...]:
    if len(values) not in (0, 1, channels):
        raise InputError(f"{what}: {len(values)} numbers for {channels} channels; give one, or one a channel")
    return tuple(float(value) for value in values) * (channels if len(values) == 1 else 1)


def _opened(path: Path, channels: int) -> Image:
    """Upright, in colour or grey. A palette, an alpha channel and 16 bits become 8 bits a channel."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise not_loaded(error, "images are read with Pillow: pip install 'halfwise[images]'") from None
    with readable(str(path), "an image"), Image.open(path) as stored:
        upright = ImageOps.exif_transpose(stored) or stored
        if upright.mode.startswith(("I", "F")):
            values = np.asarray(upright, np.float64)
            upright = Image.fromarray(
                (values * (255.0 / (65535.0 if values.max(initial=0) > 255 else 255.0))).astype("u1")
            )
        return upright.convert("L" if channels == 1 else "RGB")


def _fitted(image: Image, how: Prepared) -> Image:
    from PIL import Image as Pillow

    if not how.letterbox:
        return image.resize((how.width, how.height), Pillow.Resampling.BILINEAR)
    scale = min(how.width / image.width, how.height / image.height)
    width, height = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    canvas = Pillow.new(image.mode, (how.width, how.height), _PAD if how.channels == 1 else (_PAD,) * 3)
    canvas.paste(
        image.resize((width, height), Pillow.Resampling.BILINEAR),
        ((how.width - width) // 2, (how.height - height) // 2),
    )
    return canvas
