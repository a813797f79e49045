"""Reads the layers of an engine from whatever lists them: inspector JSON, a printed dump, or a verbose build log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halfwise.compiler.layers_fields import EngineLayers, Layer, LayerTensor, SourceKind
from halfwise.compiler.layers_json import layers_from_json
from halfwise.compiler.layers_text import is_layer_line, layers_from_lines
from halfwise.core import limits
from halfwise.core.errors import InputError
from halfwise.core.files.absent import absent
from halfwise.core.json_text import parse_json
from halfwise.core.whole_files import is_special

if TYPE_CHECKING:
    from halfwise.compiler.buildlog.report import LogReport

__all__ = ["EngineLayers", "Layer", "LayerTensor", "SourceKind", "layers_from_log", "looks_like_json", "read_layers"]

_HEAD_BYTES = 4096


def read_layers(path_or_text: Path | str) -> EngineLayers:
    """The layers in a file or in a text. A string with a line break or an opening brace is a text, else a path."""
    from halfwise.compiler.buildlog.reader import read_lines, read_log

    if isinstance(path_or_text, str) and ("\n" in path_or_text or path_or_text.lstrip()[:1] in ("{", "[")):
        if looks_like_json(path_or_text):
            return layers_from_json(_parse(path_or_text, "the text"), "the text")
        return layers_from_log(read_lines(path_or_text.split("\n")), "the text")
    if isinstance(path_or_text, str) and is_layer_line(path_or_text):
        return layers_from_log(read_lines([path_or_text]), "the text")
    path = Path(path_or_text)
    source = str(path)
    if not path.exists():
        raise absent(path)
    if path.is_dir():
        raise InputError(f"{source} is a folder; name the layer information file or the build log in it")
    try:
        if is_special(path):
            raise InputError(f"{source} is a pipe or a device; name a file")
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if not looks_like_json(_decode(head)):
            return layers_from_log(read_log(path), source)
        if path.stat().st_size > limits.LARGEST_JSON:
            raise InputError(
                f"{source}: more than {limits.LARGEST_JSON >> 20} MiB of JSON; this is no layer information"
            )
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from error
    return layers_from_json(_parse(_decode(content), source), source)


def layers_from_log(report: LogReport, source: str | None = None) -> EngineLayers:
    """The layer list that a log or a dump ends with; of several engines the last one's."""
    source = source or report.source
    lines = report.structure.engine_lines
    layers = layers_from_lines(lines)
    entries = sum(line.lstrip().startswith(("Name: ", "Layer(")) for line in lines)
    if entries > len(layers):
        lost = entries - len(layers)
        raise InputError(f"{source}: {lost} of {entries} layer lines are cut off; print the layer information again")
    if layers:
        if any(", Datatype: " in line for line in lines):
            rtx = any(", StrideOrder: " in line for line in lines)
            return EngineLayers(layers, "rtx" if rtx else "11", "build-log" if report.structure.nodes else "layer-dump")
        if lines[0].lstrip().startswith("Layer("):
            return EngineLayers(layers, "log", "build-log")
        return EngineLayers(layers, "8.2-10.16", "layer-dump")
    if lines:
        from halfwise.compiler.buildlog.layer_text import nodes_of_name

        names = tuple(Layer(line.strip(), "", onnx_nodes=nodes_of_name(line.strip())) for line in lines if line.strip())
        return EngineLayers(names, "names-only", "layer-dump")
    raise InputError(
        f"{source}: no layer list in it; build with --profilingVerbosity=detailed and --exportLayerInfo=FILE, or with "
        "--verbose and keep the log to its end"
    )


def looks_like_json(text: str) -> bool:
    """Tells JSON from a log, whose lines may begin with a bracket too."""
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith("{"):
        return start[1:].lstrip()[:1] in ('"', "}", "")
    return start.startswith("[") and start[1:].lstrip()[:1] in ('"', "{", "]")


def _parse(text: str, source: str) -> Any:
    try:
        return parse_json(text.lstrip("\ufeff"))
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg:
            raise InputError(
                f"{source}: the JSON ends in the middle (line {error.lineno}); the file was cut off, export it again"
            ) from None
        raise InputError(f"{source}: not valid JSON at line {error.lineno}: {error.msg}") from None
    except ValueError as error:
        raise InputError(f"{source}: not valid JSON: {error}") from None


def _decode(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16", errors="replace")
    return content.decode("utf-8", errors="replace")
