"""The store as a data frame."""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from halfwise.core.errors import InputError, MissingBackend
from halfwise.fleet.store import STORE, Store

__all__ = ["load"]


def load(results: str | Path, library: Literal["pandas", "polars"] | None = None) -> Any:
    """Every result of every run, one a row: a pandas or polars data frame, whichever is installed.

    `results` is the folder of a fleet's results or the store in it.
    """
    if library not in (None, "pandas", "polars"):
        raise InputError(f"library={library!r}: pandas or polars")
    path = Path(results)
    frames = _frames(library)
    with Store(path.parent if path.name == STORE else path, write=False) as store:
        began = {run: start for run, start, _, _ in store.runs()}
        rows = [{"run": run, "run_started": began[run], **_row(result)} for run, result in store.history()]
    return frames.DataFrame(rows)


def _row(result: Any) -> dict[str, Any]:
    row = asdict(result)
    row["culprits"] = "; ".join(f"{count} x {what}" for what, count in result.culprits)
    return row


def _frames(library: str | None) -> Any:
    for name in (library,) if library else ("pandas", "polars"):
        try:
            return import_module(name)
        except ImportError:
            continue
    raise MissingBackend(f"a data frame needs {library or 'pandas or polars'}: pip install {library or 'pandas'}")
