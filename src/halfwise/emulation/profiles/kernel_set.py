"""The kernels of one engine as data, and what they make of a model's nodes: what is stored where, by their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import onnx
import onnx_ir as ir

from halfwise.emulation.profiles.fusion import FusedKernel, Fusion
from halfwise.emulation.profiles.narrow_sums import NARROW_SUMS
from halfwise.emulation.profiles.profile import Kernel
from halfwise.emulation.profiles.steps import Steps
from halfwise.emulation.profiles.tensorrt import (
    TENSORRT_KERNELS,
    affine_after_norm,
    bias_after_product,
    norm_in_narrow_steps,
)
from halfwise.model.families import PRODUCTS
from halfwise.model.moving import only_moves
from halfwise.precision.sites import Sites

__all__ = ["CAST_STEPS", "MORE_STEPS", "PRODUCT_STEPS", "EngineKernel", "KernelSet"]

PRODUCT_STEPS = frozenset({"Fc", "Gemm", "Corr", "Conv", "Deco"})
_NORMS = frozenset({"LayerNormalization", "RMSNormalization"})
_ROOTS = frozenset({"Sqrt", "Sqr"})
CAST_STEPS = frozenset({"Cast", "Cas"})
MORE_STEPS = "Etc"  # ends a name that would be too long: the kernel has further steps


@dataclass(frozen=True)
class EngineKernel:
    """One kernel: the nodes that it computes, and the steps that its name spells, if it spells any.

    `attention`: a fused attention kernel. `narrow_sums`: its tactic accumulates in FP16.
    """

    name: str
    nodes: tuple[str, ...]
    steps: tuple[str, ...] = ()
    attention: bool = False
    narrow_sums: bool = False


@dataclass(frozen=True, eq=False)
class KernelSet:
    """A rule of fusion: a node that a kernel names is computed as that kernel says, every other one as it stands."""

    kernels: tuple[EngineKernel, ...]

    def fusions(self, sites: Sites) -> Iterator[Fusion]:
        """Larger ones first: a node is taken once, and one whose fusion does not work in one format stands alone."""
        nodes = {site.name: site.node for site in sites.all if site.free and not site.nested}
        order = {node: place for place, node in enumerate(nodes.values())}
        outputs = frozenset(sites.model.graph.outputs)
        for kernel in self.kernels:
            members = _with_movers([nodes[name] for name in kernel.nodes if name in nodes], order)
            for fusion in _of_kernel(kernel, members):
                if len(fusion.nodes) > 1 and fusion.closed(outputs):
                    yield fusion
        for name, kernels in self._of_node.items():
            if name in nodes and (semantics := _semantics(nodes[name], kernels)) is not None:
                yield Fusion("alone", (nodes[name],), nodes[name], kernel=_alone(semantics))

    @property
    def sums_narrow(self) -> bool:
        """Whether any tactic says that it accumulates in FP16."""
        return any(kernel.narrow_sums for kernel in self.kernels)

    @cached_property
    def _of_node(self) -> Mapping[str, tuple[EngineKernel, ...]]:
        found: dict[str, tuple[EngineKernel, ...]] = {}
        for kernel in self.kernels:
            for name in kernel.nodes:
                found[name] = (*found.get(name, ()), kernel)
        return found


# The nodes of a kernel, in execution order.
Members = Mapping[ir.Node, None]

# -- several nodes as one ---------------------------------------------------------------------------------------------


def _of_kernel(kernel: EngineKernel, members: Members) -> Iterator[Fusion]:
    if kernel.attention:
        yield from _scores(members)
        return
    if not kernel.narrow_sums:  # else the sum itself is stored before anything meets it
        yield from _epilogues(kernel, members)
    if "Silu" in kernel.steps and "Sigm" not in kernel.steps:  # else it does not tell which is which
        yield from _silus(members)


def _scores(members: Members) -> Iterator[Fusion]:
    """Fused attention: from the scores to their shares nothing is stored. The second product takes narrow operands."""
    products = [node for node in members if node.op_type == "MatMul"]
    for product in products:
        for value in product.inputs:
            last = value.producer() if value is not None else None
            if last is None or last not in members:
                continue
            inner = _cone(last, members)
            if any(node in inner for node in products) and any(node.op_type == "Softmax" for node in inner):
                yield Fusion("attention", tuple(node for node in members if node in inner), last)


def _cone(last: ir.Node, members: Members) -> set[ir.Node]:
    """The nodes above one, down to the first product, which belongs to them: what it reads is narrow."""
    found: set[ir.Node] = set()
    stack = [last]
    while stack:
        node = stack.pop()
        if node in found or node not in members:
            continue
        found.add(node)
        if node.op_type not in PRODUCTS:
            stack += [maker for value in node.inputs if value is not None and (maker := value.producer()) is not None]
    return found


def _epilogues(kernel: EngineKernel, members: Members) -> Iterator[Fusion]:
    """A product and the bias that its kernel adds; in a kernel that spells no steps, all that comes behind it."""
    for product in (node for node in members if node.op_type in PRODUCTS):
        chain = [product]
        while (user := _only_user(chain[-1])) is not None and user in members and user.op_type not in PRODUCTS:
            if kernel.steps and not (len(chain) == 1 and user.op_type == "Add" and _adds_to_product(kernel.steps)):
                break
            chain.append(user)
        if len(chain) > 1:
            yield Fusion("epilogue", tuple(chain), chain[-1])


def _adds_to_product(steps: tuple[str, ...]) -> bool:
    """Whether every product that a name spells is followed by a sum at once."""
    behind = [steps[i + 1 : i + 2] for i, step in enumerate(steps) if step in PRODUCT_STEPS]
    return bool(behind) and all(step == ("Add",) for step in behind)


def _silus(members: Members) -> Iterator[Fusion]:
    for bent in (node for node in members if node.op_type == "Sigmoid"):
        product = _only_user(bent)
        if product is not None and product in members and product.op_type == "Mul" and bent.inputs[0] in product.inputs:
            yield Fusion("silu", (bent, product), product)


def _only_user(node: ir.Node) -> ir.Node | None:
    users = {user for user, _ in node.outputs[0].uses()}
    return next(iter(users)) if len(users) == 1 and not node.outputs[0].is_graph_output() else None


def _with_movers(nodes: Iterable[ir.Node], order: Mapping[ir.Node, int]) -> Members:
    """The nodes of a kernel with those between them that only move values, which no kernel names."""
    members = set(nodes)
    grown = True
    while grown:
        users = {user for node in members for value in node.outputs for user, _ in value.uses()}
        between = {user for user in users - members if user in order and _moves_among(user, members)}
        grown = bool(between)
        members |= between
    return dict.fromkeys(sorted(members, key=lambda node: order[node]))


def _moves_among(node: ir.Node, members: set[ir.Node]) -> bool:
    """Whether a node only moves values, and only to nodes of the kernel."""
    readers = {user for value in node.outputs for user, _ in value.uses()}
    return only_moves(node) and bool(readers) and readers <= members


# -- a node by itself -------------------------------------------------------------------------------------------------


def _semantics(node: ir.Node, kernels: tuple[EngineKernel, ...]) -> Kernel | None:
    """How the kernels of a node compute it; None where they round once."""
    if node.domain:
        return None
    if any(kernel.narrow_sums for kernel in kernels) and node.op_type in NARROW_SUMS:
        return NARROW_SUMS[node.op_type]
    if node.op_type in _NORMS:
        wide = all(_takes_statistics_wide(kernel) for kernel in kernels)
        return TENSORRT_KERNELS[node.op_type] if wide else norm_in_narrow_steps
    if node.op_type == "Gemm":
        return bias_after_product if len(kernels) > 1 and any("Add" in kernel.steps for kernel in kernels) else None
    if node.op_type == "GroupNormalization":
        apart = any("Inor" in kernel.steps for kernel in kernels) and any("Mul" in kernel.steps for kernel in kernels)
        return affine_after_norm if apart else None
    return TENSORRT_KERNELS.get(node.op_type)


def _takes_statistics_wide(kernel: EngineKernel) -> bool:
    """Whether a cast stands behind each root that a name shows, before the scale: else a norm takes them narrow."""
    rest = iter(kernel.steps)
    for step in rest:
        if step in _ROOTS:
            behind = next(rest, "")
            for expected in ("Div", "Mul"):  # by the root, as its inverse or at once
                behind = next(rest, "") if behind == expected else behind
            if behind not in CAST_STEPS and behind != MORE_STEPS:
                return False
    return True


def _alone(kernel: Kernel) -> FusedKernel:
    def spell(fusion: Fusion, inside: Mapping[ir.Node, onnx.NodeProto], steps: Steps) -> str | None:
        copy = onnx.NodeProto()
        copy.CopyFrom(inside[fusion.last])
        return kernel(copy, steps)

    return spell
