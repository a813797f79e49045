"""How TensorRT spells types, dimensions and names in the text of its layers: in logs and layer lists alike."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "PARSER_LAYERS",
    "UNKNOWN",
    "dtype_of",
    "fused_parts",
    "is_cut",
    "nodes_of_metadata",
    "nodes_of_name",
    "region_ends",
    "shape_of",
    "split_names",
]

UNKNOWN = "unknown"
_DTYPES = {
    "float": "fp32", "fp32": "fp32", "float32": "fp32", "half": "fp16", "fp16": "fp16", "float16": "fp16",
    "bfloat16": "bf16", "bf16": "bf16", "double": "fp64", "fp64": "fp64", "float64": "fp64",
    "int8": "int8", "int32": "int32", "int64": "int64", "bool": "bool", "uint8": "uint8",
    "int4": "int4", "fp8": "fp8", "float8": "fp8", "fp4": "fp4", "fp4e2m1": "fp4",
}  # fmt: skip
_SEPARATORS = re.compile("[\x1e\x1f]")
_NODE = "[ONNX Layer: "
_REWRITE = re.compile(r"\]__\w+$")
_SCOPE = re.compile(r"(?: \| (?:Local Function: .*|[^|]*\([^()|]*\)))+$")
_ADDED = re.compile(r"^(?:Reformatting CopyNode|Reformatted (?:In|Out)put Tensor|copied_squeeze_after_|squeeze_after_)")
_UNNAMED = re.compile(r"^\(Unnamed Layer\*")
PARSER_LAYERS = ("(Unnamed Layer*", "ONNXTRT_")  # names of layers that stand for no node
_ENDS = re.compile(r"\.\.\.(?!\.)")
_PROFILE = re.compile(r" ?\[profile \d+\]$")


def split_names(text: str) -> tuple[str, ...]:
    """The names of a list. They may hold ", " themselves, inside parentheses only."""
    separator = ", " if ", " in text else ","
    pieces = text.split(separator)
    names: list[str] = []
    current = ""
    depth = 0
    for piece in pieces:
        current = f"{current}{separator}{piece}" if depth > 0 else piece
        depth = current.count("(") - current.count(")")
        if depth <= 0:
            names.append(current)
    if depth > 0:  # a parenthesis that belongs to a name and never closes: no way to tell, so split everywhere
        return tuple(piece.strip() for piece in pieces)
    return tuple(name.strip() for name in names)


def fused_parts(layer: str, marks: tuple[str, ...] = (" + ", " || ")) -> tuple[str, ...]:
    """The layers that a fused layer's name lists: joined by " + " and " || ", nested in PWN(a, b)."""
    parts: list[str] = []
    start = depth = 0
    for token in re.finditer("|".join(map(re.escape, ("(", ")", *marks))), layer):  # a name may have megabytes
        if token[0] not in marks:
            depth += 1 if token[0] == "(" else -1
        elif depth == 0:
            parts.append(layer[start : token.start()])
            start = token.end()
    parts.append(layer[start:])
    found: list[str] = []
    for part in parts:
        if part.startswith("PWN(") and part.endswith(")"):
            found.extend(fused_parts(part[4:-1], (*marks[:2], ", ")))
        elif part:
            found.append(part)
    return tuple(found)


@lru_cache(maxsize=4096)
def dtype_of(text: str) -> str:
    """A type from any spelling: "Half", "Row major linear FP32", "Channel major FP16 format where channel % 8 == 0"."""
    words = text.rstrip(". ").split()
    if not words:
        return UNKNOWN
    lowered = [word.lower() for word in words]
    if "format" in lowered:
        place = lowered.index("format") - 1
        return _DTYPES.get(lowered[place], UNKNOWN) if place >= 0 else UNKNOWN
    return _DTYPES.get(lowered[-1], UNKNOWN)


@lru_cache(maxsize=4096)
def shape_of(text: str) -> tuple[int, ...]:
    """Dimensions from "-1,64:8,14,14" or "[1,3]"; the number of channels in a vector (":8") is layout, not size."""
    sizes = [part.split(":")[0].strip() for part in text.strip("[]() ").split(",") if part.strip()]
    return tuple(int(size) if re.fullmatch(r"-?\d+", size) else -1 for size in sizes)


def nodes_of_metadata(metadata: str) -> tuple[str, ...]:
    """The ONNX nodes that a layer's metadata names, in order, each once.

    Joined by the control characters 1E and 1F, or by nothing. What follows " | " is the local function or branch the
    node is in; what follows the bracket says how the compiler rewrote it ("]__gemm_from_conv1x1").
    """
    names: dict[str, None] = {}
    for item in _SEPARATORS.split(metadata):
        for piece in item.split("]" + _NODE):
            start = piece.find(_NODE)
            text = piece[start + len(_NODE) :] if start >= 0 else piece if _NODE in item else ""
            name = _SCOPE.sub("", _REWRITE.sub("", text).removesuffix("]"))
            if name:
                names[name] = None
    return tuple(names)


def is_cut(metadata: str) -> bool:
    """Whether it ends in the middle of a name: the parser writes 4000 characters at most."""
    _, mark, last = metadata.rpartition(_NODE)
    return bool(mark) and "]" not in last


def nodes_of_name(name: str) -> tuple[str, ...]:
    """The layers that a name without metadata (8.4, 8.5) was fused from; they mostly bear their ONNX nodes' names."""
    name = _SEPARATORS.sub(" + ", _PROFILE.sub("", name))
    if _ADDED.match(name) or "{ForeignNode[" in name or name.startswith("__my"):
        return ()
    return tuple(dict.fromkeys(part for part in fused_parts(name) if not _UNNAMED.match(part)))


def region_ends(name: str) -> tuple[str, ...]:
    """What the name of a region states as its ends: `{ForeignNode[a...b]}` goes from a to b; no layers of the parser's.

    Dots of a name's own stand before the three that separate, where there are more than three.
    """
    inner = name.partition("{ForeignNode[")[2].rpartition("]}")[0]
    cut = _ENDS.search(inner)
    ends = (inner[: cut.start()], inner[cut.end() :]) if cut else (inner,)
    parts = (part for end in ends for part in fused_parts(end))
    return tuple(dict.fromkeys(part for part in parts if not part.startswith(PARSER_LAYERS)))
