"""Which trtexec options each TensorRT version takes, from 8.4 on."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets.version import Span, Version

__all__ = ["TRTEXEC_FLAGS", "flag_history", "flag_note", "has_flag"]

Flags = Mapping[str, tuple[str, "str | None"]]

# option -> (first version, last version or None for "still there"); "10" as the last means all of 10.x.
TRTEXEC_FLAGS: Flags = {
    "--onnx": ("8.4", None),
    "--saveEngine": ("8.4", None),
    "--loadEngine": ("8.4", None),
    "--verbose": ("8.4", None),
    "--minShapes": ("8.4", None),
    "--optShapes": ("8.4", None),
    "--maxShapes": ("8.4", None),
    "--fp16": ("8.4", "10"),
    "--bf16": ("9.1", "10"),
    "--int8": ("8.4", "10"),
    "--best": ("8.4", "10"),
    "--fp8": ("8.6", "10"),
    "--int4": ("10.1", "10"),
    "--noTF32": ("8.4", None),
    "--stronglyTyped": ("9.1", None),
    "--precisionConstraints": ("8.4", "10"),
    "--layerPrecisions": ("8.4", "10"),
    "--layerOutputTypes": ("8.4", "10"),
    "--layerDeviceTypes": ("8.6", None),
    "--inputIOFormats": ("8.4", None),
    "--outputIOFormats": ("8.4", None),
    "--heuristic": ("8.5", "9.3"),
    "--builderOptimizationLevel": ("8.6", None),
    "--profilingVerbosity": ("8.4", None),
    "--nvtxMode": ("8.4", "9.3"),
    "--dumpLayerInfo": ("8.4", None),
    "--exportLayerInfo": ("8.4", None),
    "--dumpProfile": ("8.4", None),
    "--exportProfile": ("8.4", None),
    "--exportTimes": ("8.4", None),
    "--exportOutput": ("8.4", None),
    "--dumpOutput": ("8.4", None),
    "--dumpRawBindingsToFile": ("8.6", None),
    "--loadInputs": ("8.4", None),
    "--buildOnly": ("8.4", "9.3"),
    "--skipInference": ("8.6", None),
    "--explicitBatch": ("8.4", "9.3"),
    "--workspace": ("8.4", "9.3"),
    "--memPoolSize": ("8.4", None),
    "--markDebug": ("10.0", None),
    "--saveDebugTensors": ("10.0", None),
    "--markUnfusedTensorsAsDebugTensors": ("10.12", None),
    "--saveAllDebugTensors": ("10.12", None),
    "--timingCacheFile": ("8.4", None),
    "--tempdir": ("8.6", None),
    "--versionCompatible": ("8.6", None),
    "--hardwareCompatibilityLevel": ("8.6", None),
    "--tacticSources": ("8.4", None),
    "--decomposableAttentions": ("10.14", None),
}


def has_flag(flag: str, span: Span, flags: Flags = TRTEXEC_FLAGS) -> bool:
    """Whether every release of `span` takes `flag`."""
    history = flags.get(flag)
    if history is None:
        return False
    first, last = history
    later_end = Version.parse(last).span.high if last else span.high
    return span.within(Span(Version.parse(first).span.low, later_end))


def flag_note(flag: str) -> Note:
    """Which versions take an option that is known."""
    first, last = TRTEXEC_FLAGS[flag]
    if last is None:
        return Note.of(NoteKind.OPTION_SINCE, first=first)
    return Note.of(NoteKind.OPTION_WITHIN, first=first, last=_written(last))


def flag_history(flag: str) -> str:
    """In words, which versions take `flag`."""
    history = TRTEXEC_FLAGS.get(flag)
    if history is None:
        near = get_close_matches(flag, TRTEXEC_FLAGS, n=1)
        return f"{flag} is not an option of trtexec known here" + (f"; did you mean {near[0]}?" if near else "")
    first, last = history
    if last is None:
        return f"{flag} exists from TensorRT {first} on"
    return f"{flag} exists from TensorRT {first} to {_written(last)}"


def _written(last: str) -> str:
    return last if "." in last else f"{last}.x"
