"""Images as inputs: the numbers that the network gets, against NumPy written differently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.images import Images
from halfwise.model.inputs.samples import load_samples
from tests.support.media import image
from tests.support.messages import only
from tests.support.says import Says

pytest.importorskip("PIL")

F32 = np.dtype(np.float32)
NCHW = InputSpec("image", F32, (1, 3, 4, 6))
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 3))


def first(spec: InputSpec, folder: Path, **options: Any) -> np.ndarray:
    return np.asarray(load_samples([spec], Images(folder, **options)).search[0][spec.name])


def test_pixels_are_scaled_to_one(tmp_path: Path) -> None:
    image(tmp_path / "a.png", PIXELS)
    array = first(NCHW, tmp_path)
    assert array.shape == (1, 3, 4, 6) and array.dtype == np.float32
    for y, x, c in [(0, 0, 0), (3, 5, 2), (1, 4, 1)]:
        assert array[0, c, y, x] == pytest.approx(PIXELS[y, x, c] / 255, abs=1e-6)


def test_mean_and_std_follow_the_range(tmp_path: Path) -> None:
    image(tmp_path / "a.png", PIXELS)
    array = first(NCHW, tmp_path, mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375), range="0-255")
    assert array[0, 2, 1, 3] == pytest.approx((PIXELS[1, 3, 2] - 103.53) / 57.375, abs=1e-5)
    array = first(NCHW, tmp_path, mean=(0.5,), std=(0.5,))
    assert array[0, 1, 2, 2] == pytest.approx(PIXELS[2, 2, 1] / 127.5 - 1, abs=1e-5)
    assert first(NCHW, tmp_path, range="-1-1")[0, 1, 2, 2] == pytest.approx(PIXELS[2, 2, 1] / 127.5 - 1, abs=1e-5)


def test_the_layout_is_the_models(tmp_path: Path) -> None:
    image(tmp_path / "a.png", PIXELS)
    array = first(InputSpec("x", F32, (None, 4, 6, 3)), tmp_path)
    assert array.shape == (1, 4, 6, 3) and array[0, 2, 5, 0] == pytest.approx(PIXELS[2, 5, 0] / 255, abs=1e-6)
    assert first(InputSpec("x", F32, (3, 4, 6)), tmp_path).shape == (3, 4, 6)


def test_integers_take_pixels_as_they_are(tmp_path: Path) -> None:
    image(tmp_path / "a.png", PIXELS)
    array = first(InputSpec("x", np.dtype(np.uint8), (1, 3, 4, 6)), tmp_path)
    assert array.dtype == np.uint8 and np.array_equal(array[0], PIXELS.transpose(2, 0, 1))


def test_letterbox_keeps_proportions_and_stretch_does_not(tmp_path: Path) -> None:
    image(tmp_path / "a.png", np.full((4, 8, 3), 200))
    square = InputSpec("x", F32, (1, 3, 8, 8))
    boxed = first(square, tmp_path, range="0-255")
    assert (boxed[0, :, 2:6] == 200).all() and (boxed[0, :, :2] == 114).all() and (boxed[0, :, 6:] == 114).all()
    assert (first(square, tmp_path, range="0-255", letterbox=False) == 200).all()


def test_a_camera_held_upright_is_turned(tmp_path: Path) -> None:
    image(tmp_path / "a.png", PIXELS, orientation=6)  # to be turned by 90 degrees clockwise
    array = first(InputSpec("x", F32, (1, 3, 6, 4)), tmp_path, range="0-255")
    assert np.array_equal(array[0].transpose(1, 2, 0), np.rot90(PIXELS, -1))


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_and_transparent_images(channels: int, tmp_path: Path) -> None:
    image(tmp_path / "a.png", PIXELS[..., 0])
    array = first(InputSpec("x", F32, (1, channels, 4, 6)), tmp_path, range="0-255")
    assert array.shape[1] == channels and np.array_equal(array[0, channels - 1], PIXELS[..., 0])
    image(tmp_path / "a.png", np.dstack([PIXELS, np.full((4, 6), 255)]))
    assert np.array_equal(first(NCHW, tmp_path, range="0-255")[0], PIXELS.transpose(2, 0, 1))


def test_what_was_done_is_said(tmp_path: Path) -> None:
    for index in range(3):
        image(tmp_path / f"{index}.png", PIXELS + index)
    samples = load_samples([InputSpec("x", F32, ("n", 3, "h", "w"))], [Images(tmp_path, size=(6, 4))])
    told = only(samples.notes, NoteKind.IMAGES_READ)
    assert told.subject == "x"
    assert (told.values["count"], told.values["width"], told.values["height"]) == (3, 6, 4)
    assert (told.values["layout"], told.values["range"], told.values["fit"]) == ("nchw", "0-1", "letterbox")
    assert len(samples.all) == 3


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (InputSpec("x", F32, (1, 3, None, None)), {}),
        (NCHW, {"size": (8, 8)}),
        (NCHW, {"size": (0, 4)}),
        (NCHW, {"layout": "hwc"}),
        (NCHW, {"range": "0-2"}),
        (NCHW, {"mean": (1.0, 2.0)}),
        (NCHW, {"mean": (123.0,)}),
        (NCHW, {"std": (0.0,)}),
        (InputSpec("x", np.dtype(np.uint8), (1, 3, 4, 6)), {"mean": (0.5,)}),
        (InputSpec("x", F32, (1, 7, 4, 6)), {}),
        (InputSpec("x", F32, (1, 10)), {}),
    ],
)
def test_what_does_not_fit_is_one_line(spec: InputSpec, options: dict[str, Any], says: Says, tmp_path: Path) -> None:
    image(tmp_path / "a.png", PIXELS)
    with pytest.raises(InputError) as caught:
        load_samples([spec], [Images(tmp_path, **options)])
    says(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_image_is_named(tmp_path: Path, says: Says) -> None:
    (tmp_path / "a.png").write_bytes(b"ftrt" + bytes(60))
    with says.raises(InputError):
        load_samples([NCHW], [Images(tmp_path)])


def test_other_inputs_and_folders_without_images_are_told(tmp_path: Path, says: Says) -> None:
    with pytest.raises(InputError, match=r"there is no image \(\.png"):
        load_samples([NCHW], [Images(tmp_path)])
    with pytest.raises(InputError, match="there is no such folder"):
        load_samples([NCHW], [Images(tmp_path / "none")])
    image(tmp_path / "a.png", PIXELS)
    with says.raises(InputError):
        load_samples([NCHW, InputSpec("size", np.dtype(np.int64), (1, 2))], [Images(tmp_path)])
    with pytest.raises(InputError, match="give images with --images"):
        load_samples([NCHW], tmp_path)
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"a\.png: cannot be read"):
        load_samples([NCHW], [Images(tmp_path)])
