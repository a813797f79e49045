"""Where a file really is; a link that leads to itself is no error, as it is to Python's own `resolve` before 3.13."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["real_path"]


def real_path(path: Path) -> Path:
    """Links are followed as far as they lead."""
    return Path(os.path.realpath(path))
