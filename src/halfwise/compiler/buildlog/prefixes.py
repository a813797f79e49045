"""Takes a log line apart: who wrote it, how severe it is, what it says, and which TensorRT version is meant."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["LogLine", "decode_version", "split_line", "version_tuple"]

_LEVELS = {
    "VERBOSE": "V", "DEBUG": "V", "GRAPH": "V",
    "INFO": "I",
    "WARNING": "W", "WARN": "W",
    "ERROR": "E",
    "INTERNAL_ERROR": "F", "FATAL": "F", "CRITICAL": "F",
}  # fmt: skip
_NAMED_LEVEL = "|".join(_LEVELS)

# Tried in turn; each names the severity as a letter (`sev`) or as a word (`level`).
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        # trtexec and TensorRT's core, the Python logger, Polygraphy
        r"(?:\[[^\]]*\d:\d\d[^\]]*\]\s*)?(?:\[TRT\]\s*)?\[(?P<sev>[VIWEFX])\] ?(?:\[TRT\] ?)?",
        # loggers that write a time and a level into one bracket
        rf"\[\d{{4}}-\d\d-\d\d[ T][\d:.,]+\s+(?P<level>{_NAMED_LEVEL})\] ?(?:\[TRT\] ?)?",
        # Torch-TensorRT: TorchScript, then dynamo
        rf"(?P<level>{_NAMED_LEVEL}): \[Torch-TensorRT[^\]]*\] ?- ?",
        rf"(?P<level>{_NAMED_LEVEL}):torch_tensorrt[\w.]* ?\[[^\]]*\]: ?",
        # TF-TRT
        r".{0,80}?\b(?P<sev>[IWEF]) tensorflow/\S*trt_logger\.cc:\d+\] ?(?:TF-TRT Warning: ?)?(?:DefaultLogger ?)?",
        # samples of TensorRT 7
        rf"\[TensorRT\] (?P<level>{_NAMED_LEVEL}): ?",
    )
)
# What containers and CI services put in front: a service's name, a time. Only before what a log may begin with.
_OUTER = re.compile(
    r"(?:[\w.-]{1,64} +\| ?)?(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) )?"
    r"(?=\x1b|\[|&&&& |Layer\(|Name: |Layers:|Engine Layer Information:)"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_VERSIONS = (
    re.compile(r"\[TensorRT v(?P<number>\d{4,6})\]"),
    re.compile(r"TensorRT(?:-RTX)? version: (?P<dotted>\d+\.\d+\.\d+)"),
)


@dataclass(frozen=True)
class LogLine:
    """One line without its prefix. `severity` is one of V I W E F, or empty where the line states none."""

    severity: str
    message: str


def split_line(line: str) -> LogLine:
    """Strip the prefix; a line without a known one comes back whole. Never fails."""
    line = line.rstrip("\r\n")
    if outer := _OUTER.match(line):
        line = line[outer.end() :]
    if "\x1b" in line:
        line = _COLOUR.sub("", line)
    for prefix in _PREFIXES:
        match = prefix.match(line)
        if match:
            groups = match.groupdict()
            severity = groups.get("sev") or _LEVELS[groups["level"]]
            return LogLine("V" if severity == "X" else severity, line[match.end() :])
    return LogLine("", line)


def decode_version(text: str) -> str | None:
    """The version a line states, as "10.16.1". From TensorRT 10 on the v-number has two digits a part."""
    for pattern in _VERSIONS:
        match = pattern.search(text)
        if not match:
            continue
        if "dotted" in match.groupdict():
            return match["dotted"]
        number = int(match["number"])
        major = 10_000 if number >= 100_000 else 1_000
        return f"{number // major}.{number % major // 100}.{number % 100}"
    return None


def version_tuple(version: str | None) -> tuple[int, ...]:
    """For comparisons; empty where the version is not known."""
    return tuple(int(part) for part in version.split(".")) if version else ()
