"""Where a file lies as seen from a folder, so that both can move together."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["seen_from"]


def seen_from(folder: Path, path: Path) -> Path:
    """Absolute where they share no root."""
    try:
        return Path(os.path.relpath(path, folder))
    except ValueError:  # two drives of Windows
        return path.absolute()
