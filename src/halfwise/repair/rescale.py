"""HW401: weights and activations outside FP16's range are moved into it by powers of two that cancel.

Precondition. A tensor's channels are multiplied by 2^k where every node between those that make it and those that
read it lets the factor pass or takes it into a constant: linear operators (MatMul, Gemm, Conv, ConvTranspose, Mul and
Div by constants, BatchNormalization, look-ups in a table), ReLU and its kin, pooling, Add, Concat and moves; or where
what reads it is a normalisation, which does not see a scale once its epsilon carries 4^k. Where a result has to
come out as it is, a multiplication right behind the linear operator takes the factor back.

Proof. f(2^k x) = 2^k f(x) for every operator passed; (W 2^(a-b)) (x 2^b) + c 2^a = 2^a (W x + c); a norm divides by
sqrt(4^k v + 4^k epsilon) = 2^k sqrt(v + epsilon). In binary floating point each product, sum and root above is scaled
by the same power of two exactly, in the same order, as long as it stays a normal FP32 number: the answer keeps its
bits. Every changed constant is checked to come back bit by bit.

What it buys. Subnormal weights keep all their bits, overflowing ones become finite, activations get room: no FP32 node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.wording import listed
from halfwise.model.model import Model
from halfwise.model.patterns.view import attribute
from halfwise.repair.graph_edit import GraphEdit, whole
from halfwise.repair.rule import Ranges, Repair
from halfwise.repair.scale_atoms import Ints, Weights
from halfwise.repair.scale_choice import Choice, choose
from halfwise.repair.scale_flow import SQUARES, ScaleFlow

__all__ = ["RESCALE", "Rescale", "scale", "scalings"]

_Edits = list[dict[str, Any]]

_EPSILON = 1e-5  # what normalisations have that state none
_SMALLEST = float(np.finfo(np.float32).tiny)


class Rescale:
    """Power-of-two rescaling of weights and activations."""

    id = "HW401"
    name = "rescale"
    bound = 0.0
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        if not ranges.high:
            return ()  # without ranges nobody knows how far an activation may be scaled
        return scalings(self.id, ScaleFlow(model, ranges))

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        return scale(model, repair)


RESCALE = Rescale()


def scalings(rule: str, flow: ScaleFlow) -> tuple[Repair, ...]:
    """One repair for each group of tensors that have to be scaled together."""
    choice = choose(flow)
    found = (_repair(rule, flow, choice, *group) for group in _groups(flow, choice))
    return tuple(repair for repair in found if repair is not None)


def scale(model: ir.Model, repair: Repair) -> bool:
    """Make the edits that a repair tells."""
    nodes = {node.name: node for node in model.graph}
    given = repair.parameters
    for name, op in zip(repair.nodes, given["operators"], strict=True):
        if name not in nodes or nodes[name].op_type != op:
            return False
    if not _read_as_found([nodes[name] for name in repair.nodes], given["scaled"]):
        return False
    changed: dict[tuple[ir.Node, int], NDArray[Any]] = {}
    for edit in given["constants"]:
        place = (nodes[edit["node"]], edit["slot"])
        array = changed.get(place)
        if array is None:
            array = whole(place[0].inputs[place[1]]) if place[1] < len(place[0].inputs) else None
        scaled = None if array is None else _scale(array, _spread(edit))
        if scaled is None:
            return False
        changed[place] = scaled
    for (node, slot), array in changed.items():
        node.replace_input_with(slot, GraphEdit(model, node, "rescaled").constant(array))
    for edit in given["fronts"]:
        node = nodes[edit["node"]]
        maker = GraphEdit(model, node, "scaled")
        node.replace_input_with(0, maker.op("Mul", [node.inputs[0], maker.constant(2.0 ** edit["power"])]))
    for edit in given["epsilons"]:
        node = nodes[edit["node"]]
        epsilon = float(attribute(node, "epsilon", _EPSILON)) * 4.0 ** edit["power"]
        node.attributes["epsilon"] = ir.AttrFloat32("epsilon", epsilon)
    for edit in given["after"]:
        node = nodes[edit["node"]]
        maker = GraphEdit(model, node, "scaled_back")
        factor = maker.constant(np.ldexp(np.float32(1.0), -_spread(edit)))
        value = node.outputs[0]
        restored = maker.op("Mul", [value, factor], after=True)
        reader = restored.producer()
        assert reader is not None
        maker.replace(value, restored, but=(reader,))
    return True


def _read_as_found(nodes: Iterable[ir.Node], scaled: Mapping[str, list[str]]) -> bool:
    """Whether every tensor that is about to be scaled is still made and read by the same nodes: another rewrite may
    have put a reader there that knows nothing of the scale."""
    made = {value.name: value for node in nodes for value in node.outputs}
    return all(name in made and _readers(made[name]) == readers for name, readers in scaled.items())


def _readers(value: ir.Value) -> list[str]:
    return sorted(reader.name or "" for reader, _ in value.uses())


def _groups(flow: ScaleFlow, choice: Choice) -> Iterator[tuple[set[int], list[Weights]]]:
    """Classes that a constant couples, with all constants that they touch: scaled together or not at all."""
    group = np.arange(len(choice.power))
    touched: list[tuple[Weights, Ints]] = []
    for weights in flow.weights:
        atoms = weights.rows if weights.columns is None else np.append(weights.rows, weights.columns)
        labels = np.unique(choice.labels[atoms])
        labels = labels[choice.power[labels] != 0]
        if len(labels) or weights in choice.after:
            touched.append((weights, labels))
            if len(labels):
                group[np.isin(group, group[labels])] = group[labels].min()
    members: dict[int, list[Weights]] = {}
    for index, (weights, labels) in enumerate(touched):
        members.setdefault(int(group[labels[0]]) if len(labels) else -1 - index, []).append(weights)
    for key, all_weights in members.items():
        yield set(np.flatnonzero(group == key).tolist()) if key >= 0 else set(), all_weights


def _repair(rule: str, flow: ScaleFlow, choice: Choice, classes: set[int], all_weights: list[Weights]) -> Repair | None:
    """The edits for one group; None where one of them would not be exact."""
    power = np.array([p if label in classes else 0 for label, p in enumerate(choice.power)])
    constants: list[dict[str, Any]] = []
    after: list[dict[str, Any]] = []
    fronts: list[dict[str, Any]] = []
    arrays: dict[tuple[ir.Node, int], NDArray[Any] | None] = {}

    def edit(weights: Weights, powers: Ints, shape: tuple[int, ...]) -> None:
        if powers.any() and weights.front:
            power_read = int(powers[0]) // (2 if weights.node.op_type in SQUARES else 1)
            fronts.append({"node": weights.node.name or "", "power": power_read})
        elif powers.any():
            entry = {"node": weights.node.name or "", "slot": weights.slot, **_written(powers, shape)}
            constants.append(entry)
            place = (weights.node, weights.slot)
            array = arrays[place] if place in arrays else whole(weights.node.inputs[weights.slot])
            arrays[place] = None if array is None else _scale(array, _spread(entry))

    for weights in all_weights:
        own = choice.after.get(weights, np.zeros(1, np.int64))
        edit(weights, power[choice.labels[weights.rows]] + own, weights.row_shape)
        if weights.columns is not None:
            edit(weights, -power[choice.labels[weights.columns]], weights.column_shape)
        if own.any() and weights.output is not None and weights.axis is not None:
            rank = len(weights.output.shape or ())
            shape = (len(own),) + (1,) * (rank - weights.axis - 1)
            after.append({"node": weights.node.name or "", **_written(own, shape)})
            for bias in (w for w in flow.weights if w.node is weights.node and w.soft and w.slot == 2):
                edit(bias, own, bias.row_shape)
    epsilons: list[dict[str, Any]] = [
        {"node": node.name or "", "power": int(power[choice.labels[atoms[0]]])}
        for node, atoms in flow.epsilons
        if power[choice.labels[atoms[0]]]
    ]
    for node, atoms in flow.roots:
        half = power[choice.labels[atoms[0]]] // 2
        if half:
            after.append({"node": node.name or "", **_written(np.array([half]), ())})
    if not (constants or fronts) or any(array is None for array in arrays.values()):
        return None
    by_name = flow.model.node_by_name
    if not all(_SMALLEST <= _epsilon(by_name[e["node"]]) * 4.0 ** e["power"] < 1e30 for e in epsilons):
        return None
    names = {entry["node"] for entry in (*constants, *fronts, *epsilons, *after)}
    names |= {node.name or "" for node, atoms in flow.passed if np.any(power[choice.labels[atoms]])}
    nodes = tuple(node.name or "" for node in flow.model.graph if node.name in names)
    operators = [by_name[name].op_type for name in nodes]
    scaled = {
        value.name or "": _readers(value)
        for value, layout in flow.layouts.items()
        if np.any(power[choice.labels[layout.atoms]])
    }
    edits = {"constants": constants, "fronts": fronts, "epsilons": epsilons, "after": after}
    return Repair(rule, nodes, _algebra(**edits), {"operators": operators, "scaled": scaled, **edits})


def _epsilon(node: ir.Node) -> float:
    return float(attribute(node, "epsilon", _EPSILON))


def _written(powers: Ints, shape: tuple[int, ...]) -> dict[str, Any]:
    powers = powers.reshape(-1)
    if (powers == powers[0]).all():
        return {"shape": [], "powers": int(powers[0])}
    return {"shape": list(shape), "powers": [int(power) for power in powers]}


def _spread(edit: dict[str, Any]) -> Ints:
    powers: Ints = np.asarray(edit["powers"], np.int64).reshape(edit["shape"])
    return powers


def _scale(array: NDArray[Any], powers: Ints) -> NDArray[Any] | None:
    """The array times 2^powers, None where that is not exact or leaves FP32's normal numbers."""
    try:
        spread = np.broadcast_arrays(array, powers)[1]
    except ValueError:
        return None
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(array, spread)
        back = np.ldexp(scaled, -spread)
    sizes = np.abs(scaled[scaled != 0])
    exact = scaled.dtype == array.dtype and np.array_equal(back, np.broadcast_to(array, back.shape))
    return scaled if exact and np.isfinite(sizes).all() and (sizes >= _SMALLEST).all() else None


def _algebra(constants: _Edits, fronts: _Edits, epsilons: _Edits, after: _Edits) -> str:
    parts = [f"{edit['node']}: what it reads * 2^{edit['power']}" for edit in fronts]
    for edit in constants:
        powers = np.unique(np.asarray(edit["powers"]))
        span = f"2^{powers[0]}" if len(powers) == 1 else f"2^{powers[0]}..2^{powers[-1]} by channel"
        parts.append(f"{edit['node']}: input {edit['slot']} * {span}")
    parts += [f"{edit['node']}: epsilon * 4^{edit['power']}" for edit in epsilons]
    tail = ", scaled back right behind" if after else ", which cancel"
    return f"f(2^k x) = 2^k f(x): {listed(parts, 4, str, '; ')}{tail}"
