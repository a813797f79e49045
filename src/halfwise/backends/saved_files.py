"""Outputs that something else computed and saved: .npz files, Polygraphy's and trtexec's JSON, trtexec's raw files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.archives import read_npz
from halfwise.core.errors import InputError
from halfwise.core.file_order import by_number
from halfwise.core.files.absent import absent
from halfwise.core.files.bindings import Binding, binding_of
from halfwise.core.files.identify import identify, not_wanted
from halfwise.core.files.kinds import FileKind
from halfwise.core.json_text import parse_json, read_text
from halfwise.core.metrics import is_number
from halfwise.model.inputs.polygraphy import outputs_in

__all__ = ["SavedSample", "bindings_sample", "holds_outputs", "saved_samples"]

Array = NDArray[Any]

_KINDS = (FileKind.NPZ, FileKind.POLYGRAPHY_OUTPUTS, FileKind.TRTEXEC_OUTPUTS)
_WORD = re.compile(r"(?<=[\[,\s])(-?)(nan|inf)(?=[\],\s])")  # as C++ prints what JSON has no number for


@dataclass(frozen=True)
class SavedSample:
    """The outputs of one sample; `label` says where they come from."""

    label: str
    load: Callable[[], dict[str, Array]]

    def read(self) -> dict[str, Array]:
        outputs = self.load()
        for name, array in outputs.items():
            if not is_number(array.dtype) and array.dtype.kind not in "US":
                raise InputError(f"{self.label}: the output {name!r} is {array.dtype}: no numbers and no text")
        return outputs


def holds_outputs(path: Path) -> bool:
    """Whether this is a file or a folder of saved outputs, and no model."""
    if path.is_dir() or path.suffix.lower() == ".npz":
        return True
    return path.suffix.lower() == ".json" and identify(path).kind in _KINDS


def saved_samples(path: Path) -> tuple[SavedSample, ...]:
    """One entry a sample, in order: "2" before "10"; nothing is read yet of .npz and raw files."""
    if not path.exists():
        raise absent(path)
    if path.is_dir():
        found = _in_folder(path)
        if not found:
            raise InputError(f"{path}: no .npz files with saved outputs in it, nor Polygraphy's or trtexec's")
        return found
    kind = identify(path).kind
    if path.suffix.lower() == ".npz":
        return (SavedSample(str(path), partial(_npz, path)),)
    if kind is FileKind.POLYGRAPHY_OUTPUTS:
        outputs = outputs_in(_json(path), str(path))
        return tuple(SavedSample(f"{path}[{i}]", partial(dict, each)) for i, each in enumerate(outputs))
    if kind is FileKind.TRTEXEC_OUTPUTS:
        return (SavedSample(str(path), partial(_exported, path)),)
    told = (
        f"{path}: saved outputs are .npz files, or what Polygraphy's --save-outputs or trtexec's --exportOutput wrote"
    )
    raise InputError(not_wanted(path, "a file of saved outputs", told))


def _in_folder(folder: Path) -> tuple[SavedSample, ...]:
    """Its .npz files; else its JSON files; else trtexec's raw files, in it or in one folder a sample."""
    inside = sorted(folder.iterdir(), key=by_number)
    for suffix in (".npz", ".json"):
        files = [path for path in inside if path.suffix.lower() == suffix and path.is_file()]
        if suffix == ".json":
            files = [path for path in files if identify(path).kind in _KINDS]
        if files:
            return tuple(sample for file in files for sample in saved_samples(file))
    runs = [_outputs_in(each) for each in (folder, *inside) if each.is_dir()]
    return tuple(bindings_sample(run) for run in runs if run)


def _npz(path: Path) -> dict[str, Array]:
    try:
        return read_npz(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception:
        raise InputError(f"{path} cannot be read as saved outputs: it is damaged, or no .npz file") from None


def _json(path: Path) -> Any:
    try:
        text = read_text(path)
    except ValueError as error:
        raise InputError(f"{path}: is damaged, or cut off: {error}") from None
    with suppress(ValueError):
        return parse_json(text)
    words = {"nan": "NaN", "inf": "Infinity"}
    try:
        return parse_json(_WORD.sub(lambda word: word[1].replace("-", "-" * (word[2] == "inf")) + words[word[2]], text))
    except ValueError as error:
        raise InputError(f"{path}: is damaged, or cut off: {error}") from None


def _exported(path: Path) -> dict[str, Array]:
    """trtexec prints six digits of each value; the type is not in the file."""
    found: dict[str, Array] = {}
    for entry in _json(path):
        try:
            shape = tuple(int(size) for size in str(entry["dimensions"]).split("x") if size)
            values: Sequence[Any] = entry["values"]
            whole = all(isinstance(value, int) for value in values)
            array = np.array(values, np.int64 if whole else np.float32)
            found[str(entry["name"])] = array.reshape(shape)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: is no output of trtexec --exportOutput: {error}") from None
    return found


def bindings_sample(bindings: Sequence[Binding]) -> SavedSample:
    """The outputs of one run, each in a file of its own."""
    return SavedSample(str(bindings[0].path.parent), lambda: {each.name: each.read() for each in bindings})


def _outputs_in(folder: Path) -> list[Binding]:
    found = (binding_of(file) for file in sorted(folder.iterdir()))
    return [binding for binding in found if binding is not None and binding.is_output]
