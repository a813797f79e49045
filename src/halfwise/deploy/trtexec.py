"""The trtexec command for a target: weak typing with exact layer names, or the typed model alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.targets import Builder, Span, Target, Typing
from halfwise.core.wording import listed
from halfwise.deploy.layer_names import shadowed_names
from halfwise.deploy.trtexec_grammar import (
    LAYOUTS,
    GrammarError,
    IoFormat,
    has_patterns,
    io_types,
    layer_types,
    matching_keys,
    parse_command,
    parse_io_formats,
    parse_layer_output_types,
    parse_layer_precisions,
    parse_shapes,
)

__all__ = ["Command", "InputShape", "LayerPrecision", "TrtexecRequest", "Unexpressible", "trtexec_command"]

# Linux takes at most 32 pages for one argument, its closing zero byte included.
_LONGEST_ARGUMENT = 32 * 4096 - 1


class Unexpressible(InputError):
    """A command that would say less than the plan is not written; the text says what is in the way, and the way out."""


@dataclass(frozen=True)
class LayerPrecision:
    """What one TensorRT layer is to run in. `outputs`: one type for all its outputs, or one for each."""

    name: str
    precision: Format = Format.FP32
    outputs: tuple[str, ...] = ("fp32",)


@dataclass(frozen=True)
class InputShape:
    """The smallest, usual and largest shape of an input whose shape is dynamic."""

    name: str
    minimum: tuple[int, ...]
    optimum: tuple[int, ...]
    maximum: tuple[int, ...]

    @property
    def limits(self) -> tuple[tuple[int, ...], ...]:
        return self.minimum, self.optimum, self.maximum


@dataclass(frozen=True)
class TrtexecRequest:
    """What the command is to do.

    `known_layers`: every layer of the network where the parser has told, else None. `nodes`: every ONNX node of the
    model, to tell which names are ambiguous where it has not.
    """

    target: Target
    onnx: str
    engine: str = "model.engine"
    layer_info: str = "layers.json"
    layers: tuple[LayerPrecision, ...] = ()
    known_layers: frozenset[str] | None = None
    nodes: tuple[str, ...] = ()
    inputs: tuple[IoFormat, ...] = ()
    outputs: tuple[IoFormat, ...] = ()
    shapes: tuple[InputShape, ...] = ()
    tf32: bool = True


@dataclass(frozen=True)
class Command:
    """A command as words, as one line for a POSIX shell, and what its user should know."""

    argv: tuple[str, ...]
    shell: str
    notes: tuple[Note, ...]


def trtexec_command(request: TrtexecRequest) -> Command:
    """The command for the request's target; raises Unexpressible where that version's trtexec cannot say it all."""
    target = request.target
    builder = target.runtime.builder
    if builder is not None and not builder.flags:
        return _unverified_command(request, builder)
    if builder is None or target.span is None:
        raise InputError(f"target {target}: trtexec is for TensorRT; name a version, e.g. --target trt-10.9")
    weak = target.typing is Typing.WEAK
    if weak:
        options, notes = _weak_options(request, target.span)
    else:
        options, notes = _strong_options(request)
    if not request.tf32:
        options.append("--noTF32")
    elif target.gpu is None or target.gpu.capability >= (8, 0):
        notes.append(Note.of(NoteKind.TF32))
    options += _io_options(request, target.span)
    options += _shape_options(request)
    if request.shapes:
        notes.append(Note.of(NoteKind.SHAPE_LIMITS, limits=_limits(request.shapes)))
    options += [
        "--profilingVerbosity=detailed",
        f"--exportLayerInfo={request.layer_info}",
        f"--saveEngine={request.engine}",
        "--skipInference" if target.has_flag("--skipInference") else "--buildOnly",
    ]
    if weak:
        options.append("--verbose")
    argv = (builder.executable, f"--onnx={request.onnx}", *options)
    _check(argv, request, target.span)
    return Command(argv, shlex.join(argv), (*target.cautions, *notes))


def _unverified_command(request: TrtexecRequest, builder: Builder) -> Command:
    if request.layers:
        raise Unexpressible(
            f"{request.target.title} is strongly typed and takes no layer precisions: give it the typed ONNX model"
        )
    argv = (builder.executable, f"--onnx={request.onnx}", f"--saveEngine={request.engine}")
    shapes = request.shapes
    notes = (
        *request.target.cautions,
        *((Note.of(NoteKind.SCRIPT_SHAPE_LIMITS, limits=_limits(shapes)),) if shapes else ()),
        Note.of(NoteKind.TOOL_UNVERIFIED, builder.executable),
    )
    _check_words(argv, request.target)
    return Command(argv, shlex.join(argv), notes)


def _strong_options(request: TrtexecRequest) -> tuple[list[str], list[Note]]:
    target = request.target
    if request.layers:
        weak = " or name a weakly typed target (+weak)" if Typing.WEAK in target.typings else ""
        raise Unexpressible(
            f"{target.title} with strong typing takes no layer precisions: give it the typed ONNX model{weak}"
        )
    notes = []
    if any(io.type for io in request.inputs + request.outputs) and target.within("8.4", "10"):
        notes.append(Note.of(NoteKind.IO_TYPES_FIXED))
    options = ["--stronglyTyped"] if target.within("9.1", "10") else []
    return options, notes


def _weak_options(request: TrtexecRequest, span: Span) -> tuple[list[str], list[Note]]:
    target = request.target
    options = ["--fp16"]
    if any(layer.precision is Format.BF16 or "bf16" in layer.outputs for layer in request.layers):
        options.append("--bf16")
    if not request.layers:
        return options, []
    layers = _without_repeats(request.layers)
    for layer in layers:
        reason = _why_not(layer, request, span)
        if reason:
            raise Unexpressible(f"layer {layer.name!r}: {reason}; {_way_out(target)}")
    precisions = ",".join(f"{layer.name}:{layer.precision.value}" for layer in layers)
    types = ",".join(f"{layer.name}:{'+'.join(layer.outputs)}" for layer in layers if layer.outputs)
    options += ["--precisionConstraints=obey", f"--layerPrecisions={precisions}"]
    if types:
        options.append(f"--layerOutputTypes={types}")
    return options, _weak_notes(layers, request, span)


def _why_not(layer: LayerPrecision, request: TrtexecRequest, span: Span) -> str | None:
    """Why --layerPrecisions cannot say this of this layer; None where it can."""
    target = request.target
    if not layer.name:
        return "a layer without a name cannot be told to trtexec"
    if "," in layer.name:
        return "trtexec splits its layer lists at every comma, quoted or not, so this name cannot be written"
    if "'" in layer.name:
        return "trtexec drops single quotes from names, so this name cannot be written"
    if layer.name == "*":
        return "trtexec reads this name as the default for all layers"
    if why := target.why_not(layer.precision):
        return f"{layer.precision.value.upper()} is not there: {why}"
    if layer.precision is Format.BF16 and not target.within("10.0"):
        return "--bf16 of TensorRT 9 works only with the preview feature fasterDynamicShapes0805"
    unknown = sorted(set(layer.outputs) - layer_types(span))
    if unknown:
        return f"{target.title} takes no output type '{unknown[0]}' in --layerOutputTypes"
    if request.known_layers is not None and layer.name not in request.known_layers:
        return "the parsed network has no such layer, and trtexec ignores unknown names without a word"
    return None


def _weak_notes(layers: Sequence[LayerPrecision], request: TrtexecRequest, span: Span) -> list[Note]:
    notes = []
    names = [layer.name for layer in layers]
    if request.known_layers is None:
        notes.append(Note.of(NoteKind.NAMES_PREDICTED, check=_how_to_check(request, span)))
        for node, other in shadowed_names(names, request.nodes):
            notes.append(Note.of(NoteKind.NAME_SHADOWED, node, other=other))
    elif has_patterns(span):
        wide = [name for name in names if "*" in name]
        others = request.known_layers.difference(names)
        for name in wide:
            also = sorted(layer for layer in others if matching_keys(layer, {name: None}, span))
            if also:
                notes.append(Note.of(NoteKind.NAME_IS_PATTERN, name, layers=also))
    if not request.target.within("8.6"):
        notes.append(Note.of(NoteKind.NO_LAYER_METADATA))
    notes.append(Note.of(NoteKind.WEAK_TYPING_LIMITS))
    if Typing.STRONG in request.target.typings:
        notes.append(Note.of(NoteKind.STRONG_TYPING_HELPS))
    return notes


def _how_to_check(request: TrtexecRequest, span: Span) -> str:
    """Where the real names of layers are seen."""
    if request.target.within("8.6", "10"):
        return "The Python build script finds the layers exactly."
    if has_patterns(span):
        return "'Set layer ... to precision' lines in the log show which were found."
    return "The Registering layer lines of the verbose log hold the real ones."


def _without_repeats(layers: Sequence[LayerPrecision]) -> tuple[LayerPrecision, ...]:
    by_name: dict[str, LayerPrecision] = {}
    for layer in layers:
        if by_name.setdefault(layer.name, layer) != layer:
            raise InputError(f"layer {layer.name!r} is given two precisions; a layer has one")
    return tuple(by_name.values())


def _io_options(request: TrtexecRequest, span: Span) -> list[str]:
    typed = request.target.within("8.4", "10")
    options = []
    for flag, formats in (("--inputIOFormats", request.inputs), ("--outputIOFormats", request.outputs)):
        for io in formats:
            strange = sorted(set(io.layouts) - LAYOUTS)
            if strange or not io.layouts:
                raise InputError(
                    f"{flag}: '{'+'.join(io.layouts)}' is no memory layout (known: {' '.join(sorted(LAYOUTS))})"
                )
            if typed and io.type not in io_types(span):
                raise InputError(
                    f"{flag}: {request.target.title} wants a type with each format, not "
                    f"'{io.type}' (known: {' '.join(sorted(io_types(span)))})"
                )
        words = [(f"{io.type}:" if typed else "") + "+".join(io.layouts) for io in formats]
        if words:
            options.append(f"{flag}={','.join(words)}")
    return options


def _shape_options(request: TrtexecRequest) -> list[str]:
    if not request.shapes:
        return []
    for shape in request.shapes:
        if not shape.name or any(mark in shape.name for mark in ",'"):
            raise Unexpressible(
                f"input {shape.name!r}: trtexec takes no name with a comma or a single quote in its shape options; "
                "rename the input in the ONNX model, or use the Python build script"
            )
    return [
        f"{flag}=" + ",".join(f"{shape.name}:{'x'.join(map(str, getattr(shape, kind)))}" for shape in request.shapes)
        for flag, kind in (("--minShapes", "minimum"), ("--optShapes", "optimum"), ("--maxShapes", "maximum"))
    ]


def _limits(shapes: Sequence[InputShape]) -> str:
    names: dict[tuple[tuple[int, ...], ...], list[str]] = {}  # a cache has as many inputs as layers, all alike
    for shape in shapes:
        names.setdefault(shape.limits, []).append(shape.name)
    return "; ".join(f"{listed(alike, quote=str)} {_limited(len(alike), *limits)}" for limits, alike in names.items())


def _limited(count: int, *limits: tuple[int, ...]) -> str:
    least, usual, most = ("x".join(map(str, shape)) for shape in limits)
    if least == most:
        return f"{'is' if count == 1 else 'are'} pinned to {most}"
    return f"{'goes' if count == 1 else 'go'} from {least} to {most}, tuned for {usual}"


def _check(argv: Sequence[str], request: TrtexecRequest, span: Span) -> None:
    """Read the command back as trtexec does; what it understands must be what was asked for."""
    _check_words(argv, request.target)
    try:
        said = parse_command(argv, span)
        precisions = parse_layer_precisions(said.get("--layerPrecisions") or "", span) if request.layers else {}
        types = parse_layer_output_types(said["--layerOutputTypes"] or "", span) if "--layerOutputTypes" in said else {}
        formats = [
            parse_io_formats(said[flag] or "", span)
            for flag in ("--inputIOFormats", "--outputIOFormats")
            if flag in said
        ]
        shapes = parse_shapes(said["--optShapes"] or "") if request.shapes else {}
    except GrammarError as error:
        raise Unexpressible(f"trtexec of {request.target.title} would not take this command: {error}") from error
    typed = request.target.within("8.4", "10")
    asked = [
        tuple(IoFormat(io.type if typed else None, io.layouts) for io in side)
        for side in (request.inputs, request.outputs)
        if side
    ]
    if (
        precisions != {layer.name: layer.precision.value for layer in request.layers}
        or types != {layer.name: layer.outputs for layer in request.layers if layer.outputs}
        or formats != asked
        or shapes != {shape.name: shape.optimum for shape in request.shapes}
    ):
        raise Unexpressible(f"trtexec of {request.target.title} would read this command otherwise than it is meant")


def _check_words(argv: Sequence[str], target: Target) -> None:
    """What no process can be started with, whatever trtexec would make of it."""
    for word in argv:
        option = word.partition("=")[0]
        size = len(word.encode("utf-8", "surrogatepass"))
        if size > _LONGEST_ARGUMENT:
            raise Unexpressible(
                f"{option} would be {size} bytes long, and Linux takes {_LONGEST_ARGUMENT} in one argument; "
                f"{_way_out(target)}"
            )
        if "\0" in word:
            raise Unexpressible(f"{option} holds a zero byte, which no command line can carry; {_way_out(target)}")


def _way_out(target: Target) -> str:
    ways = []
    if target.within("8.6", "10"):
        ways.append("use the Python build script, which needs no layer names")
    if Typing.STRONG in target.typings:
        ways.append("build the typed ONNX model with strong typing")
    else:
        ways.append("rename the node, or build the typed ONNX model with TensorRT 9.1 or later")
    return ", or ".join(ways)
