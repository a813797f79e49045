"""What was found out about the weights of a large file is kept for the next run, in the user's folder for caches.

A file there stands for one of weights as it is now: its path, size, times and number, and the code that asks. It has
one line a fact, which tells by its sum whether it is whole: several runs may write at once, and a damaged line, as a
folder that cannot be written to, costs only time. HALFWISE_CACHE names another folder, or is 0: nothing is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import onnx_ir as ir

from halfwise.core.cache_folder import cache_folder
from halfwise.core.opened import is_own
from halfwise.core.own_code import code_identity

__all__ = ["fact_of_file", "fact_of_weight", "facts_of_weights", "keeps_facts"]

Stamp = tuple[object, ...]

_LEAST = 1 << 28  # bytes of a file: of a smaller one everything is found out in no time
_LARGE = 1 << 20  # bytes of a weight
_LONGEST = 1 << 18  # bytes of a fact
_MOST = 1 << 26  # bytes of a file of facts
_FILES = 50
_IN_ALL = 1 << 28  # bytes of all of them
_SETTLED_NS = 2 * 10**9  # a file that is younger may change again and keep its times


def fact_of_weight(tensor: ir.TensorProtocol, question: str, find: Callable[[], Any]) -> Any:
    """What `find` gives, which JSON can say, and which is not None."""
    return facts_of_weights([tensor], question, lambda _: [find()])[0]


def facts_of_weights(
    tensors: Sequence[ir.TensorProtocol], question: str, find: Callable[[Sequence[int]], Sequence[Any]]
) -> list[Any]:
    """The same of several: `find` is asked for all that are not known, by their numbers."""
    places = list(map(_place_of, tensors))
    found = [None if place is None else _recalled(place[0], f"{question} of {place[1]}") for place in places]
    missing = [number for number, known in enumerate(found) if known is None]
    for number, made in zip(missing, find(missing) if missing else (), strict=True):
        found[number] = made
        if (place := places[number]) is not None:
            _remember(place[0], f"{question} of {place[1]}", made)
    return found


def keeps_facts(tensor: ir.TensorProtocol) -> bool:
    """Whether what is found out about it need not be found out again."""
    return _place_of(tensor) is not None


def fact_of_file(file: Path, question: str, find: Callable[[], Any]) -> Any:
    """The same of a whole file."""
    stamp = _stamp(file)
    known = None if stamp is None else _recalled(stamp, question)
    if known is not None:
        return known
    found = find()
    if stamp is not None and _stamp(file) == stamp:
        _remember(stamp, question, found)
    return found


def _place_of(tensor: ir.TensorProtocol) -> tuple[Stamp, str] | None:
    """The file of a large weight as it is now, and where it stands there."""
    if not isinstance(tensor, ir.ExternalTensor) or tensor.nbytes < _LARGE:
        return None
    stamp = _stamp(Path(tensor.path))
    told = f"{tensor.offset} {tensor.nbytes} {tensor.dtype.name} {list(tensor.shape.numpy())}"
    return None if stamp is None else (stamp, told)


def _recalled(stamp: Stamp, question: str) -> Any:
    text = _known(stamp)[1].get(_digest(question))
    return None if text is None else json.loads(text)


def _remember(stamp: Stamp, question: str, found: Any) -> None:
    place, lines = _known(stamp)
    key, text = _digest(question), json.dumps(found)
    lines[key] = text
    _append(place, key, text)


def _stamp(file: Path) -> Stamp | None:
    """None where the file is small, or was changed just now."""
    try:
        seen = file.stat()
        changed = max(seen.st_mtime_ns, seen.st_ctime_ns)
        if seen.st_size < _LEAST or time.time_ns() - changed < _SETTLED_NS:
            return None
        return str(file.resolve()), seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, code_identity()
    except OSError:
        return None


@cache
def _known(stamp: Stamp) -> tuple[Path | None, dict[str, str]]:
    """The file of facts and its lines, read once."""
    lines: dict[str, str] = {}
    with suppress(OSError, RuntimeError):  # the last where there is no home
        folder = cache_folder("weights")
        if folder is None:
            return None, lines
        place = folder / f"{_digest(repr(stamp))}.facts"
        if not is_own(place):
            return None, lines
        if place.exists():
            for line in _content(place).decode("ascii", "replace").splitlines():
                key, told, text = (*line.split(" ", 2), "", "")[:3]
                if told == _digest(f"{key} {text}"):
                    lines[key] = text
            os.utime(place)  # those that were used last stay
        return place, lines
    return None, lines


def _content(place: Path) -> bytes:
    with place.open("rb") as file:
        return file.read(_MOST)


def _append(place: Path | None, key: str, text: str) -> None:
    line = f"\n{key} {_digest(f'{key} {text}')} {text}".encode()  # begins anew after one that was cut off
    if place is None or len(line) > _LONGEST:
        return
    with suppress(OSError):
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            _forget_the_oldest(place.parent)
        elif place.stat().st_size > _MOST:
            return
        with place.open("ab", buffering=0) as file:  # one call: lines of several runs do not mix
            file.write(line)


def _forget_the_oldest(folder: Path) -> None:
    files = sorted((each.stat().st_mtime_ns, each.stat().st_size, each) for each in folder.glob("*.facts"))
    left, size = len(files), sum(size for _, size, _ in files)
    for _, bytes_, each in files:
        if left < _FILES and size <= _IN_ALL:
            return
        each.unlink(missing_ok=True)
        left, size = left - 1, size - bytes_


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]
