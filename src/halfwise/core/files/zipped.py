"""What a zip archive is, by the names of its entries: nothing in it is unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path

from halfwise.core.files.kinds import FileKind

__all__ = ["zip_kind"]


def zip_kind(path: Path) -> tuple[FileKind, str]:
    """The kind, and the ONNX model in it where there is one."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return FileKind.CUT_OFF, ""
    last = {name.rpartition("/")[2] for name in names}
    if names and all(name.endswith(".npy") for name in names):
        return FileKind.NPZ, ""
    if "data.pkl" in last:
        code = "constants.pkl" in last or any("/code/" in f"/{name}" for name in names)
        return (FileKind.TORCHSCRIPT if code else FileKind.CHECKPOINT), ""
    exported = {"serialized_exported_program.json", "archive_format", "serialized_state_dict.pt"}
    if exported & last:
        return FileKind.TORCH_EXPORT, ""
    if "model.weights.h5" in last:
        return FileKind.KERAS, ""
    models = [name for name in names if name.lower().endswith(".onnx")]
    return (FileKind.ZIPPED_MODEL, models[0]) if models else (FileKind.ARCHIVE, "zip")
