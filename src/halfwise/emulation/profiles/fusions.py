"""Which nodes become one kernel: by a named rule, found by structure in an assignment, or by an engine's kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import onnx
import onnx_ir as ir

from halfwise.core.formats import Format
from halfwise.emulation.profiles.cuda import SPLIT_LENGTH, bias_joins_sum
from halfwise.emulation.profiles.fusion import Fusion, FusionRule
from halfwise.emulation.profiles.norm_fusions import (
    UNREAD_EPSILON,
    Norm,
    drops_cast,
    norms_of,
)
from halfwise.emulation.profiles.steps import Steps
from halfwise.emulation.profiles.wide import WIDE_RULE, unstored
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["ANY_RULE", "SIZED", "Fused", "candidates", "fused_in_fp32", "fused_nodes"]

ANY_RULE = "any"  # what some runtime fuses
SIZED = "sized-product"  # a product and its bias, of sizes at which ONNX Runtime's CUDA provider adds it first


@dataclass(frozen=True)
class Fused:
    """Under one assignment: the tensors that no kernel stores or rounds, and the fusion that ends in a node."""

    wide: frozenset[ir.Value] = frozenset()
    ending: dict[ir.Node, Fusion] = field(default_factory=dict)


_NONE = Fused()

_CANDIDATES: WeakKeyDictionary[Sites, dict[str | FusionRule, tuple[Fusion, ...]]] = WeakKeyDictionary()
_FUSED: WeakKeyDictionary[Assignment, dict[str | FusionRule, Fused]] = WeakKeyDictionary()


def fused_nodes(assignment: Assignment, rule: str | FusionRule) -> Fused:
    """The fusions by a rule that happen under an assignment.

    A rule is a name (`ort`, `tensorrt`, `wide`; none for ``), or finds fusions itself, as the kernels of an engine do.
    """
    if not rule:
        return _NONE
    known = _FUSED.setdefault(assignment, {})
    if rule not in known:
        known[rule] = Fused(unstored(assignment)) if rule == WIDE_RULE else _fused(assignment, rule)
    return known[rule]


def fused_in_fp32(assignment: Assignment, rule: str) -> tuple[Fusion, ...]:
    """Those whose nodes are all in FP32: nothing in them is rounded, and yet they are one kernel."""
    if not rule or rule == WIDE_RULE:
        return ()
    found: list[Fusion] = []
    taken: set[ir.Node] = set()
    for fusion in _candidates(assignment.sites, rule):
        if taken.isdisjoint(fusion.nodes) and {assignment.of(node) for node in fusion.nodes} == {Format.FP32}:
            found.append(fusion)
            taken.update(fusion.nodes)
    return tuple(found)


def _candidates(sites: Sites, rule: str | FusionRule) -> tuple[Fusion, ...]:
    found_by = _CANDIDATES.setdefault(sites, {})
    if rule not in found_by:
        found_by[rule] = tuple(candidates(sites, rule) if isinstance(rule, str) else rule.fusions(sites))
    return found_by[rule]


def _fused(assignment: Assignment, rule: str | FusionRule) -> Fused:
    wide: set[ir.Value] = set()
    ending: dict[ir.Node, Fusion] = {}
    taken: set[ir.Node] = set()
    for fusion in _candidates(assignment.sites, rule):
        if not fusion.fires(assignment) or not taken.isdisjoint(fusion.nodes):
            continue
        taken.update(fusion.nodes)
        wide.update(fusion.inside)
        if fusion.norm is not None and drops_cast(fusion.norm, assignment):
            wide.add(fusion.norm.data)
        ending[fusion.last] = fusion
    return Fused(frozenset(wide), ending)


def candidates(sites: Sites, rule: str) -> Iterator[Fusion]:
    finder = _Finder(sites)
    ort = (
        finder.batch_norms,
        finder.norms,
        finder.inverses,
        finder.erf_gelus,
        finder.tanh_gelus,
        finder.quick_gelus,
        finder.gemms,
        finder.scaled_products,
        finder.masked_softmaxes,
    )
    tensorrt = (finder.biased_products,)
    for find in {"ort": ort, "tensorrt": tensorrt, ANY_RULE: (*ort, *tensorrt)}[rule]:
        for fusion in find():
            if fusion.closed(finder.outputs):
                yield fusion


class _Finder:
    def __init__(self, sites: Sites) -> None:
        self.model = sites.model
        self.all = {site.node for site in sites.all if not site.nested}
        self.nodes = [site.node for site in sites.all if site.free and not site.nested]
        self.outputs = set(sites.model.graph.outputs)

    # -- the fusions ------------------------------------------------------------------------------------------------

    def batch_norms(self) -> Iterator[Fusion]:
        """A convolution takes the batch norm behind it into its weights."""
        for norm in self._of("BatchNormalization"):
            conv = _producer(norm.inputs[0], "Conv")
            if conv is not None and all(_constant(value) is not None for value in (*conv.inputs[1:], *norm.inputs[1:])):
                yield Fusion("conv-batch-norm", (conv, norm), norm)

    def norms(self) -> Iterator[Fusion]:
        for norm in norms_of(self.model):
            if all(node in self.all for node in norm.nodes):
                yield from self._kernels(norm)
                if norm.core is not None:
                    yield from self._kernels(norm.core)

    def _kernels(self, norm: Norm) -> Iterator[Fusion]:
        yield Fusion(norm.kind, norm.nodes, norm.last, norm.data, norm=norm)
        if norm.kind == "rms-norm":
            yield Fusion(
                norm.kind, norm.nodes, norm.last, norm.data, norm=norm, kernel=_with_own_epsilon, own_epsilon=True
            )

    def inverses(self) -> Iterator[Fusion]:
        """1 / x, and what it is multiplied with, divided by x at once."""
        for inverse in self._of("Div"):
            product = self._only_user(inverse, "Mul") if _number(inverse.inputs[0]) == 1.0 else None
            if product is not None:
                yield Fusion("quotient", (inverse, product), product)

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
        """Of one whose result is the model's own, ONNX Runtime keeps the nodes."""
        for bent in self._of("Tanh"):
            shifted = self._only_user(bent, "Add")
            if shifted is None or _number_beside(shifted, bent) != 1.0:
                continue
            inner, roots = self._pointwise_cone(bent)
            if len(roots) == 1 and len(inner) >= 4:
                found = self._gelu("fast-gelu", (*inner, bent, shifted), roots[0])
                yield from (each for each in found if not each.last.outputs[0].is_graph_output())

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
                yield Fusion(SIZED, (product, added), added)

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


def _is_static(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and all(isinstance(size, int) for size in value.shape)


def _with_own_epsilon(fusion: Fusion, inside: Mapping[ir.Node, onnx.NodeProto], steps: Steps) -> str | None:
    """An RMSNorm that takes an epsilon of its own for the one that it was given."""
    norm = fusion.norm
    assert norm is not None
    square, mean, scaled = norm.body[0], norm.body[1], norm.tail[0]
    if abs(norm.epsilon - UNREAD_EPSILON) < 1e-3 * UNREAD_EPSILON:
        return None
    variance = next(
        name
        for name, value in zip(inside[norm.guarded].input, norm.guarded.inputs, strict=True)
        if value is mean.outputs[0]
    )
    root = steps.op("Sqrt", steps.op("Add", variance, steps.constant(UNREAD_EPSILON)))
    normal = steps.op("Div", inside[square].input[0], root)
    scale = next(
        name
        for name, value in zip(inside[scaled].input, scaled.inputs, strict=True)
        if value is not norm.body[-1].outputs[0]
    )
    return steps.op("Mul", normal, scale)
