"""Outputs whose number of values hangs on the data, as behind a threshold: where the search has nothing to compare."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.contents import changed, layout
from halfwise.core.errors import InputError
from halfwise.core.metrics import is_float
from halfwise.precision.assignment import Assignment
from halfwise.search.judge import Judge

__all__ = ["Uncomparable", "refuse_share", "refuse_unsteady"]

Array = NDArray[Any]

ONE_ROUNDING = 2.0**-11  # FP16's, of a value


class Uncomparable(InputError):
    """No set of FP32 nodes worth having answers the question; another question would."""


def refuse_unsteady(judge: Judge, uncompared: Sequence[str]) -> None:
    """Refuse outputs that get another shape in FP32 already, once each input moves by no more than a rounding.

    That such an output has FP32's shape in FP16 would be luck, on these inputs and on no others.
    """
    if not uncompared:
        return
    session = judge.emulator.session(Assignment(judge.sites, {}))
    rng = np.random.default_rng(0)
    for feed, reference in zip(judge.feeds, judge.references, strict=True):
        moved = {name: changed(held, partial(_moved, rng=rng)) for name, held in feed.items()}
        try:
            answer = judge.run(session, moved)
        except InputError:  # these inputs may not move
            continue
        for name in uncompared:
            now, before = layout(answer[name]), layout(reference[name])
            if now != before:
                raise Uncomparable(
                    f"output {name!r} has shape {now} instead of {before} in FP32 "
                    f"already, once the inputs move by 2^-11: {_way_out(uncompared)}"
                )


def refuse_share(uncompared: Sequence[str], kept: int, nodes: int) -> None:
    """Refuse an answer that keeps most of the model for the shape of an output."""
    if uncompared and 2 * kept > nodes:
        raise Uncomparable(
            f"output {uncompared[0]!r} has another shape than in FP32 unless {kept} of {nodes} nodes stay in FP32: "
            f"{_way_out(uncompared)}"
        )


def _way_out(names: Sequence[str]) -> str:
    voids = " ".join(f"--tol '{name}:exact>=0'" for name in names)
    return (
        "its values cannot be compared place by place. Judge with a function of yours (--metric PKG.MOD:FN --tol "
        f"'metric<=VALUE'), or leave out what cannot be compared: {voids}"
    )


def _moved(values: Array, rng: np.random.Generator) -> Array:
    if not is_float(values.dtype):
        return values
    wide = values.astype(np.float64)
    return np.asarray(wide * (1.0 + ONE_ROUNDING * rng.uniform(-1.0, 1.0, wide.shape))).astype(values.dtype)
