"""Finds where the records of a PyTorch archive lie: a zip file whose records are stored as they are."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

__all__ = ["records_of"]

_LOCAL_HEADER = 30  # bytes, before the name and the extra field


def records_of(path: Path) -> dict[int, int]:
    """Each record's first byte and length; nothing where the file is no such archive, or compresses a record."""
    if not zipfile.is_zipfile(path):
        return {}
    found: dict[int, int] = {}
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            for record in archive.infolist():
                if record.compress_type != zipfile.ZIP_STORED or record.file_size != record.compress_size:
                    return {}
                if record.filename.endswith("/byteorder") and archive.read(record)[:6] != b"little":
                    return {}
                file.seek(record.header_offset)
                header = file.read(_LOCAL_HEADER)
                name, extra = struct.unpack("<HH", header[26:30])
                found[record.header_offset + _LOCAL_HEADER + name + extra] = record.file_size
    except (zipfile.BadZipFile, struct.error, ValueError, RuntimeError, NotImplementedError):
        return {}
    return found
