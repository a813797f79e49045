"""Whatever becomes of heads: powers of two that the walk leaves free change no bit, and extents are what they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from halfwise.model.model import Model, load
from halfwise.model.patterns.view import View
from halfwise.repair import rescale
from halfwise.repair.extents import Extents
from halfwise.repair.rescale import RESCALE
from halfwise.repair.rule import Ranges
from halfwise.repair.scale_choice import Choice
from halfwise.repair.scale_flow import ScaleFlow
from tests.models.build import value
from tests.support.head_graphs import STEPS, HeadNet
from tests.support.repairing import effect

_GRAPHS = {"kinds": st.lists(st.sampled_from(STEPS), min_size=1, max_size=9), "seed": st.integers(0, 1 << 20)}


def _net(kinds: list[str], seed: int) -> tuple[HeadNet, onnx.ModelProto]:
    net = HeadNet(seed, *((1, 3), (2, 5), (3, 4))[seed % 3])
    x = net.step("split", net.seen[0])
    for kind in ("turn", *kinds):
        x = net.step(kind, x)
    return net, net.model(x)


def _any_powers(flow: ScaleFlow) -> Choice:
    """Of every class that may have one."""
    classes = flow.classes
    power = np.random.default_rng(classes.count).integers(-3, 4, classes.count) * classes.steps
    for follow, kept in zip(flow.atoms.follows, classes.kept, strict=True):
        power[classes.labels[follow.read]] *= 1 if kept else 2  # a square root halves the power
    power[0] = 0
    return Choice(classes, power.astype(np.int64))


@settings(max_examples=40, deadline=None)
@given(**_GRAPHS)
def test_no_power_that_is_free_changes_a_bit(kinds: list[str], seed: int) -> None:
    net, proto = _net(kinds, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescale, "choose", _any_powers)
        found = effect(RESCALE, proto, [net.feed(seed + 1), net.feed(seed + 2)], searched=1)
    for each in found.references:  # else FP32 itself lost them
        assume(np.abs(each["y"]).min() > 1e-25 and np.abs(each["y"]).max() < 1e25)
    assert found.bit_identical


def _with_all_ends(model: Model, ranges: Ranges) -> ScaleFlow:
    given, made = ([value.name or "" for value in ends] for ends in (model.graph.inputs, model.graph.outputs))
    return ScaleFlow(model, ranges, channels=given, ends=made)


@settings(max_examples=30, deadline=None)
@given(**_GRAPHS)
def test_nor_one_that_is_put_behind_inputs_and_in_front_of_outputs(kinds: list[str], seed: int) -> None:
    """Of tensors inside, too, that are handed out beside the result."""
    net, proto = _net(kinds, seed)
    made = [name for each in proto.graph.node for name in each.output if name in net.seen]
    for name in np.random.default_rng(seed).permutation(made)[:2].tolist():
        proto.graph.output.append(value(name, shape=[None] * len(net.dims[name])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescale, "choose", _any_powers)
        patch.setattr(rescale, "flow_of", _with_all_ends)
        found = effect(RESCALE, proto, [net.feed(seed + 1), net.feed(seed + 2)], searched=1)
    for each in found.references:
        assume(np.abs(each["y"]).min() > 1e-25 and np.abs(each["y"]).max() < 1e25)
    assert found.bit_identical


_READS = {
    "Slice": lambda net, x: net.op("Slice", f"{x} {net.integers(1)} {net.integers(9)} {net.integers(0)}", (3, 5, 4)),
    "Gather": lambda net, x: net.op("Gather", f"{x} {net.integers(1, 0, 1)}", (3, 5, 4)),
    "Mul": lambda net, x: net.op("Mul", f"{x} {net.constant(np.float32(0.3))}", (4, 5, 4)),
    "Add": lambda net, x: net.op(
        "Add", f"{x} {net.constant(np.float32([[[0.3]], [[7]], [[1e-3]], [[50]]]))}", (4, 5, 4)
    ),
    "Tile": lambda net, x: net.op("Tile", f"{x} {net.integers(2, 1, 1)}", (8, 5, 4)),
    "Neg": lambda net, x: net.op("Neg", x, (4, 5, 4)),
}


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 0, 1, 3)])
@pytest.mark.parametrize("reads", _READS)
def test_heads_on_one_axis_with_an_open_batch(reads: str, order: tuple[int, ...]) -> None:
    net = HeadNet(4)
    apart = net.op("Reshape", f"{net.linear('x', 8)} {net.integers(0, 0, 2, 4)}", (2, 5, 2, 4))
    turned = net.op("Transpose", apart, (2, 2, 5, 4), perm=order)
    length = net.op("Gather", f"{net.op('Shape', 'x', (3,))} {net.integers(1)}", (1,))
    shape = net.op("Concat", f"{net.integers(-1)} {length} {net.integers(4)}", (3,), axis=0)
    x = _READS[reads](net, net.op("Reshape", f"{turned} {shape}", (4, 5, 4)))
    if net.dims[x][0] % 2 == 0:  # two heads again, of whatever is there
        shape = net.op("Concat", f"{net.integers(-1)} {net.integers(2)} {length} {net.integers(4)}", (4,), axis=0)
        back = net.op("Reshape", f"{x} {shape}", (net.dims[x][0] // 2, 2, 5, 4))
        back = net.op("Transpose", back, (net.dims[x][0] // 2, 5, 2, 4), perm=(0, 2, 1, 3))
        x = net.op("Reshape", f"{back} {net.integers(0, 0, 8)}", (net.dims[x][0] // 2, 5, 8))
    proto = net.model(x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescale, "choose", _any_powers)
        assert effect(RESCALE, proto, [net.feed(1), net.feed(2)], searched=1).bit_identical


@settings(max_examples=40, deadline=None)
@given(**_GRAPHS)
def test_extents_are_those_of_a_run(kinds: list[str], seed: int) -> None:
    net, proto = _net(kinds, seed)
    loaded = load(proto)
    extents, seen = Extents(View(loaded)), dict[str, int]()
    for node in loaded.graph:
        for each, sizes in zip(node.outputs, map(extents.of, node.outputs), strict=True):
            for size, many in zip(sizes or (), net.dims.get(each.name or "", ()), strict=False):
                if size is not None and len(size.names) < 2:
                    name = size.names[0] if size.names else ""
                    assert size.number * (seen.setdefault(name, many // size.number) if name else 1) == many
