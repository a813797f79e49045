"""Finds sizes for the open dimensions of made-up inputs with which the FP32 model runs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from halfwise.core.errors import InputError
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.model.inputs.synthetic import USUAL, OpenSizes, open_dimensions, shapes_of, synthesize
from halfwise.model.model import Model
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["sizes_that_run"]

# Windows of audio, strides of an image, states of one step: models that refuse one size take another.
_OTHERS = (64, 256, 512, 4096, 32, 128, 1024, 2048, 16384, 1, 2, 3, 4, 8)
_MOST = 1 << 24  # elements of all inputs
_SECONDS = 30.0


def sizes_that_run(model: Model, inputs: Any, emulator: Emulator | None = None) -> OpenSizes:
    """The first that do, from the usual ones on; the usual ones where inputs are given, or where none do."""
    specs = model.inputs
    if inputs is not None or not open_dimensions(specs):
        return USUAL
    try:
        session = (emulator or Emulator()).session(Assignment(Sites(model), {}))
    except InputError:
        return USUAL
    until = time.monotonic() + _SECONDS
    for sizes in _candidates(open_dimensions(specs)):
        if time.monotonic() > until:
            break
        if sum(math.prod(shape) for shape in shapes_of(specs, {}, sizes)) > _MOST:
            continue
        (made,) = synthesize(specs, 1, rng=np.random.default_rng(0), int_bounds={}, dims={}, sizes=sizes)
        feed = widen_feeds(made)
        try:
            session.run({name: feed[name] for name in session.input_names})
        except InputError:
            continue
        return sizes
    return USUAL


def _candidates(opened: tuple[str, ...]) -> Iterator[OpenSizes]:
    """All alike; then with one of them 1, as the batch of a state is; then with all but one."""
    alone = [frozenset({key}) for key in opened] if len(opened) > 1 else []
    single = dict.fromkeys([frozenset[str](), *alone, *(frozenset(opened) - each for each in alone)])
    for size in (USUAL.size, *_OTHERS):
        yield from (OpenSizes(size, each) for each in single)
