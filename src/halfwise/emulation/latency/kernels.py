"""The kernels that a decision runs as: each node, or several that one kernel stands for, and the casts between."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.emulation.profiles.fusion import Fusion
from halfwise.emulation.profiles.fusions import SIZED, fused_in_fp32, fused_nodes
from halfwise.emulation.timing.of_node import Shapes, attributes_of, operand_of, operation_of, shape_of
from halfwise.emulation.timing.operation import Attribute, Operand, Operation
from halfwise.model.moving import MOVES
from halfwise.precision.assignment import Assignment

__all__ = ["Kernel", "Shapes", "kernels_of"]

# They hand the same memory on, or hold what was computed before the first run.
_FREE = frozenset(
    {"Constant", "ConstantOfShape", "Dropout", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze",
     "Unsqueeze"}
)  # fmt: skip
_FEW = 8  # whole numbers, which the host works on
_FUSED_AS = {
    "biased-product": "Gemm",
    "conv-batch-norm": "Conv",
    "fast-gelu": "Gelu",
    "gelu": "Gelu",
    "layer-norm": "LayerNormalization",
    "masked-softmax": "BiasSoftmax",
    "quick-gelu": "QuickGelu",
    "quotient": "Div",
    "rms-norm": "SimplifiedLayerNormalization",
    "scaled-product": "FusedMatMul",
    SIZED: "Gemm",
    "split-product": "FusedMatMul",
}
_OWN = frozenset({"BiasSoftmax", "FusedMatMul", "Gelu", "QuickGelu", "SkipLayerNormalization"})
_ONE_INPUT = frozenset({"Gelu", "QuickGelu"})
_OWN_DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class Kernel:
    """One kernel: the nodes that it stands for, or the tensor that it casts."""

    nodes: tuple[str, ...]
    operation: Operation
    format: Format

    @property
    def weights(self) -> int:
        """Bytes of stored numbers that it reads."""
        stored = sum(each.size for each in self.operation.inputs if each and each.fixed and each.kind == "float")
        return stored * (4 if self.format is Format.FP32 else 2)


def kernels_of(assignment: Assignment, shapes: Shapes, rule: str = "ort") -> Iterator[Kernel]:
    """In execution order, of the main graph; bodies are not looked into."""
    folded = _folded(assignment)
    groups = _groups(assignment, rule, folded, shapes)
    member = {node: group for group in groups for node in group.nodes}
    written: set[tuple[ir.Value, Format]] = set()
    for site in assignment.sites.all:
        node = site.node
        if site.nested:
            continue
        if node.outputs and folded.issuperset(node.outputs):
            continue
        group = member.get(node)
        if group is not None and node is not group.last:
            continue
        nodes = group.nodes if group is not None else (node,)
        inner = {value for each in nodes for value in each.outputs}
        for each in nodes:
            for slot, value in enumerate(each.inputs):
                if value is None or value in inner or value in folded or value.is_initializer():
                    continue
                stored, read = assignment.stored(value), assignment.read(each, slot)
                if stored is not None and read is not None and read is not stored and (value, read) not in written:
                    written.add((value, read))
                    yield _cast(value, read, shapes)
        if (node.op_type not in _FREE or node.domain) and not _tells_shapes(node, shapes):
            yield Kernel(
                tuple(each.name or "" for each in nodes), _operation(nodes, group, shapes), _format(assignment, node)
            )
    for value in assignment.sites.model.graph.outputs:
        stored, out = assignment.stored(value), assignment.outward(value, assignment.sites.model.graph)
        if stored is not None and out is not None and out is not stored and (value, out) not in written:
            yield _cast(value, out, shapes)


def _format(assignment: Assignment, node: ir.Node) -> Format:
    narrow = assignment.of(node)
    return Format.FP16 if narrow is not Format.FP32 else Format.FP32


def _cast(value: ir.Value, to: Format, shapes: Shapes) -> Kernel:
    shape = shape_of(value, shapes)
    return Kernel((), Operation("Cast", (Operand(shape),), (shape,)), to)


def _folded(assignment: Assignment) -> frozenset[ir.Value]:
    """What is computed before the first run: on the CPU, which has no arithmetic in FP16."""
    found: set[ir.Value] = set()
    for site in assignment.sites.all:
        able = _format(assignment, site.node) is Format.FP32 or site.node.op_type in MOVES | {"Cast"}
        if able and not site.nested and _is_constant(site.node, found):
            found.update(site.node.outputs)
    return frozenset(found)


def _is_constant(node: ir.Node, folded: set[ir.Value]) -> bool:
    if node.op_type in ("Shape", "Size") and not node.domain and node.inputs[0] is not None:
        shape = node.inputs[0].shape
        return shape is not None and all(isinstance(size, int) for size in shape)
    return bool(node.outputs) and all(value is None or _is_known(value, folded) for value in node.inputs)


def _is_known(value: ir.Value, folded: Collection[ir.Value]) -> bool:
    return value.const_value is not None or value in folded


def _tells_shapes(node: ir.Node, shapes: Shapes) -> bool:
    """Whether it works on a few whole numbers, which the host does."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.dtype is not None]
    return all(not v.dtype.is_floating_point() and math.prod(shape_of(v, shapes)) <= _FEW for v in values if v.dtype)


# -- several nodes as one ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Group:
    kind: str
    nodes: tuple[ir.Node, ...]
    last: ir.Node
    data: ir.Value | None = None


def _groups(assignment: Assignment, rule: str, folded: frozenset[ir.Value], shapes: Shapes) -> list[_Group]:
    fusions = (*fused_nodes(assignment, rule).ending.values(), *fused_in_fp32(assignment, rule))
    found = [_of_fusion(each) for each in fusions]
    taken = {node for group in found for node in group.nodes}
    outputs = frozenset(assignment.sites.model.graph.outputs)
    for site in assignment.sites.all:
        group = None if site.nested else _scaled_product(site.node, folded, outputs, shapes)
        if group is not None and taken.isdisjoint(group.nodes) and len({assignment.of(n) for n in group.nodes}) == 1:
            found.append(group)
            taken.update(group.nodes)
    for site in assignment.sites.all:
        node = site.node
        user = _only_user(node, outputs)
        if (
            site.nested
            or folded.issuperset(node.outputs)
            or node in taken
            or user is None
            or user in taken
            or assignment.of(node) is not assignment.of(user)
        ):
            continue
        kind = _pair(node, user, folded)
        if kind:
            found.append(_Group(kind, (node, user), user, node.inputs[0]))
            taken.update((node, user))
    return found


def _of_fusion(fusion: Fusion) -> _Group:
    return _Group(_FUSED_AS.get(fusion.kind, ""), fusion.nodes, fusion.last, fusion.data)


def _scaled_product(
    node: ir.Node, folded: frozenset[ir.Value], outputs: frozenset[ir.Value], shapes: Shapes
) -> _Group | None:
    """A product of matrices that are multiplied with one number each before."""
    if node.op_type != "MatMul" or node.domain:
        return None
    scales = []
    for value in node.inputs:
        scale = value.producer() if value is not None else None
        if scale is None or scale.op_type != "Mul" or scale.domain or _only_user(scale, outputs) is not node:
            continue
        known = [
            factor
            for factor in scale.inputs
            if factor is not None and (factor.const_value is not None or factor in folded)
        ]
        if any(math.prod(shape_of(factor, shapes)) == 1 for factor in known):
            scales.append(scale)
    return _Group("FusedMatMul", (*scales, node), node) if scales else None


def _pair(node: ir.Node, user: ir.Node, folded: frozenset[ir.Value]) -> str:
    """What ONNX Runtime makes of two nodes; empty where they stay apart."""
    if node.domain or user.domain:
        return ""
    if node.op_type == "MatMul" and user.op_type == "Add":
        bias = next((value for value in user.inputs if value is not node.outputs[0]), None)
        if _rank(node.inputs[1], folded) == 2 and _rank(bias, folded) == 1:
            return "Gemm"
    computed = all(value is not None and _rank(value, folded) is None for value in node.inputs)
    if computed and node.op_type == "Add" and user.op_type == "LayerNormalization":
        return "SkipLayerNormalization" if user.inputs[0] is node.outputs[0] else ""
    if node.op_type == "Transpose" and user.op_type == "MatMul" and _swaps_last(node):
        return "FusedMatMul"
    return ""


def _rank(value: ir.Value | None, folded: frozenset[ir.Value]) -> int | None:
    """Of what is known before the first run."""
    if value is None or not _is_known(value, folded) or value.shape is None:
        return None
    return len(value.shape)


def _swaps_last(node: ir.Node) -> bool:
    perm = node.attributes.get("perm")
    order = list(perm.as_ints()) if perm is not None else []
    rank = len(order)
    return rank >= 2 and order == [*range(rank - 2), rank - 1, rank - 2]


def _only_user(node: ir.Node, outputs: frozenset[ir.Value]) -> ir.Node | None:
    if len(node.outputs) != 1 or node.outputs[0] in outputs:
        return None
    users = {user for user, _ in node.outputs[0].uses()}
    return next(iter(users)) if len(users) == 1 else None


# -- a kernel as an operation -----------------------------------------------------------------------------------------


def _operation(nodes: tuple[ir.Node, ...], group: _Group | None, shapes: Shapes) -> Operation:
    last = nodes[-1] if group is None else group.last
    outputs = tuple(shape_of(value, shapes) for value in last.outputs if value.name)
    if group is None or not group.kind:
        if group is None:
            return operation_of(last, shapes)
        inputs = tuple(Operand(shape_of(value, shapes)) for value in _entering(nodes))
        return Operation(last.op_type, inputs, outputs)
    return _fused(group, outputs, shapes)


def _fused(group: _Group, outputs: tuple[tuple[int, ...], ...], shapes: Shapes) -> Operation:
    kind, domain = group.kind, _OWN_DOMAIN if group.kind in _OWN else ""
    out = outputs[0] if outputs else ()
    if kind in _ONE_INPUT or kind.endswith("LayerNormalization"):
        data = shape_of(group.data, shapes) if group.data is not None else out
        last = data[-1:] or (1,)
        operands = [Operand(data)]
        if kind == "SkipLayerNormalization":
            operands += [Operand(data), Operand(last, fixed=True), Operand(last, fixed=True)]
        elif kind == "LayerNormalization":
            operands += [Operand(last, fixed=True), Operand(last, fixed=True)]
        elif kind == "SimplifiedLayerNormalization":
            operands += [Operand(last, fixed=True)]
        return Operation(kind, tuple(operands), (data,), {}, domain)
    product = next((node for node in group.nodes if node.op_type in ("Conv", "MatMul")), None)
    if product is None:
        return Operation(kind, tuple(Operand(shape_of(v, shapes)) for v in _entering(group.nodes)), outputs, {}, domain)
    attributes: dict[str, Attribute] = dict(attributes_of(product)) if kind == "Conv" else {}
    operands = [each for slot in range(2) if (each := operand_of(product, slot, shapes)) is not None]
    if kind == "Gemm":
        rows = math.prod(operands[0].shape[:-1])
        columns = operands[1].shape[-1]
        flat = (Operand((rows, operands[0].shape[-1])), operands[1], Operand((columns,), fixed=True))
        return Operation(kind, flat, ((rows, columns),), {}, "")
    if kind == "Conv":
        operands.append(Operand(out[1:2], fixed=True))
    return Operation(kind, tuple(operands), outputs, attributes, domain)


def _entering(nodes: tuple[ir.Node, ...]) -> list[ir.Value]:
    made = {value for node in nodes for value in node.outputs}
    found: dict[ir.Value, None] = {}
    for node in nodes:
        found.update((value, None) for value in node.inputs if value is not None and value not in made)
    return [value for value in found if value.const_value is None or value.const_value.size > 1] or list(found)[:1]
