"""Which nodes become one kernel: by a named rule, found by structure in an assignment, or by an engine's kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import onnx
import onnx_ir as ir

from halfwise.formats import Format
from halfwise.precision import Assignment
from halfwise.profiles.cuda import SPLIT_LENGTH, bias_joins_sum
from halfwise.profiles.steps import Steps
from halfwise.sites import Sites

__all__ = ["Fused", "FusedKernel", "Fusion", "FusionRule", "fused_nodes"]

# Spells a fusion as its kernel computes it, from its nodes as they were spelled; None where it rounds at its end only.
FusedKernel = Callable[["Fusion", Mapping[ir.Node, onnx.NodeProto], Steps], "str | None"]


@dataclass(frozen=True, eq=False)
class Fusion:
    """Nodes that run as one kernel; `last` gives its result. `data` is the tensor and `factor` the number it needs.

    `kernel`: how it computes, where that does not follow from its kind.
    """

    kind: str
    nodes: tuple[ir.Node, ...]
    last: ir.Node
    data: ir.Value | None = None
    factor: float = 1.0
    kernel: FusedKernel | None = None

    @property
    def inside(self) -> tuple[ir.Value, ...]:
        return tuple(value for node in self.nodes if node is not self.last for value in node.outputs)


class FusionRule(Protocol):
    """A rule that is no name: it finds its own candidates, and is one key of what was found."""

    def fusions(self, sites: Sites) -> Iterator[Fusion]: ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Fused:
    """Under one assignment: the tensors that no kernel stores, and the fusion that ends in a node."""

    wide: frozenset[ir.Value] = frozenset()
    ending: dict[ir.Node, Fusion] = field(default_factory=dict)


_NONE = Fused()

_CANDIDATES: WeakKeyDictionary[Sites, dict[str | FusionRule, tuple[Fusion, ...]]] = WeakKeyDictionary()
_FUSED: WeakKeyDictionary[Assignment, dict[str | FusionRule, Fused]] = WeakKeyDictionary()


def fused_nodes(assignment: Assignment, rule: str | FusionRule) -> Fused:
    """The fusions by a rule, all of whose nodes work in the same narrow format.

    A rule is a name (`ort`, `tensorrt`; none for ``) or finds fusions itself, as the kernels of an engine do.
    """
    if not rule:
        return _NONE
    known = _FUSED.setdefault(assignment, {})
    if rule not in known:
        known[rule] = _fused(assignment, rule)
    return known[rule]


def _fused(assignment: Assignment, rule: str | FusionRule) -> Fused:
    candidates = _CANDIDATES.setdefault(assignment.sites, {})
    if rule not in candidates:
        found = _candidates(assignment.sites, rule) if isinstance(rule, str) else rule.fusions(assignment.sites)
        candidates[rule] = tuple(found)
    wide: set[ir.Value] = set()
    ending: dict[ir.Node, Fusion] = {}
    taken: set[ir.Node] = set()
    for fusion in candidates[rule]:
        formats = {assignment.of(node) for node in fusion.nodes}
        if len(formats) != 1 or formats == {Format.FP32} or not taken.isdisjoint(fusion.nodes):
            continue
        taken.update(fusion.nodes)
        wide.update(fusion.inside)
        ending[fusion.last] = fusion
    return Fused(frozenset(wide), ending)


def _candidates(sites: Sites, rule: str) -> Iterator[Fusion]:
    finder = _Finder(sites)
    ort = (
        finder.batch_norms,
        finder.layer_norms,
        finder.erf_gelus,
        finder.tanh_gelus,
        finder.quick_gelus,
        finder.gemms,
        finder.scaled_products,
        finder.masked_softmaxes,
    )
    for find in ort if rule == "ort" else (finder.biased_products,):
        for fusion in find():
            if finder.closed(fusion):
                yield fusion


class _Finder:
    def __init__(self, sites: Sites) -> None:
        self.nodes = [site.node for site in sites.all if site.free and not site.nested]
        self.outputs = set(sites.model.graph.outputs)

    # -- the fusions ------------------------------------------------------------------------------------------------

    def batch_norms(self) -> Iterator[Fusion]:
        """A convolution takes the batch norm behind it into its weights."""
        for norm in self._of("BatchNormalization"):
            conv = _producer(norm.inputs[0], "Conv")
            if conv is not None and all(_constant(value) is not None for value in (*conv.inputs[1:], *norm.inputs[1:])):
                yield Fusion("conv-batch-norm", (conv, norm), norm)

    def layer_norms(self) -> Iterator[Fusion]:
        for root in self._of("Sqrt"):
            guarded = _producer(root.inputs[0], "Add")
            mean = None if guarded is None else _first(_producer(v, "ReduceMean") for v in guarded.inputs)
            square = None if mean is None else _producer(mean.inputs[0], "Pow", "Mul")
            if guarded is None or mean is None or square is None or not _squares(square) or not _last_axis(mean):
                continue
            base = square.inputs[0]
            centre = _producer(base, "Sub")
            middle = None if centre is None else _producer(centre.inputs[1], "ReduceMean")
            if centre is not None and middle is not None and middle.inputs[0] is centre.inputs[0]:
                yield from self._layer_norm((middle, centre, square, mean, guarded, root), centre.inputs[0], base)
            else:
                yield from self._rms_norm((square, mean, guarded, root), base)

    def _layer_norm(
        self, nodes: tuple[ir.Node, ...], data: ir.Value | None, centred: ir.Value | None
    ) -> Iterator[Fusion]:
        divided = self._only_user(nodes[-1], "Div")
        scaled = None if divided is None or divided.inputs[0] is not centred else self._only_user(divided, "Mul")
        shifted = None if scaled is None else self._only_user(scaled, "Add")
        if divided is None or scaled is None or shifted is None:
            return
        if _other_constant(scaled, divided) is not None and _other_constant(shifted, scaled) is not None:
            yield Fusion("layer-norm", (*nodes, divided, scaled, shifted), shifted, data)

    def _rms_norm(self, nodes: tuple[ir.Node, ...], data: ir.Value | None) -> Iterator[Fusion]:
        divided = self._only_user(nodes[-1], "Div")
        if divided is None:
            return
        inner = (*nodes, divided)
        if _number(divided.inputs[0]) == 1.0:
            product = self._only_user(divided, "Mul")
            if product is None or data not in product.inputs:
                return
            inner = (*inner, product)
        elif divided.inputs[0] is not data:
            return
        scaled = self._only_user(inner[-1], "Mul")
        if scaled is not None and _other_constant(scaled, inner[-1]) is not None:
            yield Fusion("rms-norm", (*inner, scaled), scaled, data)

    def erf_gelus(self) -> Iterator[Fusion]:
        for bent in self._of("Erf"):
            inner = _producer(bent.inputs[0], "Div", "Mul")
            shifted = self._only_user(bent, "Add")
            if inner is None or shifted is None or _number_beside(shifted, bent) != 1.0:
                continue
            factor = _number(inner.inputs[1])
            if factor is None or not (abs(factor - np.sqrt(2)) < 1e-2 or abs(factor - np.sqrt(0.5)) < 1e-2):
                continue
            yield from self._gelu("gelu", (inner, bent, shifted), inner.inputs[0])

    def tanh_gelus(self) -> Iterator[Fusion]:
        for bent in self._of("Tanh"):
            shifted = self._only_user(bent, "Add")
            if shifted is None or _number_beside(shifted, bent) != 1.0:
                continue
            inner, roots = self._pointwise_cone(bent)
            if len(roots) == 1 and len(inner) >= 4:
                yield from self._gelu("fast-gelu", (*inner, bent, shifted), roots[0])

    def _gelu(self, kind: str, inner: tuple[ir.Node, ...], data: ir.Value | None) -> Iterator[Fusion]:
        """x * (1 + f(x)) * 0.5 in any order."""
        product = self._only_user(inner[-1], "Mul")
        if product is None:
            return
        other = next(value for value in product.inputs if value is not inner[-1].outputs[0])
        halved = _producer(other, "Mul")
        if other is data:
            last = self._only_user(product, "Mul")
            if last is not None and _number_beside(last, product) == 0.5:
                yield Fusion(kind, (*inner, product, last), last, data)
        elif halved is not None and data in halved.inputs and 0.5 in (_number(v) for v in halved.inputs):
            yield Fusion(kind, (*inner, halved, product), product, data)
        elif _number(other) == 0.5:
            last = self._only_user(product, "Mul")
            if last is not None and data in last.inputs:
                yield Fusion(kind, (*inner, product, last), last, data)

    def quick_gelus(self) -> Iterator[Fusion]:
        for bent in self._of("Sigmoid"):
            data, factor = bent.inputs[0], 1.0
            nodes: tuple[ir.Node, ...] = (bent,)
            scaled = _producer(data, "Mul")
            product = self._only_user(bent, "Mul")
            if product is None:
                continue
            if data not in product.inputs and scaled is not None:
                found = _number(scaled.inputs[1])
                if found is None or scaled.inputs[0] not in product.inputs:
                    continue
                data, factor, nodes = scaled.inputs[0], found, (scaled, bent)
            if data in product.inputs:
                yield Fusion("quick-gelu", (*nodes, product), product, data, factor)

    def scaled_products(self) -> Iterator[Fusion]:
        """A product of matrices takes in constant factors before and behind it, as one factor of its result.

        So a factor that was put before a product to keep it in range does not do so.
        """
        for product in self._of("MatMul"):
            before = [self._scaling(_producer(value, "Mul", "Div"), product) for value in product.inputs]
            leading = [found for found in before if found is not None]
            behind = self._only_user(product, "Div", "Mul")
            trailing = None if behind is None else _factor(behind, product.outputs[0])
            if not leading and trailing is None:
                continue
            data = product.inputs[0]
            length = None if data is None or data.shape is None else data.shape[-1]
            split = not isinstance(length, int) or length >= SPLIT_LENGTH
            factor = math.prod(number for _, number in leading) * (trailing if trailing is not None else 1.0)
            nodes = (*(node for node, _ in leading), product)
            if behind is not None and trailing is not None:
                nodes = (*nodes, behind)
            yield Fusion("split-product" if split else "scaled-product", nodes, nodes[-1], None, factor)

    def _scaling(self, node: ir.Node | None, product: ir.Node) -> tuple[ir.Node, float] | None:
        """A node that multiplies what enters a product by a number, and that number."""
        if node is None or self._only_user(node, "MatMul") is not product:
            return None
        number = _factor(node, node.inputs[0])
        return None if number is None else (node, number)

    def gemms(self) -> Iterator[Fusion]:
        """A product of matrices takes in the vector behind it; of some sizes before the product is stored."""
        for product in self._of("MatMul"):
            added = self._only_user(product, "Add")
            weight, data = _constant(product.inputs[1]), product.inputs[0]
            bias = None if added is None else _other_constant(added, product)
            if added is None or weight is None or bias is None or data is None or data.shape is None:
                continue
            if len(weight.shape) != 2 or len(bias.shape) != 1 or bias.shape[0] != weight.shape[1]:
                continue
            if len(data.shape) > 2 and not _is_static(data):
                continue
            rows = math.prod(size if isinstance(size, int) else 1 for size in data.shape[:-1])
            if bias_joins_sum(rows, *(int(size) for size in weight.shape.numpy())):
                yield Fusion("biased-product", (product, added), added)

    def biased_products(self) -> Iterator[Fusion]:
        """A product of matrices and the constant that is added to it."""
        for product in self._of("MatMul"):
            added = self._only_user(product, "Add")
            if added is not None and _other_constant(added, product) is not None:
                yield Fusion("biased-product", (product, added), added)

    def masked_softmaxes(self) -> Iterator[Fusion]:
        for softmax in self._of("Softmax"):
            added = _producer(softmax.inputs[0], "Add")
            axis = softmax.attributes.get("axis")
            value = softmax.inputs[0]
            if added is None or value is None or value.shape is None:
                continue
            if axis is not None and axis.as_int() not in (-1, len(value.shape) - 1):
                continue
            if all(_is_static(each) for each in added.inputs):
                yield Fusion("masked-softmax", (added, softmax), softmax)

    # -- looking around ---------------------------------------------------------------------------------------------

    def closed(self, fusion: Fusion) -> bool:
        """Whether nothing outside reads what happens inside."""
        members = set(fusion.nodes)
        return all(
            value not in self.outputs and all(user in members for user, _ in value.uses()) for value in fusion.inside
        )

    def _of(self, op: str) -> Iterator[ir.Node]:
        return (node for node in self.nodes if node.op_type == op and not node.domain)

    def _only_user(self, node: ir.Node, *ops: str) -> ir.Node | None:
        users = {user for user, _ in node.outputs[0].uses()}
        user = next(iter(users)) if len(users) == 1 else None
        return user if user is not None and user.op_type in ops and not user.domain else None

    def _pointwise_cone(self, node: ir.Node) -> tuple[tuple[ir.Node, ...], list[ir.Value]]:
        """The products and sums above a node, down to what is neither one of them nor a number."""
        inner: dict[ir.Node, None] = {}
        roots: dict[ir.Value, None] = {}
        stack = [value for value in node.inputs if value is not None]
        while stack:
            value = stack.pop()
            if _number(value) is not None:
                continue
            above = _producer(value, "Mul", "Add", "Pow")
            if above is None or len(inner) > 6 or not any(_is_part(v) for v in above.inputs):
                roots[value] = None
                continue
            inner[above] = None
            stack += [v for v in above.inputs if v is not None]
        return tuple(inner), list(roots)


def _is_part(value: ir.Value | None) -> bool:
    """Whether an input of a pointwise node is a number, or made by a node that has one."""
    if value is None:
        return False
    if _number(value) is not None:
        return True
    above = _producer(value, "Mul", "Pow")
    return above is not None and any(_number(v) is not None for v in above.inputs)


def _producer(value: ir.Value | None, *ops: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and node.op_type in ops and not node.domain else None


def _first(nodes: Iterator[ir.Node | None]) -> ir.Node | None:
    return next((node for node in nodes if node is not None), None)


def _constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    if value is None:
        return None
    if value.const_value is not None:
        return value.const_value
    made = _producer(value, "Constant")
    found = made.attributes.get("value") if made is not None else None
    return found.as_tensor() if found is not None else None


def _number(value: ir.Value | None) -> float | None:
    tensor = _constant(value)
    return float(tensor.numpy().reshape(-1)[0]) if tensor is not None and tensor.size == 1 else None


def _factor(node: ir.Node, data: ir.Value | None) -> float | None:
    """By what number a node multiplies its first input."""
    number = _number(node.inputs[1]) if node.inputs[0] is data else None
    if number is None or _number(data) is not None:
        return None
    return number if node.op_type == "Mul" else 1.0 / number if number else None


def _other_constant(node: ir.Node, beside: ir.Node) -> ir.TensorProtocol | None:
    return next((_constant(value) for value in node.inputs if value is not beside.outputs[0]), None)


def _number_beside(node: ir.Node, beside: ir.Node) -> float | None:
    return next((_number(value) for value in node.inputs if value is not beside.outputs[0]), None)


def _squares(node: ir.Node) -> bool:
    if node.op_type == "Mul":
        return node.inputs[0] is node.inputs[1]
    return _number(node.inputs[1]) == 2.0


def _last_axis(node: ir.Node) -> bool:
    value, axes = node.inputs[0], node.attributes.get("axes")
    found = list(axes.as_ints()) if axes is not None else None
    if found is None and len(node.inputs) > 1:
        tensor = _constant(node.inputs[1])
        found = None if tensor is None else [int(axis) for axis in tensor.numpy().reshape(-1)]
    rank = None if value is None or value.shape is None else len(value.shape)
    return found is not None and (found == [-1] or (rank is not None and found == [rank - 1]))


def _is_static(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and all(isinstance(size, int) for size in value.shape)
