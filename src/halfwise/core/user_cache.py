"""The user's folder for what can be made again. HALFWISE_CACHE names another folder, or is 0: nothing is kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["SETTING", "cache_folder", "forget_the_oldest"]

SETTING = "HALFWISE_CACHE"


def cache_folder(name: str) -> Path | None:
    """One of its folders, which may not be there yet; None where nothing shall be kept. RuntimeError without a home."""
    told = os.environ.get(SETTING)
    if told:
        return None if told == "0" else Path(told).expanduser().absolute() / name
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "halfwise" / name


def forget_the_oldest(folder: Path, pattern: str, files: int, most_bytes: int) -> None:
    """Until fewer files of that pattern are left, and no more bytes."""
    known = sorted((each.stat().st_mtime_ns, each.stat().st_size, each) for each in folder.glob(pattern))
    left, size = len(known), sum(size for _, size, _ in known)
    for _, bytes_, each in known:
        if left < files and size <= most_bytes:
            return
        each.unlink(missing_ok=True)
        left, size = left - 1, size - bytes_
