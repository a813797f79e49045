"""Control flow and functions that are added to a sound model: branches, loops, scans, calls of calls."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.fuzz.model_parts import attributes_of, graphs_of, infos_of, names_of, nodes_of, one_of
from tools.fuzz.odd_values import ODD_TEXTS
from tools.fuzz.splices import added_weight, fresh, named, spliced

__all__ = [
    "call_added",
    "call_chain_added",
    "function_odd",
    "function_shadows",
    "if_added",
    "ifs_nested",
    "loop_added",
    "name_twice",
    "scan_added",
    "weight_in_body",
]

_ACTS = ("Exp", "Identity", "Relu", "Neg", "Abs")


def _untyped(*names: str) -> list[onnx.ValueInfoProto]:
    return [onnx.ValueInfoProto(name=name) for name in names]


def _value(name: str, kind: int = TensorProto.FLOAT, shape: Sequence[int] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _outer(model: onnx.ModelProto, random: Random) -> str:
    """A tensor from anywhere: in sight, of another body, made later."""
    return random.choice([name for name in names_of(model) if name] or ["absent"])


def _branch(read: str, made: str, random: Random, *, typed: bool = False) -> onnx.GraphProto:
    """Reads what stands around it, or hands it out as it is."""
    if random.random() < 0.2:
        return helper.make_graph([], "branch", [], _untyped(read))
    outputs = [_value(made, shape=random.choice(([], [2], [1, 33], None)))] if typed else _untyped(made)
    return helper.make_graph([named(random.choice(_ACTS), [read], [made])], "branch", [], outputs)


def if_added(model: onnx.ModelProto, random: Random) -> None:
    """Its branches may be of other types and shapes than one another, and read tensors that are out of sight."""
    outer = _outer(model, random)
    shape: list[int] = random.choice(([], [], [1], [2], [0]))
    chosen = added_weight(model, "chosen", np.full(shape, random.random() < 0.5))
    chosen = random.choice((chosen, chosen, chosen, outer))

    def chain(read: str, made: str) -> list[onnx.NodeProto]:
        then = _branch(read, f"{made}_then", random, typed=random.random() < 0.3)
        other = _branch(random.choice((read, read, outer)), f"{made}_else", random, typed=random.random() < 0.3)
        return [named("If", [chosen], [made], then_branch=then, else_branch=other)]

    spliced(model, random, chain)


def with_body(model: onnx.ModelProto, random: Random) -> None:
    """See to it that there is a body."""
    if not any(attribute.HasField("g") for attribute in attributes_of(model)):
        if_added(model, random)


def ifs_nested(model: onnx.ModelProto, random: Random) -> None:
    """Branches in branches, as deep as nobody writes them."""
    depth = random.choice((2, 5, 20, 30))
    chosen = added_weight(model, "chosen", np.array(True))

    def chain(read: str, made: str) -> list[onnx.NodeProto]:
        node = named("Exp", [read], [f"{made}_{depth}"])
        for level in reversed(range(depth)):
            body = helper.make_graph([node], f"level{level}", [], _untyped(node.output[0]))
            name = f"{made}_{level}" if level else made
            plain = helper.make_graph([named("Identity", [read], [f"{made}_plain{level}"])], "plain", [], [])
            plain.output.extend(_untyped(f"{made}_plain{level}"))
            node = named("If", [chosen], [name], then_branch=body, else_branch=plain)
        return [node]

    spliced(model, random, chain)


def loop_added(model: onnx.ModelProto, random: Random) -> None:
    """A few turns or none, a condition or none, a state that keeps its shape or does not."""
    trips = added_weight(model, "trips", np.array(random.choice((0, 1, 3, -1)), "i8"))
    going = added_weight(model, "going", np.array(random.random() < 0.8))
    grows = random.random() < 0.3
    outer = _outer(model, random)
    step = [named("Identity", ["going_in"], ["going_out"])]
    if grows:
        step.append(named("Concat", ["state", "state"], ["state_out"], axis=0))
    else:
        step.append(named("Add", ["state", random.choice(("state", "state", outer))], ["state_out"]))
    step.append(named("Exp", ["state"], ["seen"]))
    typed = random.random() < 0.5
    inputs = (
        [_value("i", 7, []), _value("going_in", 9, []), _value("state")]
        if typed
        else _untyped("i", "going_in", "state")
    )
    body = helper.make_graph(step, "turn", inputs, _untyped("going_out", "state_out", "seen"))
    if random.random() < 0.2:
        del random.choice((body.input, body.output))[-1]
    counted, tested = random.choice(((trips, going), (trips, ""), (trips, going), (outer, "")))
    all_seen = fresh(model, "all_seen")
    which = random.random() < 0.5
    spliced(model, random, lambda read, made: [
        named("Loop", [counted, tested, read], [all_seen, made] if which else [made, all_seen], body=body)
    ])  # fmt: skip


def scan_added(model: onnx.ModelProto, random: Random) -> None:
    """Over an axis, forwards or backwards, with a state or without."""
    state = [added_weight(model, "state", np.zeros(random.choice(((), (1,), (4,), (0,))), "f4"))][: random.randrange(2)]
    held = ["held"] if state else []
    nodes = [named("Add", ["each", *(held or ["each"])], ["seen"])]
    nodes += [named("Identity", ["held"], ["kept"])] if state else []
    body = helper.make_graph(nodes, "step", _untyped(*held, "each"), _untyped(*(["kept"] if state else []), "seen"))
    odd: dict[str, Any] = {"num_scan_inputs": random.choice((1, 1, 1, 0, 2, 1 << 40))}
    for name in ("scan_input_axes", "scan_output_axes", "scan_input_directions", "scan_output_directions"):
        if random.random() < 0.3:
            odd[name] = random.choice(([0], [1], [-1], [7], [0, 0]))
    last = [fresh(model, "last")] if state else []
    spliced(model, random, lambda read, made: [named("Scan", [*state, read], [*last, made], body=body, **odd)])


def _function(model: onnx.ModelProto, name: str, nodes: Sequence[onnx.NodeProto], domain: str = "made") -> None:
    made = model.functions.add(name=name, domain=domain, input=["given"], output=["handed"])
    made.node.extend(nodes)
    made.opset_import.extend(model.opset_import)
    if not any(entry.domain == domain for entry in model.opset_import):
        model.opset_import.add(domain=domain, version=1)
    for function in model.functions:
        if not any(entry.domain == domain for entry in function.opset_import):
            function.opset_import.add(domain=domain, version=1)


def call_added(model: onnx.ModelProto, random: Random) -> None:
    """A function with a body in it, whose attribute is the caller's, and more or fewer values than it takes."""
    chosen = named("Constant", [], ["chosen"], value=helper.make_tensor("c", TensorProto.BOOL, [], [True]))
    then = helper.make_graph([named("LeakyRelu", ["given"], ["t"])], "then", [], _untyped("t"))
    then.node[0].attribute.add(name="alpha", type=1, ref_attr_name="slope")
    other = helper.make_graph([named("Exp", ["given"], ["e"])], "other", [], _untyped("e"))
    name = fresh(model, "Inner")
    _function(model, name, [chosen, named("If", ["chosen"], ["handed"], then_branch=then, else_branch=other)])
    model.functions[-1].attribute.append("slope")
    if random.random() < 0.3:
        default = model.functions[-1].attribute_proto.add(name="slope", type=1)
        default.f = 0.5
    given: dict[str, Any] = (
        {"slope": random.choice((0.1, 3, "text", [1, 2], float("nan")))} if random.random() < 0.7 else {}
    )
    extra = random.choice(((), (), (), (), (), (), ("",), (_outer(model, random),)))
    count = random.choice((1, 1, 1, 1, 1, 1, 1, 0))
    more = random.choice(([], [], [], [], [], [], [fresh(model, "extra")]))
    spliced(model, random, lambda read, made: [
        named(name, [read, *extra][: count + len(extra)], [made, *more], domain="made", **given)
    ], inside=False)  # fmt: skip


def call_chain_added(model: onnx.ModelProto, random: Random) -> None:
    """Functions that call functions, once or twice each: a line, a tree or a circle."""
    depth, twice = random.choice(
        ((2, False), (5, False), (20, False), (99, False), (4, True), (6, True), (12, True), (25, True))
    )
    stem = fresh(model, "Chain")
    for level in range(depth):
        inner, domain = (f"{stem}_{level + 1}", "made") if level + 1 < depth else ("Neg", "")
        if level + 1 == depth and random.random() < 0.1:
            inner, domain = f"{stem}_0", "made"
        nodes = [named(inner, ["given"], ["half"], domain=domain)]
        nodes.append(
            named(inner, ["half"], ["handed"], domain=domain) if twice else named("Relu", ["half"], ["handed"])
        )
        _function(model, f"{stem}_{level}", nodes)
    spliced(model, random, lambda read, made: [named(f"{stem}_0", [read], [made], domain="made")], inside=False)


def function_shadows(model: onnx.ModelProto, random: Random) -> None:
    """A function called as an operator of ONNX is, or twice the same, or told apart by its overload alone."""
    ops = sorted({node.op_type for node in nodes_of(model)} or {"Exp"})
    name, domain = random.choice(ops), random.choice(("", "", "made", "ai.onnx", "com.microsoft"))
    act = random.choice((*_ACTS, name))
    _function(model, name, [named(act, ["given"], ["handed"])], domain)
    if random.random() < 0.5:
        _function(model, name, [named("Neg", ["given"], ["handed"])], domain)
        if random.random() < 0.5:
            model.functions[-1].overload = "other"
    spliced(model, random, lambda read, made: [named(name, [read], [made], domain=domain)], inside=False)
    if random.random() < 0.3:
        node = one_of(random, (node for node in nodes_of(model) if node.op_type == name))
        if node is not None:
            node.overload = random.choice(("other", "absent"))


def function_odd(model: onnx.ModelProto, random: Random) -> None:
    """A function with versions of its own, without any, without nodes, or with ends that no node makes."""
    if not model.functions:
        call_chain_added(model, random)
    function = one_of(random, model.functions)
    if function is None:
        return
    way = random.randrange(7)
    if way == 0:
        del function.opset_import[:]
    elif way == 1 and function.opset_import:
        random.choice(function.opset_import).version = random.choice((1, 7, 13, 26, 99, 0, -1, 1 << 62))
    elif way == 2:
        function.opset_import.add(domain=random.choice(ODD_TEXTS), version=1)
    elif way == 3:
        del function.node[:]
    elif way == 4:
        random.choice((function.input, function.output)).append(random.choice(("", "given", "absent", "handed")))
    elif way == 5:
        function.value_info.add(name="half").type.tensor_type.elem_type = random.choice((1, 8, 10, 16, 99))
    else:
        function.name = random.choice((*ODD_TEXTS, "Relu"))


def weight_in_body(model: onnx.ModelProto, random: Random) -> None:
    """A body's own weight, called after what it hides or after nothing."""
    with_body(model, random)
    body = one_of(random, (graph for graph in graphs_of(model)[1:] if isinstance(graph, onnx.GraphProto)))
    if body is not None:
        tensor = body.initializer.add()
        tensor.CopyFrom(helper.make_tensor("t", random.choice((1, 1, 7, 10, 16)), [2], [1, 2]))
        tensor.name = random.choice((_outer(model, random), "inner"))
        reader = one_of(random, (node for node in body.node if node.input))
        if reader is not None and random.random() < 0.7:
            reader.input[random.randrange(len(reader.input))] = tensor.name


def name_twice(model: onnx.ModelProto, random: Random) -> None:
    """A tensor made in one place is called as one made in another: around it, beside it, or an input or a weight."""
    made = [(node, place) for node in nodes_of(model) for place in range(len(node.output))]
    found = one_of(random, made)
    if found is None:
        return
    node, place = found
    old, new = node.output[place], _outer(model, random)
    node.output[place] = new
    for graph in graphs_of(model):
        if isinstance(graph, onnx.GraphProto) and random.random() < 0.7:
            for info in graph.output:
                info.name = new if info.name == old else info.name
    if random.random() < 0.5:
        for reader in nodes_of(model):
            reader.input[:] = [new if name == old else name for name in reader.input]
    if random.random() < 0.3:
        copies = [info for info in infos_of(model) if info.name == new]
        model.graph.value_info.extend(copies[:1])
