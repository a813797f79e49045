"""Folders of audio files as the inputs of a network: one channel, at the stated rate, cut into the model's windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.exhausted import not_loaded
from halfwise.core.file_order import by_number
from halfwise.core.metrics import is_float
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.readable import readable

__all__ = ["Audio", "Sound", "audio_files", "read_sound", "window", "windowed_input"]

_SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".aiff", ".aif")


@dataclass(frozen=True)
class Audio:
    """Stands among the inputs of a verb: the windows of every audio file of a folder are samples, in order."""

    folder: str | Path
    rate: int = 16_000


@dataclass(frozen=True)
class Sound:
    """One file: mono, at the wanted rate; `given` is the rate that the file has."""

    values: NDArray[np.float32]
    given: int


def audio_files(folder: Path) -> list[Path]:
    """The audio files of a folder, "2" before "10"."""
    if folder.is_file():
        return [folder]
    if not folder.exists():
        raise InputError(f"--audio {folder}: there is no such folder")
    with readable(str(folder)):
        found = [path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and path.is_file()]
    if not found:
        raise InputError(f"--audio {folder}: there is no audio file ({', '.join(_SUFFIXES)}) in this folder")
    return sorted((path for path in found if not path.name.startswith(".")), key=by_number)


def read_sound(path: Path, rate: int) -> Sound:
    """The mean of its channels, resampled by the Fourier transform of the whole file."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # its own library may lack
        raise not_loaded(error, "audio is read with soundfile: pip install 'halfwise[audio]'") from None
    with readable(str(path), "an audio file"):
        values, given = soundfile.read(path, dtype="float32", always_2d=True)
    mono = values.mean(axis=1)
    if not mono.size:
        raise InputError(f"{path}: holds no sound")
    return Sound(_resampled(mono, int(given), rate), int(given))


def windowed_input(specs: Sequence[InputSpec], states: Sequence[str] = ()) -> tuple[InputSpec, int | None]:
    """The input that takes the waveform, and how many values of it at a time; None where that is open."""
    found = [
        spec
        for spec in specs
        if is_float(spec.dtype) and spec.name not in states and spec.shape is not None and 1 <= len(spec.shape) <= 3
    ]
    if len(found) != 1:
        raise InputError(f"--audio: the model has {len(found) or 'no'} inputs that may be a waveform; give .npz files")
    shape = found[0].shape or ()
    if any(isinstance(dim, int) and dim != 1 for dim in shape[:-1]):
        told = "x".join("?" if dim is None else str(dim) for dim in shape)
        raise InputError(
            f"--audio: input {found[0].name!r} takes {told}, which is no waveform; give its features as .npz"
        )
    last = shape[-1]
    return found[0], last if isinstance(last, int) else None


def window(sound: Sound, spec: InputSpec, length: int | None, index: int) -> dict[str, NDArray[Any]]:
    """One window as the input; the last one of a file is filled up with silence."""
    rank = len(spec.shape or ())
    part = sound.values if length is None else sound.values[index * length : (index + 1) * length]
    if length is not None and part.size < length:
        part = np.pad(part, (0, length - part.size))
    return {spec.name: part.astype(spec.dtype).reshape((1,) * (rank - 1) + (-1,))}


def _resampled(values: NDArray[np.float32], given: int, wanted: int) -> NDArray[np.float32]:
    if given == wanted:
        return values
    size = max(1, round(values.size * wanted / given))
    spectrum = np.fft.rfft(values.astype(np.float64))
    kept = np.zeros(size // 2 + 1, np.complex128)
    count = min(kept.size, spectrum.size)
    kept[:count] = spectrum[:count]
    return (np.fft.irfft(kept, size) * (size / values.size)).astype(np.float32)
