"""Reads the JSON that Polygraphy writes: inputs that were saved, and the outputs of runs."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.json_text import read_json
from halfwise.model.inputs.readable import readable

__all__ = ["decoded", "feeds_in", "outputs_in"]

_CLASS = "polygraphy_class"  # the key under which the JSON says what an object is


def feeds_in(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The feeds of a file that `polygraphy run --save-inputs` or `polygraphy.json.save_json` wrote, still encoded."""
    with readable(str(path)):
        document = read_json(path)
    if isinstance(document, dict) and document.get(_CLASS) == "RunResults":
        raise InputError(f"{path}: holds the outputs of a Polygraphy run, not inputs; save inputs with --save-inputs")
    feeds = document if isinstance(document, list) else [document]
    for index, feed in enumerate(feeds):
        if not isinstance(feed, dict) or _CLASS in feed:
            raise InputError(f"{path}: is not a list of Polygraphy's feeds (mappings from input names to arrays)")
        yield (f"{path}[{index}]" if isinstance(document, list) else str(path)), feed


def outputs_in(document: Mapping[str, Any], label: str) -> tuple[dict[str, NDArray[Any]], ...]:
    """The outputs in a file of `polygraphy run --save-outputs`, one mapping an iteration; of the only runner in it."""
    runs = document.get("lst")
    if not isinstance(runs, list) or not all(isinstance(run, list) and len(run) == 2 for run in runs):
        raise InputError(f"{label}: is not a file of `polygraphy run --save-outputs`")
    if len(runs) != 1:
        names = ", ".join(str(name) for name, _ in runs) or "none"
        raise InputError(f"{label}: holds the outputs of {len(runs)} runners ({names}): save those of one")
    found = []
    for index, iteration in enumerate(runs[0][1]):
        outputs = iteration.get("outputs") if isinstance(iteration, dict) else None
        if not isinstance(outputs, dict):
            raise InputError(f"{label}: iteration {index} has no outputs")
        found.append(decoded(outputs, f"{label}[{index}]", "output"))
    return tuple(found)


def decoded(arrays: Mapping[str, Any], label: str, what: str = "input") -> dict[str, NDArray[Any]]:
    """Plain arrays; a pickle is never loaded."""
    return {name: _array(node, f"{label}: {what} {name!r}") for name, node in arrays.items()}


def _array(node: Any, label: str) -> NDArray[Any]:
    kind = node.get(_CLASS) if isinstance(node, dict) else None
    if kind == "Tensor":
        raise InputError(f"{label} is a pickled torch tensor, which is never loaded; save it as a NumPy array")
    if kind in ("LazyArray", "LazyNumpyArray"):
        return _array(node.get("values"), label)
    if kind != "ndarray":
        raise InputError(f"{label} is not an array in Polygraphy's encoding")
    with readable(label):
        stored = io.BytesIO(base64.b64decode(node["array"], validate=True))
        return np.lib.format.read_array(stored, allow_pickle=False)
