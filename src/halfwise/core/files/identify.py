"""Tells what a file is by its bytes; its name decides only what bytes cannot. Nothing in the file is ever run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfwise.core.errors import InputError
from halfwise.core.files.bindings import binding_of
from halfwise.core.files.kinds import WORDS, FileKind
from halfwise.core.files.protobuf import protobuf_kind
from halfwise.core.files.zipped import zip_kind
from halfwise.core.json_text import parse_json
from halfwise.core.whole_files import is_special

__all__ = ["Identified", "identify", "not_wanted"]

_HEAD = 1 << 16
_MOST_JSON = 1 << 28
_ENGINE_TAG = b"ftrt"

_MAGIC: tuple[tuple[int, bytes, FileKind], ...] = (
    (0, _ENGINE_TAG, FileKind.ENGINE),
    (0, b"ptrt", FileKind.ENGINE),
    (4, b"TFL3", FileKind.TFLITE),
    (4, b"ORTM", FileKind.ORT_FORMAT),
    (0, b"GGUF", FileKind.GGUF),
    (0, b"\x89HDF\r\n\x1a\n", FileKind.HDF5),
    (0, b"\x93NUMPY", FileKind.NPY),
    (0, b"version https://git-lfs.github.com/spec/", FileKind.LFS_POINTER),
    (0, b"\x89PNG\r\n\x1a\n", FileKind.IMAGE),
    (0, b"\xff\xd8\xff", FileKind.IMAGE),
    (0, b"GIF8", FileKind.IMAGE),
    (0, b"II*\0", FileKind.IMAGE),
    (0, b"MM\0*", FileKind.IMAGE),
    (8, b"WEBP", FileKind.IMAGE),
    (8, b"WAVE", FileKind.AUDIO),
    (0, b"fLaC", FileKind.AUDIO),
    (0, b"OggS", FileKind.AUDIO),
    (0, b"ID3", FileKind.AUDIO),
    (0, b"\x1f\x8b", FileKind.ARCHIVE),
    (0, b"BZh", FileKind.ARCHIVE),
    (0, b"\xfd7zXZ\0", FileKind.ARCHIVE),
    (0, b"7z\xbc\xaf\x27\x1c", FileKind.ARCHIVE),
    (0, b"\x28\xb5\x2f\xfd", FileKind.ARCHIVE),
    (257, b"ustar", FileKind.ARCHIVE),
)
_BY_NAME = {
    ".bmp": FileKind.IMAGE,
    ".cache": FileKind.TIMING_CACHE,
    ".engine": FileKind.ENGINE,
    ".plan": FileKind.ENGINE,
    ".trt": FileKind.ENGINE,
    ".bin": FileKind.RAW,
    ".raw": FileKind.RAW,
    ".dat": FileKind.RAW,
    ".onnx_data": FileKind.EXTERNAL_DATA,
    ".data": FileKind.EXTERNAL_DATA,
}
_TORCH_LEGACY = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"  # the magic number in front of PyTorch's files before 1.6
_LOG_MARKS = (
    b"[TRT]", b"&&&& ", b"TensorRT version", b"TensorRT-RTX", b"torch_tensorrt", b"Registering layer: ",
    b", LayerType: ", b"Layer(", b"weights are affected by this issue", b"had the following issues when converted to",
)  # fmt: skip
_BUILDERS = re.compile(rb"trtexec|^[ \t]*(?:\S*/)?tensorrt_rtx(?:\.exe)?[ \t]", re.MULTILINE)
_PROSE = (".md", ".rst", ".toml", ".py", ".ipynb")  # which may speak of builds and of logs


@dataclass(frozen=True)
class Identified:
    """A file and what it is; `detail` is what its head tells besides, such as the version of an engine."""

    path: Path
    kind: FileKind
    detail: str = ""

    @property
    def name(self) -> str:
        """What it is, in words: "a TensorRT engine (10.0.1)"."""
        return WORDS[self.kind].name + (f" ({self.detail})" if self.detail else "")

    @property
    def way(self) -> str:
        """What to do with it where another file was wanted; empty where nothing is known."""
        return WORDS[self.kind].way.replace("{name}", self.path.name)


def identify(path: Path) -> Identified:
    """What lies at this path. A file that cannot be read raises its OSError."""
    if path.is_dir():
        saved = (path / "saved_model.pb").is_file()
        return Identified(path, FileKind.SAVED_MODEL if saved else FileKind.FOLDER)
    if not path.exists():
        return Identified(path, FileKind.MISSING)
    if is_special(path):
        raise InputError(f"{path} is a pipe or a device; name a file")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not head:
        return Identified(path, FileKind.EMPTY)
    if binding_of(path) is not None:
        return Identified(path, FileKind.BINDING)
    for offset, mark, kind in _MAGIC:
        if head[offset : offset + len(mark)] == mark:
            return Identified(path, kind, _version(head) if head.startswith(_ENGINE_TAG) else "")
    if head.startswith(b"PK\x03\x04"):
        return Identified(path, *zip_kind(path))
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return Identified(path, FileKind.CHECKPOINT if head[2:14] == _TORCH_LEGACY else FileKind.PICKLE)
    return _by_structure(path, head)


def not_wanted(path: Path, wanted: str, otherwise: str) -> str:
    """One line on a file that is not what was wanted: what it is and the way on, or `otherwise` where that is unknown.

    `wanted` is such as "an ONNX model".
    """
    try:
        found = identify(path)
    except OSError:
        return otherwise
    if not found.way or found.name == wanted:
        return otherwise
    return f"{path} is {found.name}, not {wanted}: {found.way}"


def _by_structure(path: Path, head: bytes) -> Identified:
    size = int.from_bytes(head[:8], "little")
    if head[8:10] == b'{"' and 2 <= size <= path.stat().st_size:
        return Identified(path, FileKind.SAFETENSORS)
    if (engine := _behind_metadata(path, head)) is not None:
        return engine
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _is_text(head):
        return Identified(path, *_text_kind(path, start, head))
    if (kind := protobuf_kind(path)) is not None:
        return Identified(path, kind)
    name = path.name.lower()
    if "timing" in name and "cache" in name:
        return Identified(path, FileKind.TIMING_CACHE)
    return Identified(path, _BY_NAME.get(path.suffix.lower(), FileKind.BINARY))


def _version(head: bytes) -> str:
    """The release that built an engine stands in its head, from the layout that TensorRT 8.6 began."""
    if len(head) < 28 or head[4:8] != b"\0\0\0\0" or not 5 <= head[24] <= 30:
        return ""
    return ".".join(str(part) for part in head[24:27])


def _behind_metadata(path: Path, head: bytes) -> Identified | None:
    """Ultralytics writes a length and a JSON text in front of the engine."""
    length = int.from_bytes(head[:4], "little")
    if head[4:5] != b"{" or not 2 <= length < len(head) or head[4 + length :][:4] != _ENGINE_TAG:
        return None
    return Identified(path, FileKind.ENGINE, _version(head[4 + length :]))


def _is_text(head: bytes) -> bool:
    return head.startswith((b"\xff\xfe", b"\xfe\xff")) or (b"\0" not in head and _printable(head))


def _printable(head: bytes) -> bool:
    """Logs may hold colours and stray bytes, but few."""
    odd = sum(byte < 9 or 14 <= byte < 27 or 28 <= byte < 32 for byte in head)
    return odd * 50 <= len(head)


def _text_kind(path: Path, start: bytes, head: bytes) -> tuple[FileKind, str]:
    low = start[:200].lower()
    if low.startswith((b"<!doctype html", b"<html")):
        meant = path.suffix.lower() in (".html", ".htm")  # to be a page
        return FileKind.TEXT if meant else FileKind.HTML, ""
    if b"<net " in start[:2000] and start.startswith(b"<"):
        return FileKind.OPENVINO, ""
    if start.startswith(b"TRT-") and b"Calibration" in start[:60]:
        return FileKind.CALIBRATION_CACHE, ""
    if start[:1] in b"{[" and start[1:].lstrip()[:1] in (b'"', b"{", b"[", b"]", b"}", b""):
        return _json_kind(path), ""
    if path.suffix.lower() in _PROSE:
        return FileKind.TEXT, ""
    if _BUILDERS.search(head) and not any(mark in head for mark in (b"[TRT]", b"&&&& ", b"[I] ")):
        return FileKind.BUILD_SCRIPT, ""
    return (FileKind.BUILD_LOG if _is_log(path) else FileKind.TEXT), ""


def _is_log(path: Path) -> bool:
    """A log of a service may speak of TensorRT after a while only."""
    held = b""
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            plain = (held + piece).replace(b"\0", b"")  # UTF-16 of a PowerShell redirection
            if any(mark in plain for mark in _LOG_MARKS):
                return True
            held = piece[-64:]
    return False


def _json_kind(path: Path) -> FileKind:
    if path.stat().st_size > _MOST_JSON:
        return FileKind.JSON
    try:
        document: Any = parse_json(path.read_bytes())
    except ValueError:  # trtexec writes nan and inf as C++ prints them
        with path.open("rb") as file:
            head = file.read(_HEAD)
        return FileKind.TRTEXEC_OUTPUTS if b'"dimensions"' in head and b'"values"' in head else FileKind.JSON
    if isinstance(document, Mapping):
        return _object_kind(document)
    first = document[0] if isinstance(document, list) and document else None
    if isinstance(first, str):
        return FileKind.LAYERS
    if not isinstance(first, Mapping):
        return FileKind.JSON
    if {"name", "dimensions", "values"} <= first.keys():
        return FileKind.TRTEXEC_OUTPUTS
    if {"startInMs", "endInMs"} & first.keys() or any("timeMs" in each for each in document if isinstance(each, dict)):
        return FileKind.PROFILE
    if "Name" in first and "LayerType" in first:
        return FileKind.LAYERS
    arrays = [value for feed in document if isinstance(feed, Mapping) for value in feed.values()]
    encoded = arrays and all(isinstance(value, Mapping) and "polygraphy_class" in value for value in arrays)
    return FileKind.POLYGRAPHY_INPUTS if encoded else FileKind.JSON


def _object_kind(document: Mapping[str, Any]) -> FileKind:
    stated = document.get("schema")
    if isinstance(stated, str) and stated.startswith("halfwise."):
        return FileKind.PLAN if stated.startswith("halfwise.plan/") else FileKind.RESULT
    if {"metadata", "tensors"} <= document.keys() and isinstance(document["tensors"], list):
        return FileKind.TENSOR_SUMMARY
    if document.get("polygraphy_class") == "RunResults":
        return FileKind.POLYGRAPHY_OUTPUTS
    if {"Layers", "layers", "LayerInfo"} & document.keys():
        return FileKind.LAYERS
    if "weight_map" in document:
        return FileKind.SHARD_INDEX
    encoded = [isinstance(each, Mapping) and "polygraphy_class" in each for each in document.values()]
    return FileKind.POLYGRAPHY_INPUTS if encoded and all(encoded) else FileKind.JSON
