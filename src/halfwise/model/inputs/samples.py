"""Representative inputs: read, checked against what the model declares, and split for search and validation."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from halfwise.core.archives import read_npz
from halfwise.core.contents import layout, tensors_in
from halfwise.core.errors import InputError
from halfwise.core.file_order import by_number
from halfwise.core.json_text import read_json
from halfwise.core.metrics import is_float
from halfwise.core.notes import Note, NoteKind
from halfwise.model.input_spec import InputSpec
from halfwise.model.inputs.checked import Arrays, checked, names_of, with_states
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.synthetic import USUAL, OpenSizes, synthesize, vary

__all__ = ["MOST", "Feed", "Samples", "content_of", "load_samples"]

Source = str | os.PathLike[str] | Mapping[str, Any]

MOST = 8
_SYNTHETIC = 4
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
    these) or feeds (mappings from input names to arrays), one or many. A sequence is a list of arrays, in a file the
    keys "name[0]", "name[1]", ...; an optional input may be left out. None makes inputs up, with integers from 0 to
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
    feeds = [checked(with_states(entry.read(), specs, states or ()), specs, entry.label) for entry in entries]
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
            yield _Entry(
                label, partial(dict, {name: _own(value, name, label, specs) for name, value in source.items()})
            )
        else:
            raise InputError(
                f"{label}: is of type {type(source).__name__}, not a path or a mapping from input names to arrays"
            )


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
            raise InputError(
                f"{path}: an .npy file holds one array, but the model takes {names_of(specs)}; give an .npz"
            )
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
    with _readable(str(path)):
        return dict(read_npz(path))


def _read_npy(path: Path, name: str) -> dict[str, Any]:
    with _readable(str(path)), path.open("rb") as stream:
        return {name: np.lib.format.read_array(stream, allow_pickle=False)}


def _read_polygraphy(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The feeds of a file that `polygraphy run --save-inputs` or `polygraphy.json.save_json` wrote, still encoded."""
    with _readable(str(path)):
        document = read_json(path)
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
    for name, held in feed.items():
        digest.update(f"{name} {layout(held)} ".encode())
        for array in tensors_in([held]):
            digest.update(f"{array.dtype} {array.shape} ".encode())
            digest.update(repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes())
    return digest.digest()


def _nonfinite_notes(feeds: Sequence[Arrays]) -> list[Note]:
    notes = []
    for name in feeds[0]:
        held = [[array for array in tensors_in([feed[name]]) if is_float(array.dtype)] for feed in feeds]
        if any(held):
            bad = sum(not all(np.isfinite(array).all() for array in arrays) for arrays in held)
            if bad:
                notes.append(Note.of(NoteKind.SAMPLES_NOT_FINITE, name, bad=bad, samples=len(feeds)))
    return notes
