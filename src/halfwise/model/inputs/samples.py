"""Representative inputs: read, checked against what the model declares, and split for search and validation."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.file_order import by_number
from halfwise.core.formats import Format
from halfwise.core.metrics import is_float, is_number
from halfwise.core.notes import Note, NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.synthetic import USUAL, OpenSizes, synthesize, vary

__all__ = ["MOST", "Feed", "Samples", "content_of", "load_samples"]

Arrays = Mapping[str, NDArray[Any]]
Source = str | os.PathLike[str] | Mapping[str, Any]

MOST = 8
_SYNTHETIC = 4
_RAW_BF16 = np.dtype("V2")
_ALL = 1 << 30
_READABLE = (".npz", ".npy", ".json")
_POLYGRAPHY_CLASS = "polygraphy_class"  # the key under which Polygraphy's JSON says what an object is


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs to search with and inputs that the search never sees.

    `origin`: "given"; "derived": the validation inputs are variants of the only one given; "synthetic": all made up.
    `notes` are for the user.
    """

    search: tuple[Feed, ...]
    validation: tuple[Feed, ...]
    origin: Literal["given", "derived", "synthetic"]
    notes: tuple[Note, ...] = ()

    @property
    def all(self) -> tuple[Feed, ...]:
        return (*self.search, *self.validation)


@dataclass(frozen=True)
class _Entry:
    """One sample that is not read yet; `label` says where it comes from."""

    label: str
    read: Callable[[], Mapping[str, Any]]


def load_samples(
    specs: Sequence[InputSpec],
    sources: Source | Iterable[Source] | None,
    *,
    seed: int = 0,
    most: int = MOST,
    int_bounds: Mapping[str, int] | None = None,
    dims: Mapping[str, int] | None = None,
    sizes: OpenSizes = USUAL,
    states: Collection[str] | None = None,
) -> Samples:
    """Read, check and split the inputs of a model.

    `sources` are paths (.npz with input names as keys, .npy for a model with one input, Polygraphy's .json, folders of
    these) or feeds (mappings from input names to arrays), one or many; None makes inputs up, with integers from 0 to
    `int_bounds` (by input name, else 1) and symbolic dimensions from `dims` (else 1 for a
    batch, and as `sizes` tells for others).
    At most `most` samples each are kept to search and to validate, evenly picked. The same sources and seed always
    give the same samples. Arrays come out in the declared type. With `states` the samples are a stream: all are kept,
    and a state that a sample lacks is zero.
    """
    rng = np.random.default_rng(seed)
    if not specs:
        return Samples((Feed(0, {}),), (Feed(1, {}),), "given", (Note.of(NoteKind.NO_INPUTS),))
    if sources is None:
        return _synthetic(specs, rng, int_bounds or {}, dims or {}, sizes)

    entries, given = _picked(_entries(sources, specs), 2 * most if states is None else _ALL)
    if not entries:
        raise InputError("no input samples were given; give files with --inputs, or leave it out for synthetic ones")
    feeds = [_checked(_with_states(entry.read(), specs, states or ()), specs, entry.label) for entry in entries]
    notes = [Note.of(NoteKind.SAMPLES_THINNED, used=len(feeds), given=given)] if given > len(feeds) else []
    feeds, repeats = _distinct(feeds) if states is None else (feeds, 0)
    if repeats:
        notes.append(Note.of(NoteKind.SAMPLES_REPEATED, count=repeats))
    notes += _nonfinite_notes(feeds)
    if len(feeds) == 1:
        return _derived(feeds[0], notes, rng)
    return Samples(*_numbered(feeds[0::2], feeds[1::2]), "given", tuple(notes))


def _synthetic(
    specs: Sequence[InputSpec],
    rng: np.random.Generator,
    int_bounds: Mapping[str, int],
    dims: Mapping[str, int],
    sizes: OpenSizes,
) -> Samples:
    made = synthesize(specs, 2 * _SYNTHETIC, rng=rng, int_bounds=int_bounds, dims=dims, sizes=sizes)
    return Samples(*_numbered(made[:_SYNTHETIC], made[_SYNTHETIC:]), "synthetic", (Note.of(NoteKind.SYNTHETIC),))


def _derived(only: Arrays, notes: Sequence[Note], rng: np.random.Generator) -> Samples:
    """One sample cannot be split, so that the held-out ones must come from it."""
    variants = (vary(only, rng=rng), vary(only, rng=rng))
    if content_of(variants[0]) == content_of(only):
        feed = Feed(0, only)
        return Samples((feed,), (feed,), "derived", (*notes, Note.of(NoteKind.ONE_CONSTANT_SAMPLE)))
    return Samples(*_numbered((only,), variants), "derived", (*notes, Note.of(NoteKind.ONE_SAMPLE)))


def _numbered(search: Sequence[Arrays], validation: Sequence[Arrays]) -> tuple[tuple[Feed, ...], tuple[Feed, ...]]:
    feeds = [Feed(index, arrays) for index, arrays in enumerate((*search, *validation))]
    return tuple(feeds[: len(search)]), tuple(feeds[len(search) :])


# -- reading ----------------------------------------------------------------------------------------------------------


def _entries(sources: Source | Iterable[Source], specs: Sequence[InputSpec]) -> Iterator[_Entry]:
    if isinstance(sources, (str, os.PathLike, Mapping)):
        sources = [sources]
    if not isinstance(sources, Iterable):
        raise InputError(f"inputs are of type {type(sources).__name__}: give paths, or mappings from names to arrays")
    for index, source in enumerate(sources):
        label = f"inputs[{index}]"
        if isinstance(source, (str, os.PathLike)):
            yield from _path_entries(Path(source), specs)
        elif isinstance(source, Mapping):
            yield _Entry(label, partial(dict, {name: _own_array(value, name, label) for name, value in source.items()}))
        else:
            raise InputError(
                f"{label}: is of type {type(source).__name__}, not a path or a mapping from input names to arrays"
            )


def _own_array(value: Any, name: str, label: str) -> NDArray[Any]:
    """A copy, because a data loader may fill the same buffer again for its next sample."""
    try:
        return np.array(value)
    except Exception as error:  # whatever the conversion of a foreign type raises
        raise InputError(f"{label}: input {name!r} cannot be turned into an array: {error}") from error


def _path_entries(path: Path, specs: Sequence[InputSpec]) -> Iterator[_Entry]:
    kind = path.suffix.lower()
    with _readable(str(path)):  # a folder above it may be closed
        is_folder, is_there = path.is_dir(), path.exists()
    if is_folder:
        yield from (entry for file in _files_in(path) for entry in _path_entries(file, specs))
    elif not is_there:
        raise InputError(f"{path}: there is no such file or folder")
    elif kind == ".npz":
        yield _Entry(str(path), partial(_read_npz, path))
    elif kind == ".npy":
        if len(specs) != 1:
            raise InputError(f"{path}: an .npy file holds one array, but the model takes {_names(specs)}; give an .npz")
        yield _Entry(str(path), partial(_read_npy, path, specs[0].name))
    elif kind == ".json":
        yield from (_Entry(label, partial(_decoded, feed, label)) for label, feed in _read_polygraphy(path))
    else:
        raise InputError(f"{path}: inputs are .npz, .npy or Polygraphy's .json files, or folders of these")


def _files_in(folder: Path) -> list[Path]:
    """The readable files of a folder, "2" before "10"; whatever else lies there is left alone."""
    with _readable(str(folder)):
        files = [file for file in folder.iterdir() if file.suffix.lower() in _READABLE and file.is_file()]
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        raise InputError(f"{folder}: there is no .npz, .npy or .json file in this folder")
    return sorted(files, key=by_number)


@contextmanager
def _readable(label: str) -> Iterator[None]:
    """Turn whatever a damaged or hostile file makes a reader raise into one line."""
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{label}: cannot be read: {error.strerror or error}") from error
    except Exception as error:
        if "Object arrays" in str(error):
            raise InputError(f"{label}: holds Python objects, which are never loaded; save plain arrays") from None
        raise InputError(f"{label}: is damaged, or not what its name says: {error or type(error).__name__}") from error


def _read_npz(path: Path) -> dict[str, Any]:
    with _readable(str(path)), zipfile.ZipFile(path):  # checked first: NumPy takes what is no archive for a pickle
        archive = np.load(path, allow_pickle=False)
        with archive:
            return {name: archive[name] for name in archive.files}


def _read_npy(path: Path, name: str) -> dict[str, Any]:
    with _readable(str(path)), path.open("rb") as stream:
        return {name: np.lib.format.read_array(stream, allow_pickle=False)}


def _read_polygraphy(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The feeds of a file that `polygraphy run --save-inputs` or `polygraphy.json.save_json` wrote, still encoded."""
    with _readable(str(path)):
        document = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(document, dict) and document.get(_POLYGRAPHY_CLASS) == "RunResults":
        raise InputError(f"{path}: holds the outputs of a Polygraphy run, not inputs; save inputs with --save-inputs")
    feeds = document if isinstance(document, list) else [document]
    for index, feed in enumerate(feeds):
        if not isinstance(feed, dict) or _POLYGRAPHY_CLASS in feed:
            raise InputError(f"{path}: is not a list of Polygraphy's feeds (mappings from input names to arrays)")
        yield (f"{path}[{index}]" if isinstance(document, list) else str(path)), feed


def _decoded(feed: Mapping[str, Any], label: str) -> dict[str, Any]:
    return {name: _decoded_array(node, f"{label}: input {name!r}") for name, node in feed.items()}


def _decoded_array(node: Any, label: str) -> NDArray[Any]:
    kind = node.get(_POLYGRAPHY_CLASS) if isinstance(node, dict) else None
    if kind == "Tensor":
        raise InputError(f"{label} is a pickled torch tensor, which is never loaded; save it as a NumPy array")
    if kind in ("LazyArray", "LazyNumpyArray"):
        return _decoded_array(node.get("values"), label)
    if kind != "ndarray":
        raise InputError(f"{label} is not an array in Polygraphy's encoding")
    with _readable(label):
        stored = io.BytesIO(base64.b64decode(node["array"], validate=True))
        return np.lib.format.read_array(stored, allow_pickle=False)


# -- checking ---------------------------------------------------------------------------------------------------------


def _checked(feed: Mapping[str, Any], specs: Sequence[InputSpec], label: str) -> Arrays:
    """The feed in the declared types, or one line on what does not fit the model."""
    names = [spec.name for spec in specs]
    if extra := [name for name in feed if name not in names]:
        raise InputError(f"{label}: holds {_quoted(extra)}, but the model takes {_names(specs)}")
    if missing := [name for name in names if name not in feed]:
        raise InputError(f"{label}: lacks {_quoted(missing)}; the model takes {_names(specs)}")
    symbols: dict[str, tuple[int, str]] = {}
    checked = {}
    for spec in specs:
        array = feed[spec.name]
        if not isinstance(array, np.ndarray):
            raise InputError(f"{label}: {spec.name!r} in it is not an array")
        _check_shape(array.shape, spec, symbols, label)
        checked[spec.name] = _in_type(array, spec, label)
    return checked


def _with_states(feed: Mapping[str, Any], specs: Sequence[InputSpec], states: Collection[str]) -> Mapping[str, Any]:
    """A stream starts from a state of zeros where it says nothing else."""
    lacking = [spec for spec in specs if spec.name in states and spec.name not in feed and spec.shape is not None]
    sizes = {spec: [size for size in spec.shape or () if isinstance(size, int)] for spec in lacking}
    known = [spec for spec in lacking if len(sizes[spec]) == len(spec.shape or ())]
    return {**feed, **{spec.name: np.zeros(sizes[spec], spec.dtype) for spec in known}}


def _check_shape(shape: tuple[int, ...], spec: InputSpec, symbols: dict[str, tuple[int, str]], label: str) -> None:
    if spec.shape is None:
        return
    if len(shape) != len(spec.shape) or any(
        isinstance(declared, int) and declared != size for declared, size in zip(spec.shape, shape, strict=True)
    ):
        declared_shape = f"({', '.join('?' if dim is None else str(dim) for dim in spec.shape)})"
        raise InputError(f"{label}: input {spec.name!r} has shape {shape}, the model takes {declared_shape}")
    for declared, size in zip(spec.shape, shape, strict=True):
        if isinstance(declared, str):
            first, where = symbols.setdefault(declared, (size, spec.name))
            if first != size:
                raise InputError(
                    f"{label}: dimension {declared!r} is {first} in input {where!r} and {size} in input {spec.name!r}"
                )


def _in_type(array: NDArray[Any], spec: InputSpec, label: str) -> NDArray[Any]:
    if array.dtype == _RAW_BF16 and spec.dtype.kind not in "OUS":  # as NumPy reads back what it wrote of BF16
        array = array.view(Format.BF16.dtype)
    if array.dtype == spec.dtype and array.dtype.kind != "O":
        return np.asarray(array, order="C")
    if spec.dtype.kind in "OUS":
        if array.dtype.kind == "U" or (array.dtype.kind == "O" and all(isinstance(item, str) for item in array.flat)):
            return array.astype(object)
        raise InputError(f"{label}: input {spec.name!r} is {array.dtype}, the model takes text")
    cast = _cast(array, spec.dtype) if is_number(array.dtype) and is_number(spec.dtype) else None
    if cast is None:
        raise InputError(
            f"{label}: input {spec.name!r} is {array.dtype}, with values that the model's {spec.dtype} cannot hold"
        )
    return np.asarray(cast, order="C")


def _cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The array in another numeric type, or None where that changes values. Floats are rounded to the declared float
    type, as there is no other way to feed them, but may not become infinite."""
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
        if is_float(array.dtype) and is_float(dtype):
            return None if np.any(np.isfinite(array) & ~np.isfinite(cast)) else cast
        if is_float(array.dtype) or is_float(dtype):
            as_float = (array if is_float(array.dtype) else cast).astype(np.float64)
            if not np.all(np.abs(as_float) < 2.0**63):  # beyond, a cast to an integer is not defined
                return None
            back = cast.astype(np.float64) if is_float(array.dtype) else as_float.astype(array.dtype)
            return cast if np.array_equal(back, array) else None
        same = np.array_equal(cast.astype(array.dtype), array) and np.array_equal(cast < 0, array < 0)
        return cast if same else None


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _names(specs: Sequence[InputSpec]) -> str:
    return _quoted(spec.name for spec in specs)


# -- choosing ---------------------------------------------------------------------------------------------------------


def _picked(entries: Iterable[_Entry], most: int) -> tuple[list[_Entry], int]:
    """At most `most` entries, evenly picked, and how many there were; never more than twice as many are held."""
    kept: list[_Entry] = []
    stride = 1
    count = 0
    for entry in entries:
        if count % stride == 0:
            kept.append(entry)
        count += 1
        if len(kept) > 2 * most:
            kept = kept[::2]
            stride *= 2
    if len(kept) > most:
        kept = [kept[index * len(kept) // most] for index in range(most)]
    return kept, count


def _distinct(feeds: Sequence[Arrays]) -> tuple[list[Arrays], int]:
    """The feeds without repeats: one that the search saw may not be held out."""
    distinct = list({content_of(feed): feed for feed in reversed(feeds)}.values())[::-1]
    return distinct, len(feeds) - len(distinct)


def content_of(feed: Arrays) -> bytes:
    """A digest of a sample: the same for the same arrays, wherever they come from."""
    digest = hashlib.sha256()
    for name, array in feed.items():
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
    return digest.digest()


def _nonfinite_notes(feeds: Sequence[Arrays]) -> list[Note]:
    notes = []
    for name, first in feeds[0].items():
        if is_float(first.dtype):
            bad = sum(not np.isfinite(feed[name]).all() for feed in feeds)
            if bad:
                notes.append(Note.of(NoteKind.SAMPLES_NOT_FINITE, name, bad=bad, samples=len(feeds)))
    return notes
