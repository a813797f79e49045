"""Sorts what a user has in hand: every file is told by its content, folders are opened, and each kind has its list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfwise.core.errors import InputError
from halfwise.core.file_order import by_number
from halfwise.core.files.absent import absent
from halfwise.core.files.identify import Identified, identify
from halfwise.core.files.kinds import FileKind
from halfwise.core.wording import counted
from halfwise.model.inputs.audio import Audio
from halfwise.model.inputs.images import Images

__all__ = ["INPUTS", "Material", "gather"]

INPUTS = (FileKind.NPZ, FileKind.NPY, FileKind.POLYGRAPHY_INPUTS)
RATE = 16_000  # of sound, where nothing states one
_MOST_FILES = 2_000
_DEEPEST = 3


@dataclass(frozen=True)
class Material:
    """The files, in the order given; a folder of samples counts as one."""

    files: tuple[Identified, ...]
    samples: tuple[Path, ...]  # files and folders of inputs

    def of(self, *kinds: FileKind) -> tuple[Path, ...]:
        return tuple(each.path for each in self.files if each.kind in kinds)

    def folders_of(self, kind: FileKind) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(path.parent for path in self.of(kind)))

    @property
    def inputs(self) -> list[Any]:
        """What a model can be run on: the samples, else images, else sound; as their options say it by default."""
        if self.samples:
            return list(self.samples)
        if images := self.folders_of(FileKind.IMAGE):
            return [Images(images[0])]
        return [Audio(folder, RATE) for folder in self.folders_of(FileKind.AUDIO)[:1]]

    @property
    def options(self) -> list[str]:
        """The same on a command line."""
        words: list[str] = []
        for each in self.inputs:
            option = {Images: "--images", Audio: "--audio"}.get(type(each), "--inputs")
            words += [option, str(getattr(each, "folder", each))]
        return words


def gather(sources: Iterable[Path]) -> Material:
    """Look at every file; what was named and is not there or cannot be read is refused."""
    files: list[Identified] = []
    samples: list[Path] = []
    for source in sources:
        for found in _looked(source, 0):
            if found.kind in (FileKind.SAMPLES, *INPUTS):
                samples.append(found.path)
            files.append(found)
    if not files:
        raise InputError("there is no file in what was given; name a model, a build log, an engine's layer list, ...")
    return Material(tuple(dict.fromkeys(files)), tuple(dict.fromkeys(samples)))


def _looked(path: Path, depth: int) -> Iterator[Identified]:
    try:
        found = identify(path)
        inside = _inside(path) if found.kind is FileKind.FOLDER else ()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if found.kind is FileKind.MISSING and not depth:  # in a folder it is a link whose file is gone
        raise absent(path, "file or folder")
    if found.kind is not FileKind.FOLDER:
        yield found
        return
    kinds = {identify(each).kind for each in inside if not each.is_dir()}
    if kinds and kinds <= set(INPUTS) and not any(each.is_dir() for each in inside):
        yield Identified(path, FileKind.SAMPLES, counted(len(inside), "file"))
        return
    if depth < _DEEPEST:
        for each in inside:
            yield from _looked(each, depth + 1)


def _inside(folder: Path) -> Sequence[Path]:
    found = [path for path in folder.iterdir() if not path.name.startswith((".", "__"))]
    if len(found) > _MOST_FILES:
        raise InputError(f"{folder} holds {len(found)} files: name those that matter")
    return sorted(found, key=by_number)
