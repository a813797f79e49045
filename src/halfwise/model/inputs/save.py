"""Samples as files: one .npz file each, named by its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.whole_files import WholeFiles

__all__ = ["save_samples"]


def save_samples(files: WholeFiles, folder: Path, samples: Sequence[Mapping[str, NDArray[Any]]]) -> None:
    """Write them as part of a batch; .npz files of before go, since every one in the folder would count as a sample."""
    files.folder(folder)
    for old in folder.glob("*.npz"):
        files.drop(old)
    for number, arrays in enumerate(samples):
        np.savez(files.place(folder / f"{number}.npz"), **_named(arrays))  # type: ignore[arg-type]


def _named(sample: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Each array of a sequence by its place; what is left out of the optional inputs is left out."""
    lists = {name: held for name, held in sample.items() if isinstance(held, list)}
    plain = {name: held for name, held in sample.items() if name not in lists and held is not None}
    return plain | {f"{name}[{place}]": each for name, held in lists.items() for place, each in enumerate(held)}
