"""Weight names of build logs: splits their lists, takes fused names apart, and maps them to a model's initializers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from halfwise.compiler.buildlog.layer_text import fused_parts
from halfwise.compiler.buildlog.report import LogReport

__all__ = ["ModelNames", "WeightOrigin", "map_weights", "model_names", "with_origins"]

_ROLE = re.compile(r"\.(weight|bias|kernel|scale|shift|power|count)$")
_UNNAMED = re.compile(r" ?\(Unnamed Layer\* \d+\) \[[^\]]*\]")
_COUNTER = re.compile(r"_\d+$")
# Operators with a weight and a bias of their own: input slots of the two. All others only have constants.
_WEIGHT_SLOTS = {"weight": (1,), "kernel": (1,), "bias": (2,)}
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm"})


@dataclass(frozen=True)
class ModelNames:
    """The names of a model: every node's operator and the initializers it reads by input slot, and all initializers."""

    nodes: Mapping[str, tuple[str, Mapping[int, str]]]
    initializers: frozenset[str]


@dataclass(frozen=True)
class WeightOrigin:
    """Where a weight of the log comes from; `unknown` are parts of its name that the model does not have."""

    nodes: tuple[str, ...] = ()
    initializers: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def map_weights(
    weights: Iterable[str], names: ModelNames, registered: Mapping[str, str] | None = None
) -> dict[str, WeightOrigin]:
    """For each weight of the log, the nodes and initializers behind it.

    `registered` is the log's own map from layers to ONNX nodes; without it a trailing counter is taken off a name that
    the model does not have.
    """
    return {weight: _origin(weight, names, registered or {}) for weight in weights}


def with_origins(report: LogReport, names: ModelNames) -> LogReport:
    """The report with, at each finding about weights, the nodes and initializers behind every weight it names."""
    findings = []
    for finding in report.findings:
        if "names" in finding.numbers:
            origins = map_weights(finding.numbers["names"], names, report.structure.registered)
            listed = {
                weight: {"nodes": list(origin.nodes), "initializers": list(origin.initializers)}
                for weight, origin in origins.items()
            }
            finding = structs.replace(finding, numbers={**finding.numbers, "origins": listed})
        findings.append(finding)
    return replace(report, findings=tuple(findings))


def _origin(weight: str, names: ModelNames, registered: Mapping[str, str]) -> WeightOrigin:
    if weight in names.initializers:
        return WeightOrigin((), (weight,))
    match = _ROLE.search(weight)
    role = match[1] if match else ""
    layer = weight[: match.start()] if match else weight
    nodes: dict[str, None] = {}
    initializers: dict[str, None] = {}
    unknown: list[str] = []
    parts = (layer,) if layer in names.nodes else fused_parts(layer)
    for part in parts:
        bare = _UNNAMED.sub("", part)
        node = _node(bare, names, registered)
        if node is not None:
            nodes[node] = None
            op, slots = names.nodes[node]
            wanted = _WEIGHT_SLOTS.get(role) if op in _WEIGHTED else None
            initializers.update((name, None) for slot, name in slots.items() if wanted is None or slot in wanted)
        elif bare in names.initializers or f"{bare}.{role}" in names.initializers:
            initializers[bare if bare in names.initializers else f"{bare}.{role}"] = None
        elif bare:
            unknown.append(bare)
    return WeightOrigin(tuple(nodes), tuple(initializers), tuple(unknown))


def _node(layer: str, names: ModelNames, registered: Mapping[str, str]) -> str | None:
    for candidate in (registered.get(layer), layer, _COUNTER.sub("", layer)):
        if candidate is not None and candidate in names.nodes:
            return candidate
    return None


def model_names(path: Path | str) -> ModelNames:
    """The names in an ONNX file, subgraphs included; weights in other files are not read."""
    from halfwise.model.model import load

    model = load(path)
    nodes: dict[str, tuple[str, Mapping[int, str]]] = {}
    initializers = frozenset(value.name for value in model.initializers() if value.name)
    for node in model.nodes:
        slots = {
            slot: value.name
            for slot, value in enumerate(node.inputs)
            if value is not None and value.name and value.name in initializers
        }
        nodes[node.name or ""] = (node.op_type, slots)
    return ModelNames(nodes, initializers)
