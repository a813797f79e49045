"""The main job behind the signature of AutoCast's `convert_to_mixed_precision`: a model in, a typed model out."""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from halfwise.core.english import say
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.measures.named import with_measure
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import DEFAULT_TARGET
from halfwise.core.tolerance import Tolerance
from halfwise.deploy.targets import kind_of
from halfwise.model.fp32_model import fp32_model
from halfwise.model.model import Model, load
from halfwise.precision.selectors import Selection, choices_of
from halfwise.precision.typed_onnx import typed_proto
from halfwise.repair import rules_for, rules_named
from halfwise.search.judge import worst_of
from halfwise.search.walks import Walks
from halfwise.verbs.fix.decide import decide
from halfwise.verbs.fix.feedback import Feedback
from halfwise.verbs.fix.judge import input_note
from halfwise.verbs.fix.model_inputs import input_findings
from halfwise.verbs.fix.own_operators import read_by
from halfwise.verbs.fix.prepare import Prepared, prepare
from halfwise.verbs.fix.promise import promise_of
from halfwise.verbs.fix.request import FixRequest
from halfwise.verbs.fix.typed_file import kept_interface

__all__ = ["ConversionWarning", "convert"]

# Walks and runs that a conversion takes; the main job takes more, and keeps fewer nodes in FP32.
_SMALL, _LARGE = (Walks(1, 2), 12), (Walks(1, 1), 10)
_LARGE_VALUES = 5_000_000  # in all tensors together, as far as their shapes are known

# Options that choose another way than ours, with what is to be said where one is not at its default.
_NO_MEANING: Mapping[str, tuple[Any, Note]] = {
    "data_max": (512, Note.of(NoteKind.OPTION_BY_ERROR, "data_max")),
    "init_max": (65504.0, Note.of(NoteKind.OPTION_BY_ERROR, "init_max")),
    "custom_rule": (None, Note.of(NoteKind.OPTION_BY_ERROR, "custom_rule")),
    "max_depth_of_reduction": (None, Note.of(NoteKind.OPTION_BY_ERROR, "max_depth_of_reduction")),
    "init_conversion_max_bytes": (None, Note.of(NoteKind.OPTION_OF_WEIGHTS, "init_conversion_max_bytes")),
    "providers": (["cpu"], Note.of(NoteKind.OPTION_OF_DEVICE, "providers")),
    "trt_plugins": ([], Note.of(NoteKind.OPTION_OF_DEVICE, "trt_plugins")),
    "trt_plugins_precision": ([], Note.of(NoteKind.OPTION_OF_DEVICE, "trt_plugins_precision")),
    "opset": (None, Note.of(NoteKind.OPTION_OF_OPSET, "opset")),
    "use_standalone_type_inference": (False, Note.of(NoteKind.OPTION_OF_TYPES, "use_standalone_type_inference")),
}


class ConversionWarning(UserWarning):
    """What a caller of `convert` has to know; `note` is the same as data."""

    def __init__(self, note: Note) -> None:
        super().__init__(say(note))
        self.note = note

    def __reduce__(self) -> tuple[type[ConversionWarning], tuple[Note]]:
        return ConversionWarning, (self.note,)


def convert(
    onnx_path: str | Path | onnx.ModelProto | Model,
    low_precision_type: str = "fp16",
    nodes_to_exclude: Sequence[str] | None = None,
    op_types_to_exclude: Sequence[str] | None = None,
    nodes_to_include: Sequence[str] | None = None,
    op_types_to_include: Sequence[str] | None = None,
    data_max: float | None = 512,
    init_max: float | None = 65504.0,
    keep_io_types: bool = False,
    calibration_data: str | Path | None = None,
    custom_rule: Any = None,
    init_conversion_max_bytes: int | None = None,
    providers: Sequence[str] = ("cpu",),
    trt_plugins: Sequence[str] = (),
    trt_plugins_precision: Sequence[str] = (),
    max_depth_of_reduction: int | None = None,
    opset: int | None = None,
    use_standalone_type_inference: bool = False,
    *,
    inputs: str | Path | Iterable[Any] | None = None,
    tolerance: str | Sequence[str] | Tolerance = (),
) -> onnx.ModelProto:
    """Stands in for `modelopt.onnx.autocast.convert_to_mixed_precision`; the typed model is in memory.

    `inputs` are as in `fix`, and `calibration_data` is another name for them. `tolerance` is as in `fix`, which
    searches longer for fewer FP32 nodes, and writes the plan and the report. Nodes to exclude stay in FP32, nodes to
    include do not, by regular expressions from the start of a name or by operators; included ones come first.
    "bf16" is FP16 with BF16 for nodes that need its range. Without `keep_io_types` inputs and outputs become FP16.
    What there is to know comes as a `ConversionWarning`: an option that has no meaning here, generated inputs, a
    tolerance that is missed, or kept on these inputs alone.
    """
    given = {
        "data_max": data_max,
        "init_max": init_max,
        "custom_rule": custom_rule,
        "max_depth_of_reduction": max_depth_of_reduction,
        "init_conversion_max_bytes": init_conversion_max_bytes,
        "providers": list(providers),
        "trt_plugins": list(trt_plugins),
        "trt_plugins_precision": list(trt_plugins_precision),
        "opset": opset,
        "use_standalone_type_inference": use_standalone_type_inference,
    }
    if low_precision_type not in ("fp16", "bf16"):
        raise InputError(f"low_precision_type {low_precision_type!r}: write 'fp16' or 'bf16'")
    if inputs is not None and calibration_data is not None:
        raise InputError("inputs and calibration_data are the same: give one of them")
    model = fp32_model(onnx_path if isinstance(onnx_path, Model) else load(onnx_path))
    model, widened = kept_interface(DEFAULT_TARGET, model)
    model, spelled = read_by(DEFAULT_TARGET, model)
    selection = Selection(model)
    said = [note for name, (default, note) in _NO_MEANING.items() if given[name] != default]
    if low_precision_type == "bf16":
        said.append(Note.of(NoteKind.CONVERTED_TO_BOTH))
    lists = {
        "nodes_to_include": nodes_to_include,
        "op_types_to_include": op_types_to_include,
        "nodes_to_exclude": nodes_to_exclude,
        "op_types_to_exclude": op_types_to_exclude,
    }
    meant = {option: _meant(selection, option, each, said) for option, each in lists.items()}
    include = meant["nodes_to_include"] | meant["op_types_to_include"]
    exclude = (meant["nodes_to_exclude"] | meant["op_types_to_exclude"]) - include
    keep = [f"name:{name}" for name in sorted(exclude)]
    force = [f"name:{name}" for name in sorted(include) if selection.by_name[name].free]
    walks, runs = _LARGE if _values(model) > _LARGE_VALUES else _SMALL
    bounds, metric = with_measure(tolerance, None)
    request = FixRequest(
        model=model,
        inputs=inputs if inputs is not None else calibration_data,
        tolerance=(bounds,) if isinstance(bounds, str) else bounds,
        metric=metric,
        io_types=Format.FP32 if keep_io_types else Format.FP16,
        allow_bf16=low_precision_type == "bf16",
        rules=rules_for(DEFAULT_TARGET, rules_named(("all",))),
        choices=choices_of(model, keep, force),
        saving_runs=runs,
        notes=(*widened, *spelled),
    )
    prepared = prepare(request)
    prepared = replace(prepared, context=replace(prepared.context, walks=walks))
    found = decide(prepared)
    model.stamps.check()
    level = _level_of_caller()
    for note in (*said, *_told(prepared, found)):
        warnings.warn(ConversionWarning(note), stacklevel=level)
    return typed_proto(kind_of(DEFAULT_TARGET).as_written(found.candidate.decision.assignment))


def _level_of_caller() -> int:
    """For a warning of whoever calls this: at which frame of the stack this package was entered."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "halfwise":
        level, frame = level + 1, frame.f_back
    return level


def _values(model: Model) -> int:
    shapes = (value.shape for node in model.nodes for value in node.outputs)
    return sum(math.prod(shape.numpy()) for shape in shapes if shape is not None and shape.is_static())


def _meant(selection: Selection, option: str, given: Sequence[str] | None, notes: list[Note]) -> frozenset[str]:
    """The nodes with FP32 values that an option means; what means none is noted."""
    found: set[str] = set()
    for text in given or ():
        if option.startswith("op_types"):
            fits = set(selection.by_op.get(text, ()))
        else:
            fits = {name for name in selection.by_name if _starts(option, text, name)}
        if not fits:
            notes.append(Note.of(NoteKind.OPTION_FITS_NONE, option, given=text))
        found |= fits
    return frozenset(name for name in found if selection.by_name[name].has_fp32)


def _starts(option: str, pattern: str, name: str) -> bool:
    try:
        return re.match(pattern, name) is not None
    except re.error as error:
        raise InputError(f"{option} {pattern!r} is no regular expression: {error}") from None


def _meant_here(note: Note) -> Note:
    """A conversion has no budget to be raised, and nothing that goes on from there."""
    spent = note.kind is NoteKind.RUNS_SPENT
    return Note.of(NoteKind.CONVERTED_IN_SHORT, runs=note.values["runs"]) if spent else note


def _told(prepared: Prepared, found: Feedback) -> Iterator[Note]:
    seen = worst_of(list(found.candidate.by_profile(found.context).values()))
    verdict = prepared.tolerance.verdict(seen.outputs, prepared.floats, seen.user_metric)
    if not verdict.met:
        yield Note.of(NoteKind.CONVERTED_MISSES, told=verdict.because)
    elif (promise := promise_of(prepared, found.candidate, seen, runs=False)) is not None:
        yield from promise.notes()
    notes = (*prepared.notes, *found.candidate.adjustment.notes, *found.notes, *prepared.context.failures.notes)
    yield from (_meant_here(note) for note in dict.fromkeys(notes) if note.severity != "info")
    yield from map(input_note, input_findings(prepared.inputs))
