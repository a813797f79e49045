"""Files whose nodes are typed as ONNX defines none, as converters leave behind: no runtime loads them as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import onnx.defs
import onnx_ir as ir

from halfwise.core.formats import format_of_type
from halfwise.model.families import QUANTISERS
from halfwise.model.model import Model

__all__ = ["mistyped"]

_VARIADIC = onnx.defs.OpSchema.FormalParameterOption.Variadic


@dataclass(frozen=True)
class _Types:
    """The type parameter of each operand of an operator; empty where several may differ. `stated`: those that are FP32
    only, as of DynamicQuantizeLinear."""

    read: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    stated: Mapping[str, ir.DataType] = field(default_factory=dict)


def mistyped(model: Model) -> ir.Node | None:
    """The first node with float operands of several types that have to be one, of a type that it does not take, or that
    makes another than is declared.

    Of a model as its file has it. A quantiser's scale is no such operand: TensorRT reads what ONNX's schema does not.
    """
    opset = model.opset()
    return next((node for node in model.nodes if not node.domain and _contradicts(node, opset)), None)


def _contradicts(node: ir.Node, opset: int) -> bool:
    if node.op_type == "Cast":
        made = node.outputs[0].dtype
        return made is not None and made.value != node.attributes.get_int("to", made.value)
    if node.op_type in QUANTISERS:
        return False
    known = _types(node.op_type, node.version or opset)
    found = dict(known.stated)
    for parameters, values in ((known.read, node.inputs), (known.written, node.outputs)):
        for parameter, value in zip(_repeated(parameters, len(values)), values, strict=False):
            if parameter and value is not None and isinstance(value.type, ir.TensorType):
                kind = value.type.dtype
                if format_of_type(kind) is not None and found.setdefault(parameter, kind) is not kind:
                    return True
    return False


def _repeated(parameters: Sequence[str], count: int) -> Iterator[str]:
    """The last one as often as a variadic operand needs it."""
    yield from parameters
    if parameters:
        yield from (parameters[-1] for _ in range(count - len(parameters)))


@lru_cache(maxsize=4096)
def _types(op: str, opset: int) -> _Types:
    try:
        schema = onnx.defs.get_schema(op, opset)
    except onnx.defs.SchemaError:
        return _Types()
    only = (each.type_param_str for each in schema.type_constraints if each.allowed_type_strs == ["tensor(float)"])
    return _Types(_names(schema.inputs), _names(schema.outputs), dict.fromkeys(only, ir.DataType.FLOAT))


def _names(formals: Sequence[onnx.defs.OpSchema.FormalParameter]) -> tuple[str, ...]:
    differ = [each.option == _VARIADIC and not each.is_homogeneous for each in formals]
    return tuple(
        "" if other or "(" in each.type_str else each.type_str for each, other in zip(formals, differ, strict=True)
    )
