"""What FP16 does to the values of each float input, and what that alone does to the outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.english.finding import finding
from halfwise.core.errors import InputError
from halfwise.core.finding import Finding, Where
from halfwise.core.formats import Format, round_to
from halfwise.core.notes import Note, NoteKind
from halfwise.core.wording import number
from halfwise.model.model import Model
from halfwise.model.moving import FROM_FIRST, Move, behind, movers
from halfwise.model.patterns.selections import find_id_casts
from halfwise.model.patterns.view import View
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import native_format
from halfwise.search.judge import Judge
from halfwise.verbs.fix.document import InputKind, InputRecord

__all__ = ["InputEffect", "indexing", "input_effects", "input_findings", "measured_effects", "refuse_ids"]

Array = NDArray[Any]
Feed = Mapping[str, Array]

_HALF = Format.FP16
_EXACT = 2048  # whole numbers that FP16 tells apart
_COARSE = 2.0**-9  # of the spread of an input: rounding by more is worth a finding; FP16's own share is 2^-12 or so
_BYTE = 255.0
_DARK = 32.0  # raw pixels reach more
_STEPS = 8
_ON_THE_WAY = FROM_FIRST | movers(Move.CAST) | {"Round", "Floor"}


@dataclass(frozen=True)
class InputEffect:
    """One float input, were it handed over in FP16."""

    name: str
    kind: InputKind
    max_abs: float
    step: float  # between neighbours in FP16 at the largest value that it holds
    change: float  # the largest by rounding, of a single value within FP16's range
    relative: float  # rms of the changes over the spread of the values; over their size, where all are the same
    over: int  # values beyond the range
    ratio: float | None = None  # what this alone does to the outputs, over the allowed error; None: not measured

    def document(self) -> InputRecord:
        return InputRecord(
            name=self.name,
            kind=self.kind,
            max_abs=self.max_abs,
            step=self.step,
            max_change=self.change,
            relative_change=self.relative,
            overflow=self.over,
            load=self.ratio,
        )


def input_effects(model: Model, feeds: Sequence[Feed]) -> tuple[InputEffect, ...]:
    """What rounding does to the values themselves, over all samples; nothing is run."""
    ids = indexing(model)
    found = []
    for value in model.graph.inputs:
        name = value.name or ""
        if native_format(value) is not Format.FP32:
            continue
        arrays = [np.asarray(feed[name]) for feed in feeds if name in feed]
        if any(array.size for array in arrays):
            found.append(_effect(name, arrays, name in ids))
    return tuple(found)


def measured_effects(effects: Sequence[InputEffect], judge: Judge) -> tuple[InputEffect, ...]:
    """The same with what each input alone, rounded to FP16, does to the outputs of the FP32 model."""
    if not effects:
        return ()
    session = judge.emulator.session(Assignment(judge.sites, {}))
    found = []
    for effect in effects:
        ratios = []
        for feed, reference in zip(judge.feeds, judge.references, strict=True):
            rounded = {name: feed[name] for name in session.input_names}
            if effect.name in rounded:
                rounded[effect.name] = round_to(rounded[effect.name], _HALF)
            judge.counter.add(1)
            ratios.append(judge.ratio_of(reference, session.run(rounded)))
        found.append(replace(effect, ratio=max(ratios, default=0.0)))
    return tuple(found)


def input_findings(effects: Sequence[InputEffect]) -> Iterator[Finding]:
    """The findings HW311 to HW314, one for each input at most."""
    for effect in effects:
        told = _finding(effect)
        if told is not None:
            rule, note = told
            yield finding(rule, Where("input", effect.name), note, effect.document().to_json())


def refuse_ids(effects: Sequence[InputEffect]) -> None:
    """Ids that become other ids are no question of tolerance."""
    for effect in effects:
        if effect.kind == "ids" and effect.max_abs > _EXACT:
            raise InputError(
                f"--io-types fp16: the input {effect.name!r} holds ids up to {number(effect.max_abs)}, where FP16 "
                f"steps by {number(effect.step)}; FP16 holds whole numbers exactly only up to {_EXACT}. "
                "Declare the input as int32 or int64 in the model, or leave the inputs in FP32"
            )


def _effect(name: str, arrays: Sequence[Array], indexes: bool) -> InputEffect:
    values = np.concatenate([array.astype(np.float64).reshape(-1) for array in arrays])
    values = values[np.isfinite(values)]
    size = np.abs(values)
    top = float(size.max(initial=0.0))
    inside = values[size <= _HALF.max]
    change = np.abs(round_to(inside, _HALF).astype(np.float64) - inside)
    spread = float(inside.std() if inside.size and inside.min() < inside.max() else np.abs(inside).max(initial=0.0))
    moved = float(np.sqrt(np.mean(change**2))) if inside.size else 0.0
    relative = moved / spread if moved else 0.0
    whole = bool(values.size) and bool((values == np.rint(values)).all())
    low = float(values.min(initial=0.0))
    kind: InputKind
    if indexes:
        kind = "ids"
    elif low >= 0.0 and _DARK < top <= _BYTE and max(array.ndim for array in arrays) > 2:
        kind = "pixels"
    else:
        kind = "whole" if whole and top > 1.0 else "values"
    over = int((size > _HALF.max).sum())
    return InputEffect(name, kind, top, _step(top), float(change.max(initial=0.0)), relative, over)


def _step(top: float) -> float:
    """Between a value of FP16 and the next one."""
    held = np.float16(min(top, _HALF.max))
    return float(np.spacing(held)) if held < np.float16(_HALF.max) else 32.0


def _finding(effect: InputEffect) -> tuple[str, Note] | None:
    top, step = effect.max_abs, effect.step
    alone = "" if effect.ratio is None else Note.of(NoteKind.INPUT_ALONE, ratio=effect.ratio)
    if effect.kind == "ids":
        return ("HW311", Note.of(NoteKind.INPUT_IDS, top=top, step=step, exact=_EXACT)) if top > _EXACT else None
    if effect.over:
        return "HW312", Note.of(NoteKind.INPUT_BEYOND, top=top, alone=alone)
    if effect.relative > _COARSE or (effect.kind == "whole" and effect.change >= 1.0):
        what, change = "whole numbers" if effect.kind == "whole" else "values", effect.change
        return "HW313", Note.of(
            NoteKind.INPUT_COARSE, what=what, top=top, step=step, change=change, relative=effect.relative, alone=alone
        )
    if effect.kind == "pixels":
        return "HW314", Note.of(NoteKind.INPUT_PIXELS, top=top, held=step / 2 if effect.change else 0.0, alone=alone)
    return None


def indexing(model: Model) -> set[str]:
    """The float inputs that become integers and pick entries of a table."""
    found: set[str] = set()
    for pattern in find_id_casts(View(model)):
        if pattern.details["direction"] == "to-index":
            source = _outermost(model.node_by_name[pattern.anchor].inputs[0])
            found.update({source} if source is not None else ())
    return found


def _outermost(value: ir.Value | None) -> str | None:
    source = behind(value, _ON_THE_WAY, _STEPS)
    return source.name if source is not None and source.is_graph_input() else None
