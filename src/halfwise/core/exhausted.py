"""Which errors say that memory is out, or the disk is full: libraries have words of their own for it."""

from __future__ import annotations

import errno

from halfwise.core.errors import MissingBackend

__all__ = ["FULL", "no_temporary_room", "not_loaded", "out_of_memory", "ran_short"]

FULL = (errno.ENOSPC, errno.EDQUOT)  # of a disk, or of what one user may have there

_PROTOBUF = {  # errors by name; messages are never too deep here, which it says of what it writes in the same words
    "DecodeError": "Arena alloc failed",
    "EncodeError": "Failed to serialize proto",
}
_SAID = (
    "MemoryError",
    "std::bad_alloc",
    "bad allocation",
    "OutOfMemory",
    "Cannot allocate memory",
    "Resource temporarily unavailable",  # a thread, for whose stack there is no memory, or which is one too many
    "Failed to allocate memory",
    "failed to map segment",
    "No space left on device",
    "Disk quota exceeded",
)


def out_of_memory(error: BaseException) -> bool:
    """Whether it is Python's own, the system's, or protobuf's, which is not loaded for the question."""
    if type(error).__module__ != "google.protobuf.message":
        return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    said = _PROTOBUF.get(type(error).__name__)
    return said is not None and said in str(error)


def ran_short(told: str) -> bool:
    """Whether a library or a child tells of a lack of memory or of room on the disk.

    It is no answer about the model that it was given.
    """
    return any(words in told for words in _SAID)


def not_loaded(error: ImportError | OSError, install: str) -> Exception:
    """What to raise where an optional library was not imported: `install` says what to do where it is not there."""
    return MemoryError(str(error)) if ran_short(str(error)) else MissingBackend(install)


def no_temporary_room(why: object) -> str:
    """`why`: what the system says, or how much is lacking."""
    from tempfile import gettempdir

    return f"no room for a temporary file in {gettempdir()} (TMPDIR): {why}; make room, or set TMPDIR to another folder"
