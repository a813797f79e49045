"""The schemas of ONNX Runtime's own operators, as the installed runtime states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

__all__ = [
    "BLOCKED_DOMAIN",
    "DOMAIN",
    "IN_DEFAULT_DOMAIN",
    "Formal",
    "RuntimeSchema",
    "is_known",
    "knows",
    "runtime_schema",
]

DOMAIN = "com.microsoft"
BLOCKED_DOMAIN = "com.microsoft.nchwc"  # channels in blocks, as one CPU likes them
IN_DEFAULT_DOMAIN = frozenset({"SimplifiedLayerNormalization"})  # beside ONNX's, which knows none of that name


@dataclass(frozen=True)
class Formal:
    """An input or output: its name and its type, or the variable that stands for one."""

    name: str
    type_str: str
    optional: bool = False
    variadic: bool = False


@dataclass(frozen=True)
class RuntimeSchema:
    """One operator. `allowed`: the types that each type variable may stand for; `attributes`: the type of each."""

    op: str
    domain: str
    since: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    allowed: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, str]

    def takes(self, formal: Formal) -> tuple[str, ...]:
        return self.allowed.get(formal.type_str, (formal.type_str,))


def runtime_schema(op: str, domain: str, version: int = 1) -> RuntimeSchema | None:
    """The schema that the installed runtime has for an operator; None where it knows none of this version."""
    found = [schema for schema in _schemas().get((domain, op), ()) if schema.since <= version]
    return max(found, key=lambda schema: schema.since, default=None)


def is_known(op: str, domain: str) -> bool:
    """Whether an operator of the runtime's own domain is one of the installed runtime."""
    return domain == DOMAIN and runtime_schema(op, domain) is not None


def knows(op: str, domain: str) -> bool:
    """Whether the installed runtime has an operator of any version, as far as it tells."""
    return (domain, op) in _schemas() or not _schemas()


@cache
def _schemas() -> Mapping[tuple[str, str], tuple[RuntimeSchema, ...]]:
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    found: dict[tuple[str, str], tuple[RuntimeSchema, ...]] = {}
    for schema in getattr(runtime, "get_all_operator_schema", tuple)():
        key = (schema.domain, schema.name)
        found[key] = (*found.get(key, ()), _read(schema))
    return found


def _read(schema: object) -> RuntimeSchema:
    allowed = {c.type_param_str: tuple(c.allowed_type_strs) for c in schema.type_constraints}  # type: ignore[attr-defined]
    inputs, outputs = (
        tuple(
            Formal(p.name, p.typeStr, str(p.option).endswith("Optional"), str(p.option).endswith("Variadic"))
            for p in formals
        )
        for formals in (schema.inputs, schema.outputs)  # type: ignore[attr-defined]
    )
    attributes = {name: attribute.type.name for name, attribute in schema.attributes.items()}  # type: ignore[attr-defined]
    return RuntimeSchema(schema.name, schema.domain, schema.since_version, inputs, outputs, allowed, attributes)  # type: ignore[attr-defined]
