"""Memory layouts of inputs and outputs: which tensor may lie how, and what padding its channels costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.nearest import nearest
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Target
from halfwise.core.wording import counted
from halfwise.deploy.trtexec_grammar import LAYOUTS
from halfwise.model.model import Model
from halfwise.precision.sites import native_format

__all__ = ["Layouts", "layouts_of", "takes_layouts"]

# How many channels lie together, and so to what multiple they are padded; 1: nothing is padded.
_GROUPS = {"chw": 1, "hwc": 1, "dhwc": 1, "chw2": 2, "chw4": 4, "hwc8": 8, "dhwc8": 8, "chw16": 16, "hwc16": 16,
           "chw32": 32, "cdhw32": 32}  # fmt: skip
# NVIDIA's "Data Format Descriptions": these hold 16-bit floats (chw4 also INT8, the last four on a DLA only).
_NARROW = frozenset({"chw2", "hwc8", "dhwc8", "chw4", "chw16", "hwc16", "dla_linear", "dla_hwc4"})
_DEEP = frozenset({"dhwc", "dhwc8", "cdhw32"})  # want depth, too
_LEAST_RANK = 3  # channels, height, width; TensorRT counts them from the end


@dataclass(frozen=True)
class Layouts:
    """The layouts asked for, by the name of the input or output; what is not named is plain `chw`."""

    of: Mapping[str, tuple[str, ...]]
    notes: tuple[Note, ...] = ()

    def __getitem__(self, name: str) -> tuple[str, ...]:
        return self.of.get(name, ("chw",))

    def __bool__(self) -> bool:
        return bool(self.of)


def takes_layouts(target: Target) -> bool:
    return target.has_flag("--inputIOFormats")


def layouts_of(model: Model, target: Target, io: Format, stated: Sequence[str], said: str = "--io-formats") -> Layouts:
    """Read `hwc8`, `chw+chw16` (any of them) or `NAME=hwc8`; what the target cannot do is one clear error.

    A layout without a name is for every float input and output that has channels. `said` is where it was stated.
    """
    if not stated:
        return Layouts({})
    if not takes_layouts(target):
        raise InputError(f"{said}: {target.title} takes no memory layouts; name a TensorRT version with --target")
    model_io = {value.name or "": value for value in (*model.graph.inputs, *model.graph.outputs)}
    types = {name: model.interface.get(name, io) for name in model_io}
    found: dict[str, tuple[str, ...]] = {}
    for text in stated:
        name, equals, words = text.rpartition("=")
        layouts = tuple(words.split("+"))
        _check_words(f"{said} {text}", layouts)
        if equals and name not in model_io:
            raise InputError(f"{said} {text}: the model has no input or output {name!r}{nearest(name, model_io)}")
        chosen = [name] if equals else [n for n, v in model_io.items() if _why_not(v, layouts, types[n]) is None]
        if equals and (why := _why_not(model_io[name], layouts, types[name])):
            raise InputError(f"{said} {text}: {why}")
        if not chosen:
            first = next(iter(model_io))
            why_not = _why_not(model_io[first], layouts, types[first])
            raise InputError(f"{said} {text}: no input or output can lie so ({why_not})")
        found.update(dict.fromkeys(chosen, layouts))
    return Layouts(found, tuple(_paddings(found, model_io)))


def _check_words(stated: str, layouts: Sequence[str]) -> None:
    for layout in layouts:
        if layout not in LAYOUTS:
            known = ", ".join(sorted(LAYOUTS))
            raise InputError(f"{stated}: {layout!r} is no memory layout{nearest(layout, LAYOUTS)}; there are {known}")


def _why_not(value: ir.Value, layouts: Sequence[str], io: Format) -> str | None:
    """What keeps a tensor from lying so. Vectors of channels of 16-bit values need 16-bit values."""
    native = native_format(value)
    if native is None:
        return f"{value.name!r} is no float tensor" if any(layout != "chw" for layout in layouts) else None
    rank = len(value.shape) if value.shape is not None else None
    held = io if native is Format.FP32 else native
    for layout in layouts:
        least = _LEAST_RANK + (layout in _DEEP)
        if layout != "chw" and rank is not None and rank < least:
            return f"{value.name!r} has {counted(rank, 'dimension')}, and {layout} wants {least} or more"
        if layout in _NARROW and held is Format.FP32:
            return (
                f"{layout} is a layout of 16-bit values, and {value.name!r} is handed over in FP32: add --io-types fp16"
            )
    return None


def _paddings(found: Mapping[str, Sequence[str]], model_io: Mapping[str, ir.Value]) -> Iterator[Note]:
    """What the user has to fill: padded channels are part of the buffer that is handed over."""
    for name, layouts in found.items():
        shape = model_io[name].shape
        for layout in layouts:
            group = _GROUPS.get(layout, 1)
            place = -4 if layout in _DEEP else -3
            channels = shape[place] if shape is not None and len(shape) >= -place else None
            if group == 1 or not isinstance(channels, int) or channels % group == 0:
                continue
            padded = math.ceil(channels / group) * group
            times = padded / channels
            yield Note.of(NoteKind.CHANNELS_PADDED, name, layout=layout, channels=channels, padded=padded, times=times)
