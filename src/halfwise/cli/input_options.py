"""The options that say what a verb runs a model on: files, images, sound, shapes. A verb gets them as one list."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from halfwise.cli.options import Inputs
from halfwise.core.errors import InputError

__all__ = ["takes_inputs"]

_OF_IMAGES = ("size", "mean", "std", "layout", "range", "letterbox")


def _option(name: str, metavar: str, told: str, kind: Any = str, *others: str, hidden: bool = False) -> Any:
    made = typer.Option(name, *others, metavar=metavar, help=told, show_default=False, hidden=hidden)
    return Annotated[kind | None, made]


# Each option by the name of its argument; what is not given is None.
_OPTIONS: dict[str, Any] = {
    "inputs": Inputs,
    "images": _option("--images", "DIR", "Images as inputs: a folder of PNG, JPEG, ... files (extra: images).", Path),
    "size": _option("--size", "WxH", "Resize images to this. Default: the size of the model's input."),
    "mean": _option("--mean", "X,...", "Subtract from images after scaling to --range; one number or one per channel."),
    "std": _option("--std", "X,...", "Divide images by this, after --mean."),
    "layout": _option("--layout", "nchw|nhwc", "Order of the axes of images. Default: as the model's input states."),
    "range": _option("--range", "0-1|0-255|-1-1", "Range of pixel values. Default: 0-1; 0-255 for integer inputs."),
    "letterbox": Annotated[
        bool | None,
        typer.Option(
            "--letterbox/--stretch",
            help="Resize images with their proportions and grey padding, or stretch them. Default: --letterbox.",
            show_default=False,
        ),
    ],
    "audio": _option("--audio", "DIR", "Sound as inputs: a folder of WAV, FLAC, ... files (extra: audio).", Path),
    "rate": _option("--rate", "HZ", "Sampling rate of the model's input. Default: 16000.", int),
    "shapes": _option("--shapes", "NAME:1x3x640x640,...", "Shapes for open dimensions, random inputs and raw files."),
    "min_shapes": _option("--minShapes", "NAME:SHAPE,...", "Smallest shapes.", str, "--min-shapes", hidden=True),
    "opt_shapes": _option("--optShapes", "NAME:SHAPE,...", "Usual shapes.", str, "--opt-shapes", hidden=True),
    "max_shapes": _option("--maxShapes", "NAME:SHAPE,...", "Largest shapes.", str, "--max-shapes", hidden=True),
}  # fmt: skip


def takes_inputs(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `inputs` of a verb by all these options."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name == "inputs":
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
                for name, kind in _OPTIONS.items()
            ]
        else:
            kind = hints[parameter.name]
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind))

    def run(**given: Any) -> None:
        stated = {name: given.pop(name) for name in _OPTIONS}
        command(inputs=_sources(stated), **given)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _sources(stated: dict[str, Any]) -> list[Any] | None:
    """Paths, `Images`, `Audio` and `Shapes`; None where nothing was given."""
    found: list[Any] = list(stated["inputs"] or ())
    alone = [name for name in _OF_IMAGES if stated[name] is not None and stated["images"] is None]
    if alone:
        written = "--letterbox and --stretch" if alone[0] == "letterbox" else f"--{alone[0]}"
        raise InputError(f"{written}: for images only; name their folder with --images")
    if stated["rate"] is not None and stated["audio"] is None:
        raise InputError("--rate: for sound only; name its folder with --audio")
    if stated["images"] is not None:
        found.append(_images(stated))
    if stated["audio"] is not None:
        from halfwise.model.inputs.audio import Audio

        found.append(Audio(stated["audio"], stated["rate"] if stated["rate"] is not None else 16_000))
    if (shapes := _shapes(stated)) is not None:
        found.append(shapes)
    return found or None


def _images(stated: dict[str, Any]) -> Any:
    from halfwise.model.inputs.images import Images

    return Images(
        stated["images"],
        size=_size(stated["size"]),
        mean=_numbers("--mean", stated["mean"]),
        std=_numbers("--std", stated["std"]),
        layout=stated["layout"],
        range=stated["range"],
        letterbox=stated["letterbox"] is not False,
    )


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    width, times, height = text.lower().partition("x")
    if not (times and width.isdecimal() and height.isdecimal()):
        raise InputError(f"--size {text}: write WIDTHxHEIGHT, such as 640x640")
    return int(width), int(height)


def _numbers(option: str, text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError:
        raise InputError(
            f"{option} {text}: write numbers with commas between them, such as 0.485,0.456,0.406"
        ) from None


def _shapes(stated: dict[str, Any]) -> Any:
    """`--shapes`, or the three of trtexec; the order of these is kept."""
    given = [(name, stated[name]) for name in ("shapes", "min_shapes", "opt_shapes", "max_shapes") if stated[name]]
    if not given:
        return None
    from halfwise.deploy.trtexec_grammar import GrammarError, parse_shapes
    from halfwise.model.inputs.shapes import Shapes

    found: dict[str, list[tuple[int, ...]]] = {}
    for name, text in given:
        option = "--shapes" if name == "shapes" else f"--{name.partition('_')[0]}Shapes"
        try:
            parsed = parse_shapes(text)
        except GrammarError as error:
            raise InputError(f"{option} {text}: {error}; write NAME:1x3x640x640, with commas between inputs") from None
        for each, shape in parsed.items():
            found.setdefault(each, []).append(shape)
    return Shapes(found)
