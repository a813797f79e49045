"""The SHA-256 of weights in files of their own; that of much data is one of pieces, which several threads make."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from pathlib import Path

from halfwise.core.cores import beside, cores
from halfwise.model.weight_facts import fact_of_file

__all__ = ["DataHash", "file_sha256", "is_data"]

_WHOLE = 1 << 30  # bytes up to which it is that of all files, one behind the other
_PIECE = 1 << 26
_MARK = "64MiB:"  # of the SHA-256 of the SHA-256s of pieces, each in one file
_READ = 1 << 24  # bytes that are read at a time: each such piece waits for the interpreter


class DataHash:
    """That of a model's files, begun when it is first asked for: it goes on beside other work. What is made of the
    model shares it; in another process it begins anew."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        self._files = files

    def __reduce__(self) -> tuple[type[DataHash], tuple[tuple[Path, ...]]]:
        return DataHash, (self._files,)

    @cached_property
    def begun(self) -> Future[str]:
        return beside(lambda: _data_sha256(self._files))


def file_sha256(file: Path) -> str:
    """That of a large model's own file is kept for the next run."""
    return str(fact_of_file(file, "SHA-256 of the whole", lambda: _of_all([file])))


def _data_sha256(files: Sequence[Path]) -> str:
    """That of one file is kept for the next run."""
    if len(files) == 1:
        return str(fact_of_file(files[0], "SHA-256", lambda: _sha256(files)))
    return _sha256(files)


def is_data(sha256: str, known: str, files: Sequence[Path]) -> bool:
    """Whether files whose hash is known have this one, which may be in the other form."""
    other = bool(sha256) and known.startswith(_MARK) and not sha256.startswith(_MARK)
    return sha256 == known or (other and sha256 == _of_all(files))


def _sha256(files: Sequence[Path]) -> str:
    sizes = [file.stat().st_size for file in files]
    if sum(sizes) <= _WHOLE:
        return _of_all(files)
    pieces = [(file, start) for file, size in zip(files, sizes, strict=True) for start in range(0, size, _PIECE)]
    threads = max(1, cores() // 2)  # the rest is for the work beside it
    shares = [beside(partial(_of_pieces, pieces[number::threads])) for number in range(threads)]
    digests = [share.result() for share in shares]
    whole = b"".join(digests[number % threads][number // threads] for number in range(len(pieces)))
    return _MARK + hashlib.sha256(whole).hexdigest()


def _of_pieces(pieces: Iterable[tuple[Path, int]]) -> list[bytes]:
    room, found = memoryview(bytearray(_READ)), []
    for file, start in pieces:
        digest = hashlib.sha256()
        with file.open("rb", buffering=0) as stream:
            stream.seek(start)
            left = _PIECE
            while left and (count := stream.readinto(room[: min(left, _READ)])):
                digest.update(room[:count])
                left -= count
        found.append(digest.digest())
    return found


def _of_all(files: Iterable[Path]) -> str:
    digest, room = hashlib.sha256(), memoryview(bytearray(_READ))
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while count := stream.readinto(room):
                digest.update(room[:count])
    return digest.hexdigest()
