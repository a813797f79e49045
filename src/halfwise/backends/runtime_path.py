"""A model's path for ONNX Runtime, which takes Unicode text only; a file's name may hold any bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["named", "speakable", "with_data_in"]

_FOLDER = "session.model_external_initializers_file_folder_path"


def speakable(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def named(model: Path) -> str | bytes:
    """The path, or the content of the file where the path cannot be said."""
    return str(model) if speakable(model) else model.read_bytes()


def with_data_in(settings: Any, folder: Path) -> None:
    """A model that is given as bytes has its external data there, where the folder can be said."""
    if speakable(folder):
        settings.add_session_config_entry(_FOLDER, str(folder))
