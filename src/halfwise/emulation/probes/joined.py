"""Several probes in one typed model, so that one engine answers for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import compose, helper

from halfwise.core.formats import Format
from halfwise.emulation.probes.form import Form
from halfwise.emulation.probes.judge import form_assignment
from halfwise.precision.typed_onnx import typed_proto

__all__ = ["forms_at", "joined_feed", "joined_model", "joined_outputs", "typed_form"]

_IR_VERSION = 10


def typed_form(form: Form) -> onnx.ModelProto:
    """The form with every tensor in FP16; its inputs and outputs as the form has them."""
    return typed_proto(form_assignment(form))


def joined_model(forms: Sequence[Form]) -> onnx.ModelProto:
    """All forms side by side; they are of one opset."""
    graph = onnx.GraphProto(name="probes")
    for place, form in enumerate(forms):
        part = compose.add_prefix(typed_form(form), _prefix(place)).graph
        graph.node.extend(part.node)
        graph.initializer.extend(part.initializer)
        graph.input.extend(part.input)
        graph.output.extend(part.output)
    (opset,) = {form.opset for form in forms}
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSION)
    helper.set_model_props(model, {_prefix(place): form.name for place, form in enumerate(forms)})
    return model


def joined_feed(forms: Sequence[Form]) -> dict[str, NDArray[Any]]:
    """The inputs in the types of the model."""
    found = {}
    for place, form in enumerate(forms):
        for name, array in form.feed().items():
            narrow = array.dtype == np.float32 and form.io is Format.FP16
            found[f"{_prefix(place)}{name}"] = array.astype(np.float16) if narrow else array
    return found


def joined_outputs(forms: Sequence[Form], outputs: Mapping[str, NDArray[Any]]) -> list[list[NDArray[Any]] | None]:
    """Each form's own, in the types that it has; None where the backend gave none of them."""
    found: list[list[NDArray[Any]] | None] = []
    for place, form in enumerate(forms):
        names = [f"{_prefix(place)}y{index}" for index in range(form.outputs)]
        found.append([outputs[name] for name in names] if all(name in outputs for name in names) else None)
    return found


def forms_at(forms: Sequence[Form], nodes: Iterable[str]) -> frozenset[str]:
    """The names of the forms that nodes of these names belong to."""
    names = tuple(nodes)
    return frozenset(
        form.name for place, form in enumerate(forms) if any(name.startswith(_prefix(place)) for name in names)
    )


def _prefix(place: int) -> str:
    return f"f{place}_"
