"""What templates were compiled to, kept for this process and in the user's folder for caches for the next one.

Compiling takes most of the time of a small page. What is kept is code: it is read only where it belongs to the user,
nobody else may write to it or to its folder, and its sum is right.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import CodeType

import jinja2
from jinja2.bccache import Bucket, BytecodeCache

from halfwise.core.own_code import code_identity
from halfwise.core.user_cache import cache_folder, forget_the_oldest

__all__ = ["CompiledTemplates"]

_FILES = 100
_IN_ALL = 1 << 24  # bytes of all of them
_MOST = 1 << 20  # bytes of one
_SUM = hashlib.sha256().digest_size
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class CompiledTemplates(BytecodeCache):
    """By name and content of a template, and by all that compiles it."""

    def __init__(self) -> None:
        self._code: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        key = bucket.key, bucket.checksum
        if key not in self._code:
            self._code[key] = _kept(_place(bucket))
        bucket.code = self._code[key]

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._code[bucket.key, bucket.checksum] = bucket.code
        place = _place(bucket)
        if place is not None and bucket.code is not None:
            with suppress(OSError):
                _keep(place, marshal.dumps(bucket.code))


def _place(bucket: Bucket) -> Path | None:
    try:
        folder = cache_folder("templates")
    except RuntimeError:  # without a home
        return None
    made_by = f"{sys.version} {jinja2.__version__} {code_identity()}"
    name = hashlib.sha256(f"{bucket.key} {bucket.checksum} {made_by}".encode()).hexdigest()[:32]
    return None if folder is None else folder / f"{name}.code"


def _kept(place: Path | None) -> CodeType | None:
    with suppress(OSError, ValueError, EOFError, TypeError):
        if place is not None and _is_own(place.parent.stat()):
            with place.open("rb") as file:
                known = file.read(_MOST) if _is_own(os.fstat(file.fileno())) else b""
            if known and hashlib.sha256(known[_SUM:]).digest() == known[:_SUM]:
                found = marshal.loads(known[_SUM:])
                return found if isinstance(found, CodeType) else None
    return None


def _is_own(found: os.stat_result) -> bool:
    if not hasattr(os, "getuid"):  # Windows gives each user a folder that others cannot write to
        return True
    return found.st_uid == os.getuid() and not found.st_mode & _OTHERS


def _keep(place: Path, code: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    forget_the_oldest(place.parent, "*.code", _FILES, _IN_ALL)
    number, part = tempfile.mkstemp(dir=place.parent)  # which nobody else may read or write
    try:
        with os.fdopen(number, "wb") as file:
            file.write(hashlib.sha256(code).digest() + code)
        Path(part).replace(place)
    except OSError:
        Path(part).unlink()
        raise
