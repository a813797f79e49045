"""Large coordinates: grids and image sizes in arithmetic, and sines and cosines of positions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from halfwise.core.formats import Format, spacing
from halfwise.model.moving import FROM_FIRST, Move, behind, movers
from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.view import View, is_float

__all__ = ["find_large_coordinates", "find_sincos"]

# From here on FP16 holds no odd numbers.
_EXACT = 2048.0
_LARGEST = 65504.0
_ON_THE_WAY = FROM_FIRST | movers(Move.CAST)
_STEPS = 6
_LARGEST_GRID = 1 << 22


def find_large_coordinates(view: View) -> Iterator[Pattern]:
    """Arithmetic on an activation and a grid over 2048, and x - floor(x / step) * step.

    A grid is a constant of whole and half numbers, or a Range of constants. Details: `op`, `remainder` (of the second
    form), and of the first `largest`, `constant` (its name), `step` (how far apart FP16's values are there).
    """
    for node in view.of("Sub"):
        floor = _remainder(view, node)
        if floor is not None:
            details = {"op": "Sub", "remainder": True, "largest": None, "constant": None, "step": None}
            yield view.pattern("large-coordinates", node, floor, details)
    for node in view.of("Sub", "Add", "Mul", "Div"):
        for slot in (0, 1):
            constant, other = node.inputs[slot], node.inputs[1 - slot]
            if constant is None or other is None or not is_float(constant):
                continue
            if node.op_type == "Div" and slot == 1:
                continue  # makes a large number small
            largest = _largest(view, constant)
            if largest is None or not _EXACT < largest <= _LARGEST or _largest(view, other) is not None:
                continue
            if _inverts_mask(view, other):
                continue
            details = {
                "largest": largest,
                "constant": constant.name,
                "op": node.op_type,
                "remainder": False,
                "step": spacing(Format.FP16, largest),
            }
            yield view.pattern("large-coordinates", node, (), details)
            break


def find_sincos(view: View) -> Iterator[Pattern]:
    """Sin and Cos of positions times frequencies.

    Details: `phase` (name of the tensor), `positions` (of the one before its constants), `factor`: what a position is
    multiplied with at most; `largest`: a number over 2048 that the positions were multiplied with before, or None.
    """
    waves: dict[ir.Value, list[ir.Node]] = {}
    for node in view.of("Sin", "Cos"):
        source = node.inputs[0]
        phase = _phase(view, source) if source is not None else None
        if phase is not None:
            waves.setdefault(phase, []).append(node)
    for phase, nodes in waves.items():
        if {node.op_type for node in nodes} != {"Sin", "Cos"}:
            continue
        chain, positions, factor = _frequencies(view, phase)
        if chain and view.weight(positions) is None:
            details = {
                "phase": phase.name,
                "positions": positions.name,
                "factor": factor,
                "largest": _scaled_by(view, positions),
            }
            yield view.pattern("sincos-embedding", chain[-1], (*chain, *nodes), details)


def _phase(view: View, value: ir.Value) -> ir.Value:
    """Back through selections: exporters take every second column for the sine, the others for the cosine."""
    return behind(value, _ON_THE_WAY, _STEPS) or value


def _frequencies(view: View, phase: ir.Value) -> tuple[tuple[ir.Node, ...], ir.Value, float]:
    """The constant multiplications and divisions in front of a phase."""
    nodes: list[ir.Node] = []
    current, factor = phase, 1.0
    for _ in range(2 * _STEPS):
        node = view.maker(current, "Mul", "Div", "MatMul", *_ON_THE_WAY)
        if node is None:
            break
        source = node.inputs[0]
        if node.op_type in ("Mul", "Div", "MatMul"):
            left, right = node.inputs[0], node.inputs[1]
            slot = 1 if view.weight(right) is not None else 0 if node.op_type != "Div" else None
            constant = view.constant(node.inputs[slot]) if slot is not None else None
            if slot is None or constant is None or not constant.size:
                break
            source = left if slot == 1 else right
            sizes = np.abs(constant.astype(np.float64))
            if node.op_type == "Mul" and sizes.max() > _EXACT:
                break  # what makes coordinates, not a frequency
            factor *= float(sizes.max()) if node.op_type != "Div" else float(1.0 / max(sizes.min(), 1e-300))
            nodes.insert(0, node)
        if source is None:
            break
        current = view.origin(source) or source
    return tuple(nodes), current, factor


def _scaled_by(view: View, value: ir.Value) -> float | None:
    """A number over 2048 that a value was multiplied with a few steps ago."""
    product = view.maker(behind(value, _ON_THE_WAY | {"Concat"}, _STEPS), "Mul")
    sizes = (_largest(view, constant) for constant in product.inputs) if product is not None else ()
    return next((size for size in sizes if size is not None and size > _EXACT), None)


def _remainder(view: View, node: ir.Node) -> tuple[ir.Node, ...] | None:
    """The nodes of x - floor(x / step) * step in front of the subtraction."""
    product = view.maker(node.inputs[1], "Mul")
    found = view.with_number(product) if product is not None else None
    floor = view.maker(found[0], "Floor", "Round", "Ceil") if found is not None else None
    ratio = view.maker(floor.inputs[0], "Div", "Mul") if floor is not None else None
    if product is None or floor is None or ratio is None:
        return None
    same = view.alike(ratio.inputs[0], node.inputs[0]) and view.scalar(ratio.inputs[1]) is not None
    return (ratio, floor, product) if same else None


def _inverts_mask(view: View, value: ir.Value) -> bool:
    """1 - mask or mask - 1, which is about to be multiplied with a large number."""
    node = view.maker(value, "Sub")
    return node is not None and any(view.is_scalar(operand, 1.0) for operand in node.inputs)


def _largest(view: View, value: ir.Value | None) -> float | None:
    """The largest magnitude of a grid: a constant or a Range of constants; None for all else."""
    source = behind(value, _ON_THE_WAY)
    if source is not None and source.is_initializer():
        return _of_grid(source)
    node = view.maker(source, "Range")
    if node is None:
        return None
    start, limit = view.scalar(node.inputs[0]), view.scalar(node.inputs[1])
    return max(abs(start), abs(limit)) if start is not None and limit is not None else None


def _of_grid(weight: ir.Value) -> float | None:
    tensor = weight.const_value
    if tensor is None or not 0 < tensor.size <= _LARGEST_GRID or weight.dtype is None:
        return None
    if not (weight.dtype.is_floating_point() or weight.dtype.is_integer()):
        return None
    array = np.asarray(tensor.numpy()).reshape(-1)
    # A look at a few elements spares the rest of nearly every weight.
    for part in (array[:: max(1, array.size // 64)], array):
        doubled = part.astype(np.float64) * 2.0
        # A large negative number is a mask rather than a place.
        if not np.isfinite(doubled).all() or (doubled != np.rint(doubled)).any() or (doubled < -2.0 * _EXACT).any():
            return None
    return float(np.abs(array.astype(np.float64)).max())
