"""HW401: weights and activations outside FP16's range are moved into it by powers of two that cancel.

Precondition. A tensor's channels are multiplied by 2^k where every node between those that make it and those that read
it lets the factor pass or takes it into a constant: linear operators (MatMul, Gemm, Conv, ConvTranspose, Mul and Div by
constants, BatchNormalization, look-ups in a table), ReLU and its kin, pooling, Add, Concat and moves, those among them
that split channels into heads and merge heads, and those that gather or scatter by computed places; attention weighs
values, and powers of queries and keys cancel; comparisons of two, or with 0, see no power; a recurrent operator's
weight takes back what its input carries. Or what reads it is a normalisation, which does not see a scale once its
epsilon carries 4^k, or a quantiser, whose scale carries 2^k. Where what overflows is multiplied by a gate that reads
it, too, as in x * sigmoid(x), one multiplication in front of the gate restores it. Where a result has to come out as it
is, a multiplication right behind the linear operator takes the factor back. Where constants are not enough for what
overflows, one multiplication stands behind a graph input (in FP32 if FP16 does not hold that), behind what lets no
factor pass, or in front of a graph output. Channels that FP16 loses and that come from a graph input or are a graph
output, as those of a cache, are multiplied behind the one and in front of the other, in FP32. Variances of a
BatchNormalization beyond FP16 are scaled by 4^k with its epsilon, and its scale by 2^k.

Proof. f(2^k x) = 2^k f(x) for every operator passed; (W 2^(a-b)) (x 2^b) + c 2^a = 2^a (W x + c); a norm divides by
sqrt(4^k v + 4^k epsilon) = 2^k sqrt(v + epsilon). In binary floating point each product, sum and root above is scaled
by the same power of two exactly, in the same order, as long as it stays a normal FP32 number: the answer keeps its
bits. Every changed constant is checked to come back bit by bit, but for weights and terms that the scale takes below
2^-126 beside others above 2^-78: with x in FP16's range their products are below 2^-110, where FP16 ends at 2^-24.
They become 0, which the repair says; such are the weights that decay leaves in units that died in training.

What it buys. Subnormal weights keep all their bits, overflowing ones become finite, activations get room: no FP32 node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from halfwise.model.model import Model
from halfwise.model.patterns.view import attribute
from halfwise.repair.distinct import distinct
from halfwise.repair.graph_edit import GraphEdit, is_constant, node_named
from halfwise.repair.rule import Ranges, Repair
from halfwise.repair.scale_algebra import algebra
from halfwise.repair.scale_atoms import Ints, Weights
from halfwise.repair.scale_choice import Choice, choose
from halfwise.repair.scale_edits import Edits, told_once
from halfwise.repair.scale_ends import flow_of
from halfwise.repair.scale_flow import ScaleFlow
from halfwise.repair.scale_layout import Layout
from halfwise.repair.scale_variances import scaled_variances
from halfwise.repair.scaled_constants import Scaled, spread_over, times_powers

__all__ = ["RESCALE", "Rescale", "scale", "scalings"]


_EPSILON = 1e-5  # what normalisations have that state none
_SUMS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Add", "Sub", "Sum"})  # of terms, large ones beside small
_LOST = 2.0**-20  # of an FP32 answer: a term next to nothing may decide how a sum at a tie is rounded
_SMALLEST, _MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


class Rescale:
    """Power-of-two rescaling of weights and activations."""

    id = "HW401"
    name = "rescale"
    bound = 0.0
    lossy = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        if not ranges.high:
            return ()  # without ranges nobody knows how far an activation may be scaled
        return *scalings(self.id, flow_of(model, ranges)), *scaled_variances(self.id, model)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        return scale(model, repair)


RESCALE = Rescale()


def scalings(rule: str, flow: ScaleFlow) -> tuple[Repair, ...]:
    """One repair for each group of tensors that have to be scaled together."""
    choice = choose(flow)
    found = (_repair(rule, flow, choice, group) for group in _groups(flow, choice))
    return tuple(repair for repair in found if repair is not None)


def scale(model: ir.Model, repair: Repair) -> bool:
    """Make the edits that a repair tells."""
    given = repair.parameters
    nodes = _nodes_as_found(model, repair)
    if nodes is None:
        return False
    inputs = {value.name: value for value in model.graph.inputs}
    entries = [inputs[edit["input"]] for edit in given.get("entries", ())]
    if not _read_as_found([nodes[name] for name in repair.nodes], entries, given["scaled"]):
        return False
    constants = _scaled_constants(nodes, given["constants"])
    if constants is None:
        return False
    for (node, slot), scaled in constants.items():
        node.replace_input_with(slot, GraphEdit(model, node, "rescaled").weight(scaled.tensor))
    _scale_before(model, nodes, given, entries)
    _scale_behind(model, nodes, given)
    return True


def _nodes_as_found(model: ir.Model, repair: Repair) -> dict[str, ir.Node] | None:
    """The repair's nodes by name; None where one is gone or became another operator."""
    named = [(name, node_named(model, name)) for name in repair.nodes]
    nodes = {name: node for name, node in named if node is not None}
    if len({node.graph for node in nodes.values()}) > 1:
        return None
    for name, op in zip(repair.nodes, repair.parameters["operators"], strict=True):
        if name not in nodes or nodes[name].op_type != op:
            return None
    return nodes


def _scaled_constants(nodes: Mapping[str, ir.Node], edits: Sequence[Any]) -> dict[tuple[ir.Node, int], Scaled] | None:
    """The new constants by their place; None where one cannot be scaled without loss."""
    powers: dict[tuple[ir.Node, int], list[Ints]] = {}
    for edit in edits:
        powers.setdefault((nodes[edit["node"]], edit["slot"]), []).append(spread_over(edit))
    changed: dict[tuple[ir.Node, int], Scaled] = {}
    for (node, slot), each in powers.items():
        tensor = _constant(node, slot)
        made = None if tensor is None else times_powers(tensor, each, empties=node.op_type in _SUMS)
        if made is None:
            return None
        changed[node, slot] = made
    return changed


def _scale_before(
    model: ir.Model, nodes: Mapping[str, ir.Node], given: Mapping[str, Any], entries: Sequence[ir.Value]
) -> None:
    """What nodes read: factors before them and behind the model's inputs, terms of sums, epsilons."""
    for edit in given["fronts"]:
        node = nodes[edit["node"]]
        maker = GraphEdit(model, node, "scaled")
        node.replace_input_with(0, maker.op("Mul", [node.inputs[0], maker.constant(2.0 ** edit["power"])]))
    for edit, value in zip(given.get("entries", ()), entries, strict=True):
        node = nodes[edit["node"]]
        maker = GraphEdit(model, node, "scaled")
        readers = [(reader, slot) for reader, slot in value.uses() if reader.graph is node.graph]
        small = maker.op("Mul", [value, maker.constant(_factor(edit))], first=True)
        small.shape = value.shape
        for reader, slot in readers:
            reader.replace_input_with(slot, small)
    _restore(model, nodes, given.get("gates", ()))
    for edit in given.get("terms", ()):
        _add_term(model, nodes[edit["node"]], edit["power"])
    for edit in given["epsilons"]:
        node = nodes[edit["node"]]
        epsilon = float(attribute(node, "epsilon", _EPSILON)) * 4.0 ** edit["power"]
        node.attributes["epsilon"] = ir.AttrFloat32("epsilon", epsilon)


def _restore(model: ir.Model, nodes: Mapping[str, ir.Node], edits: Sequence[Any]) -> None:
    """What gates multiply is scaled, and what they read is as it was: one factor is in front of all steps to them."""
    made: dict[ir.Value, ir.Value] = {}
    for edit in edits:
        node = nodes[edit["node"]]
        value = next(each for each in node.inputs if each is not None and each.name == edit["input"])
        if value not in made:
            maker = GraphEdit(model, node, "restored")
            made[value] = maker.op("Mul", [value, maker.constant(_factor(edit))])
            made[value].shape = value.shape
        for slot in (slot for slot, each in enumerate(node.inputs) if each is value):
            node.replace_input_with(slot, made[value])


def _scale_behind(model: ir.Model, nodes: Mapping[str, ir.Node], given: Mapping[str, Any]) -> None:
    """What nodes give: scaled, and at the end of the flow scaled back."""
    for edit in given.get("behind", ()):
        _times(model, nodes[edit["node"]], "scaled", _factor(edit))
    for edit in given.get("ends", ()):
        _times_at_end(model, nodes[edit["node"]], 1.0 / _factor(edit))
    for edit in given["after"]:
        _times(model, nodes[edit["node"]], "scaled_back", 1.0 / _factor(edit))


def _factor(edit: Mapping[str, Any]) -> Any:
    return np.ldexp(np.float32(1.0), edit["power"] if "power" in edit else spread_over(edit))


def _times(model: ir.Model, node: ir.Node, purpose: str, factor: Any) -> None:
    """What a node gives is multiplied right behind it."""
    maker, value = GraphEdit(model, node, purpose), node.outputs[0]
    maker.replace(value, maker.op("Mul", [value, maker.constant(factor)], after=True), but=maker.made)


def _times_at_end(model: ir.Model, node: ir.Node, factor: Any) -> None:
    """What a node gives is an output of the graph, which is multiplied; its other readers read it as it is."""
    maker, value = GraphEdit(model, node, "scaled_back"), node.outputs[0]
    readers = [reader for reader, _ in value.uses()]
    maker.replace(value, maker.op("Mul", [value, maker.constant(factor)], after=True), but=[*readers, *maker.made])


def _add_term(model: ir.Model, node: ir.Node, power: int) -> None:
    """What a power of two is to a logarithm, taken off behind it; to an exponential, added in front of it."""
    maker = GraphEdit(model, node, "scaled")
    if node.op_type == "Exp":
        node.replace_input_with(0, maker.op("Add", [node.inputs[0], maker.constant(power * math.log(2.0))]))
        return
    value = node.outputs[0]
    restored = maker.op("Add", [value, maker.constant(-power * math.log(2.0))], after=True)
    maker.replace(value, restored, but=maker.made)


def _read_as_found(nodes: Sequence[ir.Node], entries: Iterable[ir.Value], scaled: Mapping[str, list[str]]) -> bool:
    """Whether every tensor that is about to be scaled is still made and read by the same nodes: another rewrite may
    have put a reader there that knows nothing of the scale."""
    made = {value.name: value for node in nodes for value in node.outputs} | {value.name: value for value in entries}
    return all(name in made and _readers(made[name], nodes[0].graph) == readers for name, readers in scaled.items())


def _readers(value: ir.Value, graph: ir.Graph | ir.Function | None) -> list[str]:
    """Those in this graph."""
    return sorted(reader.name or "" for reader, _ in value.uses() if reader.graph is graph)


@dataclass(frozen=True, eq=False)
class _Group:
    """Classes that a constant couples, scaled together or not at all: the constants and all else that they touch.
    Where a constant's rows are scaled back right behind it, it is a group of its own."""

    weights: list[Weights] = field(default_factory=list)
    epsilons: list[tuple[ir.Node, Ints]] = field(default_factory=list)
    roots: list[tuple[ir.Node, Ints]] = field(default_factory=list)
    terms: list[tuple[ir.Node, Ints]] = field(default_factory=list)
    ends: list[tuple[tuple[ir.Node, Layout], Ints]] = field(default_factory=list)
    passed: list[tuple[ir.Node, Ints]] = field(default_factory=list)
    values: list[tuple[ir.Value, Ints]] = field(default_factory=list)


def _groups(flow: ScaleFlow, choice: Choice) -> Iterable[_Group]:
    labels, parent = choice.classes.labels, np.arange(choice.classes.count)

    def root(label: int) -> int:
        while parent[label] != label:
            parent[label] = label = int(parent[parent[label]])
        return label

    def join(mine: Ints) -> None:
        for label in mine[1:]:
            parent[root(int(label))] = root(int(mine[0]))

    touched: list[tuple[Weights, Ints]] = []
    for weights in flow.weights:
        atoms = weights.rows if weights.columns is None else np.append(weights.rows, weights.columns)
        mine = distinct(labels[atoms])
        mine = mine[choice.power[mine] != 0]
        if len(mine) or weights in choice.after:
            touched.append((weights, mine))
        join(mine)
    for _, layout in flow.ends:
        mine = distinct(labels[layout.atoms])
        join(mine[choice.power[mine] != 0])
    found: dict[int, _Group] = {}
    for index, (weights, mine) in enumerate(touched):
        found.setdefault(root(int(mine[0])) if len(mine) else -1 - index, _Group()).weights.append(weights)
    reads = [follow.read for follow, kept in zip(flow.atoms.follows, choice.classes.kept, strict=True) if not kept]
    roots = [node for node, kept in zip(flow.roots, choice.classes.kept, strict=True) if not kept]
    values = [(value, layout.atoms) for value, layout in flow.layouts.items()]
    of_kind = {"epsilons": flow.epsilons, "roots": zip(roots, reads, strict=True), "terms": flow.terms}
    ends = [((node, layout), layout.atoms) for node, layout in flow.ends]
    for kind, items in {**of_kind, "ends": ends, "passed": flow.passed, "values": values}.items():
        for item, atoms in items:
            mine = distinct(labels[atoms])
            for key in {root(int(label)) for label in mine[choice.power[mine] != 0]}:
                getattr(found.setdefault(key, _Group()), kind).append((item, atoms))
    return found.values()


def _repair(rule: str, flow: ScaleFlow, choice: Choice, group: _Group) -> Repair | None:
    """The edits for one group; None where one of them would not be exact."""
    made = Edits(flow.model.graph)
    for weights in group.weights:
        _scale_weights(made, flow, choice, weights)
    for node, atoms in group.roots:
        made.scale_back(node, choice.of(atoms)[:1] // 2, ())
    epsilons, terms = (
        [{"node": node.name or "", "power": int(choice.of(atoms)[0])} for node, atoms in each]
        for each in (group.epsilons, group.terms)
    )
    ends = [
        {"node": node.name or "", **told_once(choice.of(atoms), layout.shape(flow.rank(node.outputs[0]) or 0))}
        for (node, layout), atoms in group.ends
    ]
    if not (made.constants or made.fronts or made.entries or terms or made.behind):
        return None
    scaled = _scaled_constants(flow.model.node_by_name, made.constants)
    if scaled is None or not _norms_bear(flow, choice, group):
        return None
    edits = {"constants": made.constants, "fronts": made.fronts, "epsilons": epsilons, "after": made.after}
    seldom = {"entries": made.entries, "terms": terms, "behind": made.behind, "gates": made.gates, "ends": ends}
    edits |= {word: more for word, more in seldom.items() if more}
    emptied = [node.name or "" for (node, _), each in scaled.items() if each.emptied]
    return _told(rule, flow, choice, group, edits, emptied)


def _scale_weights(made: Edits, flow: ScaleFlow, choice: Choice, weights: Weights) -> None:
    """A weight, and right behind it what takes the factor back, with the biases between."""
    own = choice.after.get(weights, np.zeros(1, np.int64))
    rows, columns = choice.of(weights.rows) + own, weights.columns
    read = np.zeros(1, np.int64) if columns is None else choice.of(columns)
    if (rows == rows[0]).all() and (read == read.flat[0]).all():
        made.scale(weights, rows[:1] - read.reshape(-1)[:1], ())
    else:
        made.scale(weights, rows, weights.row_shape)
        made.scale(weights, -read, weights.column_shape)
    if own.any() and weights.output is not None and weights.axis is not None and weights.node is not None:
        rank = len(weights.output.shape or ())
        made.scale_back(weights.node, own, (len(own),) + (1,) * (rank - weights.axis - 1))
        for bias in flow.biases.get(weights.node, ()):
            made.scale(bias, own, bias.row_shape)


def _norms_bear(flow: ScaleFlow, choice: Choice, group: _Group) -> bool:
    """Whether the epsilons stay normal numbers, and no norm answers otherwise once it is scaled."""
    grown = [_epsilon(node) * 4.0 ** choice.of(atoms)[0] for node, atoms in group.epsilons]
    scaled = (node for node, atoms in group.epsilons if choice.of(atoms).any())
    return all(_SMALLEST <= each < 1e30 for each in grown) and not any(_squares_are_lost(n, flow) for n in scaled)


def _told(
    rule: str,
    flow: ScaleFlow,
    choice: Choice,
    group: _Group,
    edits: dict[str, list[dict[str, Any]]],
    emptied: Sequence[str],
) -> Repair:
    names = {str(entry["node"]) for kind in edits.values() for entry in kind}
    names |= {node.name or "" for node, atoms in group.passed if choice.of(atoms).any()}
    nodes = tuple(sorted(names, key=flow.place.__getitem__))
    operators = [flow.model.node_by_name[name].op_type for name in nodes]
    graph = flow.model.graph
    scaled = {value.name or "": _readers(value, graph) for value, atoms in group.values if choice.of(atoms).any()}
    parameters = {"operators": operators, "scaled": scaled, **edits}
    return Repair(rule, nodes, algebra(**edits, emptied=emptied), parameters, loses=_LOST if emptied else 0.0)


def _constant(node: ir.Node, slot: int) -> ir.TensorProtocol | None:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    return value.const_value if is_constant(value) and value is not None else None


def _squares_are_lost(node: ir.Node, flow: ScaleFlow) -> bool:
    """Whether a norm may sum more than FP32 holds in the model as it is, which then answers otherwise than scaled."""
    read = [value for value in node.inputs if value is not None and not is_constant(value)]
    elements = max((flow.ranges.size.get(value.name or "", 1) for value in read), default=1)
    return sum(flow.high(value) for value in read) ** 2 * elements > _MOST


def _epsilon(node: ir.Node) -> float:
    return float(attribute(node, "epsilon", _EPSILON))
