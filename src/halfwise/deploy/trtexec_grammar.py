"""How trtexec reads its command line: the precision options, the I/O formats, and which layers a name means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from halfwise.core.targets.flags import TRTEXEC_FLAGS, flag_history, has_flag
from halfwise.core.targets.version import Span, Version

__all__ = [
    "LAYOUTS",
    "GrammarError",
    "IoFormat",
    "has_patterns",
    "io_types",
    "layer_types",
    "matching_keys",
    "output_types_of",
    "parse_command",
    "parse_io_formats",
    "parse_layer_output_types",
    "parse_layer_precisions",
    "parse_shapes",
    "precision_of",
]

_LAYOUT_NAMES = "chw chw2 hwc8 chw4 chw16 chw32 dhwc8 cdhw32 hwc dla_linear dla_hwc4 hwc16 dhwc"
LAYOUTS = frozenset(_LAYOUT_NAMES.split())
_V = TypeVar("_V")
_V8_6 = Version.parse("8.6").span.low
_V9 = Version.parse("9").span.low
_V9_1 = Version.parse("9.1").span.low
_V11 = Version.parse("11").span.low


class GrammarError(ValueError):
    """What trtexec would reject, or would take otherwise than it reads."""


@dataclass(frozen=True)
class IoFormat:
    """Type and memory layouts of one input or output; the type is None where the version takes none (11.x)."""

    type: str | None
    layouts: tuple[str, ...] = ("chw",)


def layer_types(span: Span) -> frozenset[str]:
    """The types a layer may be given in every release of `span`; a type not listed may exist in some."""
    types = {"fp32", "fp16", "int8", "int32"}
    if span.low >= _V8_6:
        types.add("fp8")
    if span.low >= _V9_1:
        types.add("bf16")
    return frozenset(types)


def io_types(span: Span) -> frozenset[str]:
    """The types an input or output may be given up to 10.x."""
    types = {"fp32", "fp16", "int32", "int8", "uint8", "bool"}
    if span.low >= _V9:
        types.add("int64")
    if span.low >= _V9_1:
        types.add("bf16")
    return frozenset(types)


def has_patterns(span: Span) -> bool:
    """Whether a `*` inside a name makes it a pattern (from 9.1; before, only the bare key `*` means something)."""
    return span.low >= _V9_1


def parse_layer_precisions(value: str, span: Span) -> dict[str, str]:
    """`--layerPrecisions` as trtexec understands it: layer name or pattern -> type."""
    known = layer_types(span)
    result: dict[str, str] = {}
    for name, kind in _items(value):
        if kind not in known:
            raise GrammarError(f"'{kind}' is not a layer precision of this version")
        _put(result, name, kind)
    return result


def parse_layer_output_types(value: str, span: Span) -> dict[str, tuple[str, ...]]:
    """`--layerOutputTypes`: layer name or pattern -> types, one for all outputs or one for each."""
    known = layer_types(span)
    result: dict[str, tuple[str, ...]] = {}
    for name, kinds in _items(value):
        types = tuple(kinds.split("+"))
        for kind in types:
            if kind not in known:
                raise GrammarError(f"'{kind}' is not an output type of this version")
        _put(result, name, types)
    return result


def parse_shapes(value: str) -> dict[str, tuple[int, ...]]:
    """`--minShapes`, `--optShapes`, `--maxShapes`: input name -> dimensions."""
    result: dict[str, tuple[int, ...]] = {}
    for name, dims in _items(value):
        if not all(part.isdecimal() for part in dims.split("x")):
            raise GrammarError(f"'{dims}' is not a shape such as 1x3x224x224")
        _put(result, name, tuple(int(part) for part in dims.split("x")))
    return result


def parse_io_formats(value: str, span: Span) -> tuple[IoFormat, ...]:
    """`--inputIOFormats`, `--outputIOFormats`: `type:fmt[+fmt]` up to 10.x, `fmt[+fmt]` from 11.0."""
    known = io_types(span)
    result = []
    for item in value.split(","):
        kind: str | None = None
        layouts = item
        if span.low < _V11:
            kind, colon, layouts = item.partition(":")
            if not colon or kind not in known:
                raise GrammarError(f"'{item}' is not type:format of this version")
        for layout in layouts.split("+"):
            if layout not in LAYOUTS:
                raise GrammarError(f"Invalid TensorFormat {layouts}")
        result.append(IoFormat(kind, tuple(layouts.split("+"))))
    return tuple(result)


def parse_command(argv: Sequence[str], span: Span) -> dict[str, str | None]:
    """A whole command line: option -> value (None for a switch). Raises for what this version does not take."""
    options: dict[str, str | None] = {}
    for word in argv[1:]:
        flag, equals, value = word.partition("=")
        if flag not in TRTEXEC_FLAGS or not has_flag(flag, span):
            raise GrammarError(f"Unknown option: {flag} ({flag_history(flag)})")
        if flag in options:
            # Only the first occurrence is read; the second is left over.
            raise GrammarError(f"Unknown option: {flag} (given twice)")
        options[flag] = value if equals else None
    return options


def matching_keys(layer: str, keys: Mapping[str, object], span: Span) -> tuple[str, ...]:
    """The keys that may decide about `layer`; more than one means that the winner is not defined."""
    if layer in keys:
        return (layer,)
    if not has_patterns(span):
        return ("*",) if "*" in keys else ()
    return tuple(key for key in keys if _matches(key, layer))


def precision_of(layer: str, precisions: Mapping[str, str], span: Span) -> str | None:
    """The precision trtexec asks for on `layer`; None where no key reaches it."""
    key = _deciding_key(layer, precisions, span)
    return None if key is None else precisions[key]


def output_types_of(
    layer: str, types: Mapping[str, tuple[str, ...]], outputs: int, span: Span
) -> tuple[str, ...] | None:
    """The types trtexec really sets on the outputs of `layer`, its pattern defect from 9.1 on included."""
    key = _deciding_key(layer, types, span)
    if key is None:
        return None
    if key != layer and has_patterns(span):
        # A pattern's own types are logged but not used: the first type of the key `*`, or FP32, is set.
        return (types.get("*", ("fp32",))[0],) * outputs
    wanted = types[key]
    if len(wanted) == 1:
        return wanted * outputs
    if len(wanted) != outputs:
        raise GrammarError(
            f"Layer {layer} has {outputs} outputs but {len(wanted)} output types are given in --layerOutputTypes flag."
        )
    return wanted


def _deciding_key(layer: str, keys: Mapping[str, object], span: Span) -> str | None:
    found = matching_keys(layer, keys, span)
    if len(found) > 1:
        raise GrammarError(f"the patterns {', '.join(sorted(found))} all match layer {layer}: the winner is undefined")
    return found[0] if found else None


def _matches(pattern: str, name: str) -> bool:
    """The text before the first `*` is the prefix, all behind it, further `*` included, the suffix."""
    prefix, star, suffix = pattern.partition("*")
    if not star:
        return pattern == name
    return len(name) >= len(prefix) + len(suffix) and name.startswith(prefix) and name.endswith(suffix)


def _items(value: str) -> list[tuple[str, str]]:
    """Split at every comma, quoted or not, then each item into name and value."""
    return [_name_and_value(item) for item in value.split(",")]


def _name_and_value(item: str) -> tuple[str, str]:
    pieces = item.split("'")
    if len(pieces) == 3:
        # The character behind the closing quote is skipped, whatever it is.
        return pieces[0] + pieces[1], pieces[2][1:]
    if len(pieces) != 1:
        raise GrammarError(f"Found invalid number of 's when parsing {item}")
    name, colon, value = item.rpartition(":")
    if not colon:
        raise GrammarError(f"no ':' in '{item}'")
    return name, value


def _put(result: dict[str, _V], name: str, value: _V) -> None:
    if not name:
        raise GrammarError("an empty name")
    if name in result:
        raise GrammarError(f"'{name}' is given twice")
    result[name] = value
