"""Samples that are not read yet, from whatever a user gives: files, folders, images, sound, raw values, mappings."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.archives import read_npz
from halfwise.core.errors import InputError
from halfwise.core.file_order import by_number
from halfwise.core.files.absent import absent
from halfwise.core.files.identify import not_wanted
from halfwise.core.notes import Note, NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.audio import Audio, Sound, audio_files, read_sound, window, windowed_input
from halfwise.model.inputs.checked import names_of
from halfwise.model.inputs.images import Images, image_files, prepared_for, read_image
from halfwise.model.inputs.polygraphy import decoded, feeds_in
from halfwise.model.inputs.raw import named_files, raw_arrays, raw_files
from halfwise.model.inputs.readable import readable
from halfwise.model.inputs.shapes import Shapes

__all__ = ["READABLE", "Entry", "Source", "Sources", "sources_of"]

Source = str | os.PathLike[str] | Mapping[str, Any] | Images | Audio | Shapes

READABLE = (".npz", ".npy", ".json")


@dataclass(frozen=True)
class Entry:
    """One sample that is not read yet; `label` says where it comes from."""

    label: str
    read: Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Sources:
    """What was given: the samples one after another, the shapes that were stated, and what is to be said of it."""

    entries: Iterable[Entry]
    shapes: Shapes | None
    notes: tuple[Note, ...]
    only_shapes: bool  # inputs are to be made up


def sources_of(given: Source | Iterable[Source], specs: Sequence[InputSpec], states: Collection[str]) -> Sources:
    """Sort what was given; files are opened when their entry is read."""
    if isinstance(given, (str, os.PathLike, Mapping, Images, Audio, Shapes)):
        given = [given]
    if not isinstance(given, Iterable):
        raise InputError(f"inputs are of type {type(given).__name__}: give paths, or mappings from names to arrays")
    shapes, notes = None, []
    if isinstance(given, Sequence):
        shapes = next((each for each in given if isinstance(each, Shapes)), None)
        given = [each for each in given if not isinstance(each, Shapes)]
        for each in given:
            if isinstance(each, Images):
                notes.append(_images_note(each, specs))
            elif isinstance(each, Audio):
                notes.append(_audio_note(each, specs, states))
    if shapes is not None:
        shapes.check(specs)
    none = isinstance(given, list) and not given and shapes is not None
    return Sources(_entries(given, specs, shapes, states), shapes, tuple(notes), none)


def _entries(
    given: Iterable[Source], specs: Sequence[InputSpec], shapes: Shapes | None, states: Collection[str]
) -> Iterator[Entry]:
    for index, source in enumerate(given):
        label = f"inputs[{index}]"
        if isinstance(source, Images):
            how = prepared_for(source, specs)
            yield from (Entry(str(path), partial(read_image, path, how)) for path in image_files(Path(source.folder)))
        elif isinstance(source, Audio):
            yield from _windows(source, specs, states)
        elif isinstance(source, (str, os.PathLike)):
            yield from _path_entries(Path(source), specs, shapes)
        elif isinstance(source, Mapping):
            yield Entry(label, partial(dict, {name: _own(value, name, label, specs) for name, value in source.items()}))
        else:
            raise InputError(
                f"{label}: is of type {type(source).__name__}, not a path or a mapping from input names to arrays"
            )


def _images_note(images: Images, specs: Sequence[InputSpec]) -> Note:
    how = prepared_for(images, specs)
    return Note.of(
        NoteKind.IMAGES_READ, how.name, count=len(image_files(Path(images.folder))), width=how.width, height=how.height,
        fit="letterbox" if how.letterbox else "stretch", layout=how.layout, range=how.range,
        mean=list(how.mean) or [0.0], std=list(how.std) or [1.0],
    )  # fmt: skip


def _audio_note(audio: Audio, specs: Sequence[InputSpec], states: Collection[str]) -> Note:
    spec, _ = windowed_input(specs, tuple(states))
    if audio.rate < 1:
        raise InputError(f"--rate {audio.rate}: give samples per second, such as 16000")
    files = audio_files(Path(audio.folder))
    rates = sorted({read_sound(path, audio.rate).given for path in files[:_RATES]} - {audio.rate})
    resampled: Note | str = Note.of(NoteKind.RESAMPLED, rates=rates) if rates else ""
    return Note.of(NoteKind.AUDIO_READ, spec.name, count=len(files), rate=audio.rate, resampled=resampled)


_RATES = 8  # files whose rates are looked at beforehand


def _windows(audio: Audio, specs: Sequence[InputSpec], states: Collection[str]) -> Iterator[Entry]:
    spec, length = windowed_input(specs, tuple(states))
    for path in audio_files(Path(audio.folder)):
        held = lru_cache(maxsize=1)(partial(read_sound, path, audio.rate))
        count = 1 if length is None else max(1, -(-held().values.size // length))
        for index in range(count):
            yield Entry(f"{path}[{index}]" if count > 1 else str(path), partial(_window, held, spec, length, index))


def _window(held: Callable[[], Sound], spec: InputSpec, length: int | None, index: int) -> dict[str, NDArray[Any]]:
    return window(held(), spec, length, index)


def _own(value: Any, name: str, label: str, specs: Sequence[InputSpec]) -> Any:
    """An array, a list of arrays for a sequence, or None."""
    spec = next((spec for spec in specs if spec.name == name), None)
    if spec is not None and spec.optional and value is None:
        return None
    if spec is not None and spec.sequence and isinstance(value, (list, tuple)):
        return [_own_array(each, name, label) for each in value]
    return _own_array(value, name, label)


def _own_array(value: Any, name: str, label: str) -> NDArray[Any]:
    """A copy, because a data loader may fill the same buffer again for its next sample."""
    try:
        return np.array(value)
    except Exception as error:  # whatever the conversion of a foreign type raises
        raise InputError(f"{label}: input {name!r} cannot be turned into an array: {error}") from error


def _path_entries(path: Path, specs: Sequence[InputSpec], shapes: Shapes | None) -> Iterator[Entry]:
    kind = path.suffix.lower()
    with readable(str(path)):  # a folder above it may be closed
        is_folder, is_there = path.is_dir(), path.exists()
    if is_folder:
        yield from _folder_entries(path, specs, shapes)
    elif not is_there:
        named = named_files(str(path), specs)
        if named is None:
            raise absent(path, "file or folder")
        yield Entry(str(path), partial(raw_arrays, named, specs, shapes))
    elif kind in READABLE and not path.is_file():  # a pipe would wait for ever
        raise InputError(f"{path}: is a pipe or a device, and inputs are read from files")
    elif kind == ".npz":
        yield Entry(str(path), partial(_read_npz, path))
    elif kind == ".npy":
        if len(specs) != 1:
            raise InputError(
                f"{path}: an .npy file holds one array, but the model takes {names_of(specs)}; give an .npz"
            )
        yield Entry(str(path), partial(_read_npy, path, specs[0].name))
    elif kind == ".json":
        yield from (Entry(label, partial(decoded, feed, label)) for label, feed in feeds_in(path))
    else:
        told = f"{path}: inputs are .npz, .npy or Polygraphy's .json files, or folders of these"
        raise InputError(not_wanted(path, "a file of inputs", told))


def _folder_entries(folder: Path, specs: Sequence[InputSpec], shapes: Shapes | None) -> Iterator[Entry]:
    """The readable files of a folder, "2" before "10"; else raw values named after the inputs, in it or in folders of
    it. Whatever else lies there is left alone."""
    with readable(str(folder)):
        inside = sorted((path for path in folder.iterdir() if not path.name.startswith(".")), key=by_number)
        files = [path for path in inside if path.suffix.lower() in READABLE and path.is_file()]
        folders = [] if files else [path for path in (folder, *inside) if path.is_dir() and raw_files(path, specs)]
    for file in files:
        yield from _path_entries(file, specs, shapes)
    for each in folders:
        yield Entry(str(each), partial(raw_arrays, raw_files(each, specs), specs, shapes))
    if not files and not folders:
        seen = {path.suffix.lower() for path in inside}
        way = next((f"; give images with --images {folder}" for each in (".png", ".jpg", ".jpeg") if each in seen), "")
        way = way or next((f"; give sound with --audio {folder}" for each in (".wav", ".flac") if each in seen), "")
        raise InputError(f"{folder}: there is no .npz, .npy or .json file in this folder{way}")


def _read_npz(path: Path) -> dict[str, Any]:
    with readable(str(path)):
        return dict(read_npz(path))


def _read_npy(path: Path, name: str) -> dict[str, Any]:
    with readable(str(path)), path.open("rb") as stream:
        return {name: np.lib.format.read_array(stream, allow_pickle=False)}
