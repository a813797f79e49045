"""The user's folder for what can be made again. HALFWISE_CACHE names another folder, or is 0: nothing is kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["SETTING", "cache_folder"]

SETTING = "HALFWISE_CACHE"


def cache_folder(name: str) -> Path | None:
    """One part of it; None where nothing shall be kept, or where there is no home."""
    told = os.environ.get(SETTING)
    if told == "0":
        return None
    try:
        if told:
            return Path(told).expanduser().absolute() / name
        if sys.platform == "win32":
            base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
        elif sys.platform == "darwin":
            base = "~/Library/Caches"
        else:
            base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(base).expanduser() / "halfwise" / name
    except RuntimeError:
        return None
