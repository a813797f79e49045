"""What the page tells of a chosen node: attributes, shapes, and its weights and results in FP16's bins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from halfwise.report.axis import HIGH, LOW
from halfwise.report.html.histogram import WeightHistogram
from halfwise.report.html.names import Names
from halfwise.verbs.fix.result import FixResult

__all__ = ["coded", "with_details"]

_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_VALUES = 12  # of an attribute that is a list
_SKIPPED = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def with_details(
    graph: Mapping[str, Any], result: FixResult, histogram: WeightHistogram, names: Names
) -> dict[str, Any]:
    """Adds to each node its attributes and the shapes of its results (or -1), the weights that it reads, and how the
    values of its results spread."""
    bins: list[list[Any]] = []
    known: dict[ir.Value, int] = {}
    weights: dict[int, list[int]] = {}
    results: dict[int, list[int]] = {}
    nodes = []
    for row, site in zip(graph["nodes"], result.sites.all, strict=True):
        nodes.append([*row, _index(_attributes(site.node), names), _index(_shapes(site.node), names)])
        for value in site.node.inputs:
            tensor = value.const_value if value is not None and value.producer() is None else None
            if value is None or tensor is None or tensor.dtype != ir.DataType.FLOAT:
                continue
            if value not in known:
                known[value] = len(bins)
                first, code = coded(histogram.each.get(value.name or "", {}))
                bins.append([names(value.name or ""), names(_shape(value)), int(tensor.size), first, code])
            if known[value] not in weights.setdefault(site.index, []):
                weights[site.index].append(known[value])
        for value in site.node.outputs:
            held = result.measured.powers.get(value.name or "", {})
            first, code = coded(held)
            if code:
                results.setdefault(site.index, []).append(len(bins))
                bins.append([names(value.name or ""), names(_shape(value)), sum(held.values()), first, code])
    return {**graph, "nodes": nodes, "bins": bins, "weights": weights, "results": results}


def coded(bins: Mapping[int, int]) -> tuple[int, str]:
    """The first power of two, and a letter for each from it on: the logarithm of the count, in 36 steps."""
    gathered: dict[int, int] = {}
    for exponent, count in bins.items():
        if exponent < 128:
            key = min(max(exponent, LOW), HIGH - 1)
            gathered[key] = gathered.get(key, 0) + count
    if not gathered:
        return 0, ""
    first, last = min(gathered), max(gathered)
    counts = (gathered.get(exponent, 0) for exponent in range(first, last + 1))
    return first, "".join(_LETTERS[min(int(math.log2(n)) + 1, 35) if n else 0] for n in counts)


def _index(text: str, names: Names) -> int:
    return names(text) if text else -1


def _shapes(node: ir.Node) -> str:
    return ", ".join(_shape(value) for value in node.outputs if value.shape is not None)


def _shape(value: ir.Value) -> str:
    """ "1x64x80x80"; a size that is open has its name, or a question mark."""
    if value.shape is None:
        return "of unknown shape"
    return "x".join(str(size) if isinstance(size, int) else size.value or "?" for size in value.shape) or "scalar"


def _attributes(node: ir.Node) -> str:
    told = (f"{a.name} = {_value(a.value)}" for a in node.attributes.values() if a.type not in _SKIPPED)
    return "; ".join(told)


def _value(value: Any) -> str:
    if isinstance(value, ir.TensorProtocol):
        return f"tensor {'x'.join(str(size) for size in value.shape) or 'scalar'}"
    if isinstance(value, (list, tuple)):
        shown = ", ".join(map(_value, value[:_VALUES]))
        return f"[{shown}{', ...' if len(value) > _VALUES else ''}]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)[:200]
