"""Which errors say that memory is out: protobuf has words of its own for it."""

from __future__ import annotations

__all__ = ["out_of_memory"]

_PROTOBUF = {  # errors by name; messages are never too deep here, which it says of what it writes in the same words
    "DecodeError": "Arena alloc failed",
    "EncodeError": "Failed to serialize proto",
}


def out_of_memory(error: BaseException) -> bool:
    """Whether it is Python's own or protobuf's, which is not loaded for the question."""
    if type(error).__module__ != "google.protobuf.message":
        return isinstance(error, MemoryError)
    said = _PROTOBUF.get(type(error).__name__)
    return said is not None and said in str(error)
