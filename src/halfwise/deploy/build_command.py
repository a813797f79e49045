"""The command that built an engine, from its log or from a script, and what in its precision flags has no effect."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from halfwise.core.english.finding import finding
from halfwise.core.finding import Finding, Where
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Span
from halfwise.core.targets.flags import TRTEXEC_FLAGS, flag_note, has_flag
from halfwise.deploy.trtexec_grammar import (
    GrammarError,
    has_patterns,
    matching_keys,
    parse_layer_output_types,
    parse_layer_precisions,
)

__all__ = ["BuildCommand", "command_of_log", "commands_in", "lint", "wanted_layers"]

_PRECISIONS, _TYPES, _CONSTRAINTS = "--layerPrecisions", "--layerOutputTypes", "--precisionConstraints"
_WEAK = (_PRECISIONS, _TYPES, _CONSTRAINTS)
_OPTION = re.compile(r"\s+(?=--?\w)")
_SHOWN = 8
_PROGRAMS = ("trtexec", "tensorrt_rtx")


@dataclass(frozen=True)
class BuildCommand:
    """What trtexec was called with: each option and its value, in order; None for a switch."""

    options: tuple[tuple[str, str | None], ...]

    @property
    def first(self) -> Mapping[str, str | None]:
        """Of an option that is given twice, the first counts."""
        return dict(reversed(self.options))

    @property
    def model(self) -> str | None:
        """The name of the ONNX file, without its folder."""
        path = self.first.get("--onnx")
        return re.split(r"[/\\]", path)[-1] if path else None


def command_of_log(text: str) -> BuildCommand:
    """A log prints the command without its quotes, so that values may hold spaces."""
    return _command(_OPTION.split(text.strip())[1:])


def commands_in(script: str) -> tuple[BuildCommand, ...]:
    """Every call of trtexec or of TensorRT-RTX's builder in a shell script or a batch file."""
    lines = re.sub(r"[\\^`]\r?\n", " ", script).splitlines()
    return tuple(_command(words) for line in lines if (words := _words(line)) is not None)


def _words(line: str) -> list[str] | None:
    if not any(name in line for name in _PROGRAMS) or line.lstrip().startswith(("#", "REM", "::")):
        return None
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        words = line.split()
    starts = [place for place, word in enumerate(words) if word.rpartition("/")[2].removesuffix(".exe") in _PROGRAMS]
    return words[starts[0] + 1 :] if starts else None


def _command(words: list[str]) -> BuildCommand:
    split = (word.partition("=") for word in words if word.startswith("-"))
    return BuildCommand(tuple((flag, value if equals else None) for flag, equals, value in split))


def wanted_layers(command: BuildCommand, layers: Collection[str], span: Span) -> dict[str, str]:
    """The layers that the flags ask a precision for, and the precision; nothing where the flags have no effect."""
    given = command.first
    if given.get(_CONSTRAINTS) not in ("obey", "prefer"):
        return {}
    keys = _keys(given.get(_PRECISIONS) or "", span)
    found = {layer: matching_keys(layer, keys, span) for layer in layers} if keys else {}
    return {layer: keys[matched[0]] for layer, matched in found.items() if len(matched) == 1}


def lint(command: BuildCommand, layers: Collection[str], span: Span, version: str = "") -> Iterator[Finding]:
    """What in the precision flags does not do what it says. `layers`: every name that a layer may bear."""
    given = command.first
    yield from _options(command, span)
    if any(given.get(option) for option in (_PRECISIONS, _TYPES)) and given.get(_CONSTRAINTS) in (None, "none"):
        yield finding("HW604", Where("option", _CONSTRAINTS), Note.of(NoteKind.CONSTRAINTS_MISSING), {})
    for option in (_PRECISIONS, _TYPES):
        try:
            keys = _keys(given.get(option) or "", span)
            if option == _TYPES and given.get(option):
                parse_layer_output_types(given.get(option) or "", span)
            elif given.get(option):
                parse_layer_precisions(given.get(option) or "", span)
        except GrammarError as error:
            told = Note.of(NoteKind.OPTION_REFUSED, option, why=str(error))
            yield finding("HW603", Where("option", option), told, {})
            continue
        if layers:
            yield from _names(option, keys, layers, span, version)


def _options(command: BuildCommand, span: Span) -> Iterator[Finding]:
    """Flags of precision that this version lacks, and those given twice."""
    seen: set[str] = set()
    for flag, _ in command.options:
        if flag in TRTEXEC_FLAGS and not has_flag(flag, span):
            why = flag_note(flag)
        elif flag in seen and flag in _WEAK:
            why = Note.of(NoteKind.OPTION_TWICE)
        else:
            seen.add(flag)
            continue
        yield finding("HW603", Where("option", flag), Note.of(NoteKind.OPTION_REFUSED, flag, why=why), {})


def _keys(value: str, span: Span) -> dict[str, str]:
    """Names and patterns, with what is asked for them; what the grammar refuses is read as far as it goes."""
    pairs = (item.replace("'", "").rpartition(":") for item in value.split(",") if item)
    return {name: kind for name, colon, kind in pairs if colon and name}


def _names(
    option: str, keys: Mapping[str, str], layers: Collection[str], span: Span, version: str
) -> Iterator[Finding]:
    """Names that no layer bears, and wildcards: trtexec passes over both without a word."""
    named = {key: kind for key, kind in keys.items() if key != "*" and not _hits(key, kind, layers, span)}
    unread = [key for key in named if "*" in key and not has_patterns(span)]
    lost = [key for key in named if key not in unread]
    if unread:
        note = Note.of(NoteKind.WILDCARD_NOT_READ, option, version=version or "this version", names=unread)
        yield finding("HW602", Where("option", option), note, {"names": unread})
    if lost:
        close = {key: get_close_matches(key.strip("*"), layers, 1, 0.5) for key in lost[:_SHOWN]}
        nearest = list(dict.fromkeys(found[0] for found in close.values() if found))
        near = Note.of(NoteKind.NEAREST_NAMES, names=nearest) if nearest else ""
        note = Note.of(NoteKind.NAMES_MATCH_NOTHING, option, count=len(lost), total=len(keys), names=lost, near=near)
        yield finding("HW601", Where("option", option), note, {"total": len(keys), "names": lost, "nearest": nearest})


def _hits(key: str, kind: str, layers: Collection[str], span: Span) -> bool:
    return any(matching_keys(layer, {key: kind}, span) for layer in layers)
