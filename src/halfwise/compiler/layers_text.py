"""Reads layer lists printed as text: one-line dumps of the inspector and the `Layer(Type):` lines of build logs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from halfwise.compiler.buildlog.layer_text import dtype_of, nodes_of_metadata, nodes_of_name, shape_of
from halfwise.compiler.layers_fields import Layer, LayerTensor

__all__ = ["is_layer_line", "layer_from_line", "layers_from_lines"]

# Names may hold ", " and brackets, so a line is cut at the keys it is known to have.
_DUMP = re.compile(
    r"^\s*Name: (?P<name>.*?), LayerType: (?P<type>\w*), Inputs: (?P<inputs>\[.*?\])"
    r"(?:, Constants: (?P<constants>\[.*?\]))?, Outputs: (?P<outputs>\[\]|\[ ?\{.*?\} ?\])(?=, [A-Z][\w/ ]*: |\s*$)"
    r"(?P<rest>.*)$"
)
_TENSOR = re.compile(
    r"\{ ?Name: (?P<name>.*?), (?P<fields>(?:Location|Dimensions|Format/Datatype|Datatype|DataType): .*?)"
    r" ?\}(?=, ?\{ ?Name: | ?\]$)"
)
_FIELD = re.compile(r"(?:^|, )(Location|Dimensions|Strides|StrideOrder|Format/Datatype|Datatype|DataType|Format): ")
_TACTIC = re.compile(r", TacticName: (.*?)(?=, [A-Z]\w*: |$)")
_WEIGHTS = re.compile(r", (?:Conv)?Weights: \{ ?\"?Type\"?: \"?(\w+)\"?, ?\"?Count\"?: [1-9]")
_METADATA = ", Metadata: "

_LAYER = re.compile(r"^\s*Layer\((?P<type>\w+)\): (?P<name>.+), Tactic: (?P<tactic>0x[0-9a-f]+|-?\d+), (?P<io>.*)$")
_LOG_TENSOR = re.compile(
    r"(?P<name>.*?)(?: \((?P<dtype>[A-Z]\w*)\[(?P<shape>[-\d:,]*)\]\)|\[(?P<old>[A-Z]\w*)\((?P<oldshape>[-\d:,]*)\)\])"
    r"(?:, |$)"
)


def is_layer_line(line: str) -> bool:
    return (line.lstrip().startswith("Name: ") and ", LayerType: " in line) or bool(_LAYER.match(line))


def layers_from_lines(lines: Iterable[str]) -> tuple[Layer, ...]:
    """The layers of those lines that list one; the others are passed over."""
    found = (layer_from_line(line) for line in lines)
    return tuple(layer for layer in found if layer is not None)


def layer_from_line(line: str) -> Layer | None:
    """None for a line that is not a layer, or that was cut off."""
    match = _DUMP.match(line)
    if match:
        return _dumped(match)
    match = _LAYER.match(line)
    return _logged(match) if match else None


def _dumped(match: re.Match[str]) -> Layer:
    rest, marker, metadata = match["rest"].partition(_METADATA)
    tactic = _TACTIC.search(rest)
    weights = _WEIGHTS.search(rest)
    return Layer(
        name=match["name"],
        type=match["type"],
        inputs=_dumped_tensors(match["inputs"]),
        outputs=_dumped_tensors(match["outputs"]),
        onnx_nodes=nodes_of_metadata(metadata) if marker else nodes_of_name(match["name"]),
        tactic=tactic[1] if tactic else "",
        metadata=metadata if marker else None,
        constants=_dumped_tensors(match["constants"] or "[]"),
        weights=dtype_of(weights[1]) if weights else None,
    )


def _dumped_tensors(text: str) -> tuple[LayerTensor, ...]:
    return tuple(_dumped_tensor(match["name"], match["fields"]) for match in _TENSOR.finditer(text))


def _dumped_tensor(name: str, text: str) -> LayerTensor:
    marks = list(_FIELD.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    fields = {mark[1].lower(): text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)}
    old = fields.get("format/datatype", "")
    layout = fields.get("format", old)
    return LayerTensor(name, dtype_of(fields.get("datatype", old)), shape_of(fields.get("dimensions", "")), layout)


def _logged(match: re.Match[str]) -> Layer | None:
    io = match["io"]
    arrow = io.find("-> ") if io.startswith("-> ") else io.find(" -> ")
    while arrow >= 0:
        inputs = _logged_tensors(io[:arrow].strip())
        outputs = _logged_tensors(io[arrow:].strip().removeprefix("->").strip())
        if inputs is not None and outputs is not None:
            return Layer(
                name=match["name"],
                type=match["type"],
                inputs=inputs,
                outputs=outputs,
                onnx_nodes=nodes_of_name(match["name"]),
                tactic=match["tactic"],
            )
        arrow = io.find(" -> ", arrow + 1)
    return None


def _logged_tensors(text: str) -> tuple[LayerTensor, ...] | None:
    """None where the text is not a list of tensors through and through."""
    tensors: list[LayerTensor] = []
    position = 0
    while position < len(text):
        match = _LOG_TENSOR.match(text, position)
        if not match or match.end() == position:
            return None
        dtype = match["dtype"] or match["old"]
        shape = match["shape"] if match["dtype"] else match["oldshape"]
        # TensorRT 7 prints strides where later versions print dimensions, so the sizes are not known there.
        sizes = shape_of(shape) if match["dtype"] else tuple(-1 for _ in shape_of(shape))
        tensors.append(LayerTensor(match["name"], dtype_of(dtype), sizes, f"{dtype}[{shape}]"))
        position = match.end()
    return tuple(tensors)
