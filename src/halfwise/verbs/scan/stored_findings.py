"""Findings about weights as a typed file stores them: what a converter put in place of larger values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.model.elements import Elements
from halfwise.verbs.scan.weights import InitializerCounts

__all__ = ["stored_findings"]

_HALF = Format.FP16


def stored_findings(weights: Sequence[tuple[ir.Value, InitializerCounts]]) -> Iterator[Finding]:
    """The findings HW108, one for each FP16 weight that holds the largest value of its format."""
    for value, entry in weights:
        if entry.dtype != _HALF.value or entry.counts.max_abs != _HALF.max or value.const_value is None:
            continue
        windows = Elements(value.const_value).windows()
        times = sum(int(np.count_nonzero(np.abs(window) == _HALF.max)) for window in windows)
        note = Note.of(NoteKind.WEIGHT_CLAMPED, times=times, count=entry.counts.count)
        numbers = {"count": entry.counts.count, "largest": times}
        yield finding("HW108", Where("initializer", entry.name), note, numbers)
