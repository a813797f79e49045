"""Lends the schemas of ONNX Runtime's own operators to the onnx package while types are inferred."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock

import onnx.defs
import onnx_ir as ir

from halfwise.model.contrib.schemas import DOMAIN, RuntimeSchema, runtime_schema
from halfwise.model.contrib.shapes import infer

__all__ = ["lent_schemas"]

_one_at_a_time = Lock()


@contextmanager
def lent_schemas(model: ir.Model) -> Iterator[None]:
    """What the model uses and only the runtime knows is known to onnx until the end of the block."""
    with _one_at_a_time:
        lent = [_lend(schema) for schema in _needed(model)]
        try:
            yield
        finally:
            for schema in lent:
                onnx.defs.deregister_schema(schema.name, schema.since_version, schema.domain)


def _needed(model: ir.Model) -> list[RuntimeSchema]:
    found = {}
    for op, domain in dict.fromkeys((node.op_type, node.domain) for node in model.graph.all_nodes()):
        version = model.opset_imports.get(domain, 1)
        if domain in ("", DOMAIN) and not onnx.defs.has(op, version, domain):
            schema = runtime_schema(op, domain, version)
            if schema is not None:
                found[op, domain] = schema
    return list(found.values())


def _lend(schema: RuntimeSchema) -> onnx.defs.OpSchema:
    """A schema with the same parameters; attributes are read by their names and not checked."""
    kinds = onnx.defs.OpSchema.FormalParameterOption

    def formals(given: tuple) -> list[onnx.defs.OpSchema.FormalParameter]:  # type: ignore[type-arg]
        return [
            onnx.defs.OpSchema.FormalParameter(
                p.name,
                p.type_str,
                param_option=kinds.Variadic if p.variadic else kinds.Optional if p.optional else kinds.Single,
            )
            for p in given
        ]

    made = onnx.defs.OpSchema(
        schema.op,
        schema.domain,
        schema.since,
        inputs=formals(schema.inputs),
        outputs=formals(schema.outputs),
        type_constraints=[(name, list(types), "") for name, types in schema.allowed.items()],
    )
    made.set_type_and_shape_inference_function(partial(infer, schema))
    onnx.defs.register_schema(made)
    return made
