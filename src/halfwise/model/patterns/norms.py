"""Norms written out in small operators: LayerNorm, RMSNorm, InstanceNorm, GroupNorm, and variances by moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir

from halfwise.model.patterns.pattern import Pattern
from halfwise.model.patterns.roots import Quotient, Root, guarded, quotients, roots
from halfwise.model.patterns.statistics import Reduced, centred, mean_of, mean_square_of, square_of
from halfwise.model.patterns.view import View, attribute

__all__ = ["find_moments", "find_norms"]


@dataclass(frozen=True)
class _Variance:
    """What stands under the root: of `x`, around its mean or around 0."""

    x: ir.Value
    axes: tuple[int, ...]
    nodes: tuple[ir.Node, ...]
    square: ir.Node
    mean: ir.Value | None  # None for RMSNorm
    factor: float = 1.0
    by_moments: bool = False


@dataclass(frozen=True)
class _Affine:
    output: ir.Value
    nodes: tuple[ir.Node, ...] = ()
    scale: ir.Value | None = None
    bias: ir.Value | None = None
    regrouped: bool = False


def find_norms(view: View) -> Iterator[Pattern]:
    """(x - mean) / sqrt(variance + epsilon), or x / sqrt(mean square + epsilon), and the scale and bias behind it.

    Details: `input`, `output`, `scale` and `bias` (names of tensors; None where there is none), `axes`, `epsilon` and
    `epsilon_outside` (added behind the root), `variance_factor` (not 1 for the unbiased variance), `by_moments`,
    `statistics` (the nodes up to the root).
    """
    seen: set[ir.Value] = set()
    for root in roots(view):
        variance = _variance(view, root.inside.value)
        if variance is None:
            continue
        for guarded_root, quotient in quotients(view, root):
            found = _norm(view, guarded_root, quotient, variance)
            if found is not None and quotient.output not in seen:
                seen.add(quotient.output)
                yield found
    yield from _by_batch_normalization(view)


def find_moments(view: View) -> Iterator[Pattern]:
    """E[x^2] - E[x]^2. Details: `input`, `axes`, `output`."""
    for node in view.of("Sub"):
        variance = _by_moments(view, node.outputs[0])
        if variance is not None:
            details = {"input": variance.x.name, "axes": variance.axes, "output": node.outputs[0].name}
            yield view.pattern("variance-by-moments", node, variance.nodes, details)


def _variance(view: View, value: ir.Value) -> _Variance | None:
    moments = _by_moments(view, value)
    if moments is not None:
        return moments
    mean_square = mean_square_of(view, value)
    if mean_square is None or mean_square.axes is None or mean_square.square is None:
        return None
    centre = centred(view, mean_square.base)
    if centre is None:
        if mean_square.factor != 1.0:
            return None
        return _Variance(mean_square.base, mean_square.axes, mean_square.nodes, mean_square.square, None)
    x, mean, subtract = centre
    if mean.axes != mean_square.axes:
        return None
    nodes = (*mean.nodes, subtract, *mean_square.nodes)
    return _Variance(x, mean_square.axes, nodes, mean_square.square, mean.nodes[-1].outputs[0], mean_square.factor)


def _by_moments(view: View, value: ir.Value | None) -> _Variance | None:
    node = view.maker(value, "Sub")
    if node is None:
        return None
    mean_square, squared = mean_square_of(view, node.inputs[0]), square_of(view, node.inputs[1])
    mean = mean_of(view, squared.base) if squared is not None else None
    if mean_square is None or squared is None or mean is None or mean_square.square is None:
        return None
    if mean.axes is None or mean.axes != mean_square.axes or not view.alike(mean.base, mean_square.base):
        return None
    nodes = (*mean.nodes, *mean_square.nodes, squared.node, node)
    return _Variance(mean.base, mean.axes, nodes, mean_square.square, mean.nodes[-1].outputs[0], by_moments=True)


def _norm(view: View, root: Root, quotient: Quotient, variance: _Variance) -> Pattern | None:
    quotient = _unscaled(view, quotient)
    centre = _centre(view, quotient, variance)
    if centre is None:
        return None
    centring, affine = centre
    nodes = (*variance.nodes, *root.nodes, *quotient.nodes, *centring)
    affine = _affine(view, affine, quotient.scale, view.maker(variance.x, "Reshape") is not None)
    nodes = (*nodes, *affine.nodes)
    details: dict[str, Any] = {
        "input": _source(view, variance.x, affine.regrouped).name,
        "output": affine.output.name,
        "scale": affine.scale.name if affine.scale is not None else None,
        "bias": affine.bias.name if affine.bias is not None else None,
        "axes": variance.axes,
        "epsilon": root.epsilon,
        "epsilon_outside": bool(root.outside and not root.inside.epsilon),
        "variance_factor": variance.factor,
        "by_moments": variance.by_moments,
        "statistics": tuple(node.name or "" for node in (*variance.nodes, *root.nodes)),
    }
    return view.pattern(_kind(view, variance, affine), variance.square, nodes, details)


def _centre(view: View, quotient: Quotient, variance: _Variance) -> tuple[tuple[ir.Node, ...], _Affine] | None:
    """The node that takes the mean off, if any, and what is left behind the quotient; None where it is no norm."""
    plain = _Affine(quotient.output)
    if variance.mean is None:
        return ((), plain) if view.alike(quotient.numerator, variance.x) else None
    centre = centred(view, quotient.numerator)
    if (
        centre is not None
        and view.alike(centre[0], variance.x)
        and view.alike(centre[2].inputs[0], variance.x)  # mean - x is the norm of -x
        and centre[1].axes == variance.axes
    ):
        return (centre[2],), plain
    if not view.alike(quotient.numerator, variance.x):
        return None
    folded = _folded_mean(view, quotient, variance.mean)
    return None if folded is None else ((), folded)


def _unscaled(view: View, quotient: Quotient) -> Quotient:
    """(scale * centred) / root, with the scale told apart."""
    product = view.maker(quotient.numerator, "Mul") if quotient.scale is None else None
    sides = (product.inputs, product.inputs[::-1]) if product is not None else ()
    for value, other in sides:
        scale = view.weight(other)
        if product is not None and value is not None and scale is not None and view.weight(value) is None:
            return replace(quotient, numerator=value, nodes=(product, *quotient.nodes), scale=scale)
    return quotient


def _source(view: View, x: ir.Value, regrouped: bool) -> ir.Value:
    reshape = view.maker(x, "Reshape") if regrouped else None
    return reshape.inputs[0] if reshape is not None and reshape.inputs[0] is not None else x


def _folded_mean(view: View, quotient: Quotient, mean: ir.Value) -> _Affine | None:
    """x * f + (bias - mean * f), x * f - mean * f, or with -mean * f added, as Keras does; f is the scale over the
    root."""
    for node, slot in view.uses(quotient.output):
        if node.domain or node.op_type not in ("Add", "Sub") or (node.op_type == "Sub" and slot != 0):
            continue
        rest, bias, inner = _bias_apart(view, node.inputs[1 - slot])
        if node.op_type == "Sub" and inner is not None:
            continue
        product = view.maker(rest, "Mul")
        if product is None:
            continue
        subtracted = node.op_type == "Sub" or (inner is not None and inner.op_type == "Sub")
        for one, other in (product.inputs, product.inputs[::-1]):
            negated = None if subtracted else view.maker(one, "Neg")
            taken = one if subtracted else None if negated is None else negated.inputs[0]
            if taken is not None and view.alike(taken, mean) and view.origin(other) is view.origin(quotient.factor):
                nodes = tuple(each for each in (negated, product, inner, node) if each is not None)
                return _Affine(node.outputs[0], nodes, bias=bias)
    return None


def _bias_apart(view: View, value: ir.Value | None) -> tuple[ir.Value | None, ir.Value | None, ir.Node | None]:
    """What a bias is added to, or what is taken off one, with the bias and the node; else all of it."""
    node = view.maker(value, "Add", "Sub")
    sides = () if node is None else (node.inputs, node.inputs[::-1])[: 1 if node.op_type == "Sub" else 2]
    for one, other in sides:
        if (bias := view.weight(one)) is not None:
            return other, bias, node
    return value, None, None


def _affine(view: View, affine: _Affine, scale: ir.Value | None, grouped: bool) -> _Affine:
    """Follow the scale and the bias behind a norm, for one of groups also behind the Reshape that ends it."""
    output, nodes, bias, regrouped = affine.output, list(affine.nodes), affine.bias, False
    while True:
        use = view.only_use(output)
        if use is None or use[0].domain:
            break
        node, slot = use
        weight = view.weight(node.inputs[1 - slot]) if len(node.inputs) == 2 and slot < 2 else None
        if node.op_type == "Reshape" and slot == 0 and grouped and not regrouped and scale is None and bias is None:
            ahead = view.only_use(node.outputs[0])
            scales = ahead is not None and not ahead[0].domain and ahead[0].op_type == "Mul"
            if not scales or ahead is None or view.weight(ahead[0].inputs[1 - ahead[1]]) is None:
                break
            regrouped = True
        elif node.op_type == "Mul" and weight is not None and scale is None and bias is None:
            scale = weight
        elif node.op_type == "Add" and weight is not None and bias is None:
            bias = weight
        else:
            break
        nodes.append(node)
        output = node.outputs[0]
    return _Affine(output, tuple(nodes), scale, bias, regrouped)


def _kind(view: View, variance: _Variance, affine: _Affine) -> str:
    """By what is reduced and along which axes the scale varies."""
    if variance.mean is None:
        return "rmsnorm"
    rank = view.rank(variance.x)
    if affine.regrouped:
        groups = variance.x.shape[1] if variance.x.shape is not None and rank and rank > 1 else None
        channels = affine.scale.const_value.size if affine.scale is not None and affine.scale.const_value else None
        return "instancenorm" if groups is not None and groups == channels else "groupnorm"
    if rank is None or rank < 3 or variance.axes != tuple(range(2, rank)):
        return "layernorm"
    varies = _varies(affine.scale if affine.scale is not None else affine.bias, rank)
    if varies:
        return "instancenorm" if not varies & set(variance.axes) else "layernorm"
    return "instancenorm" if len(variance.axes) > 1 else "layernorm"


def _varies(weight: ir.Value | None, rank: int) -> set[int]:
    """The axes of a tensor of `rank` along which a weight broadcast to it differs."""
    if weight is None or weight.shape is None:
        return set()
    offset = rank - len(weight.shape)
    return {axis + offset for axis, dim in enumerate(weight.shape) if dim != 1}


def _by_batch_normalization(view: View) -> Iterator[Pattern]:
    """BatchNormalization of statistics computed here: how Keras spells LayerNorm."""
    for node in view.of("BatchNormalization"):
        if len(node.inputs) < 5 or view.weight(node.inputs[3]) is not None or node.inputs[0] is None:
            continue
        mean, variance = _kept(view, node.inputs[3], "ReduceMean"), _kept_variance(view, node.inputs[4])
        if mean is None or variance is None or variance.square is None or mean.axes != variance.axes:
            continue
        centre = centred(view, variance.base)
        if centre is None or not view.alike(centre[0], node.inputs[0]) or not view.alike(mean.base, node.inputs[0]):
            continue
        nodes = (*mean.nodes, *variance.nodes, centre[2], *centre[1].nodes)
        details: dict[str, Any] = {
            "input": node.inputs[0].name,
            "output": node.outputs[0].name,
            "scale": None,
            "bias": None,
            "axes": mean.axes,
            "epsilon": float(attribute(node, "epsilon", 1e-5)),
            "epsilon_outside": False,
            "variance_factor": 1.0,
            "by_moments": False,
            "statistics": tuple(other.name or "" for other in nodes),
        }
        yield view.pattern("layernorm", variance.square, (*nodes, node), details)


def _kept(view: View, value: ir.Value | None, op: str) -> Reduced | None:
    """A reduction that may drop its dimensions, at once or by a Squeeze behind it."""
    squeeze = view.maker(value, "Squeeze", "Reshape")
    node = view.maker(squeeze.inputs[0] if squeeze is not None else value, op)
    axes = view.axes(node) if node is not None else None
    if node is None or node.inputs[0] is None or axes is None:
        return None
    return Reduced(node.inputs[0], axes, (node,) if squeeze is None else (node, squeeze))


def _kept_variance(view: View, value: ir.Value | None) -> Reduced | None:
    if value is None:
        return None
    mean = _kept(view, guarded(view, value).value, "ReduceMean")
    square = square_of(view, mean.base) if mean is not None else None
    if mean is not None and square is not None:
        return Reduced(square.base, mean.axes, (square.node, *mean.nodes), square.node)
    ratio = view.maker(value, "Div")
    total = _kept(view, ratio.inputs[0], "ReduceSumSquare") if ratio is not None else None
    if ratio is None or total is None:
        return None
    return Reduced(total.base, total.axes, (*total.nodes, ratio), total.nodes[0])
