"""Results for the tests of the report: one that fails, one whose every string is hostile, one that is large."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import STRICT
from halfwise.emulation.stepper import Stepper
from halfwise.precision.plan import Plan, PlannedNode
from halfwise.search.diagnosis import diagnose
from halfwise.search.noise import noise_pieces
from halfwise.search.sensitivity import Sensitivity, measure_sensitivity
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from tests.models.zoo import SHAPES, norm_log_head, transformer

__all__ = [
    "HOSTILE",
    "healthy_result",
    "hostile_model",
    "hostile_result",
    "large_result",
    "overflow_result",
    "plan_of",
    "repaired_result",
]

HOSTILE = (
    "</script><script>window.stolen=1</script>",
    '"><img src=x onerror="window.stolen=2">',
    "{{ 7*7 }}${8*8}<!--",
    "line one\nline two\r\x1b[31mred\x1b[0m\x00",
    "safe\u202egnp.exe\u2066\u200b\u2028end",
    "' onmouseover='window.stolen=3",
    "/a" * 5_000 + "/last_of_ten_thousand",
)


@cache
def overflow_result() -> FixResult:
    """Several outputs, overflow and values that are lost; with the trade-off."""
    zoo = norm_log_head()
    return fix(zoo.model, zoo.inputs, tolerance=[f"*:rel_l2<={zoo.tolerance}"], curve=True, repairs=("none",))


@cache
def healthy_result() -> FixResult:
    zoo = SHAPES["healthy_mlp"]()
    return fix(zoo.model, None, tolerance=["*:rel_l2<=0.05"])


def hostile_model() -> onnx.ModelProto:
    """A chain that overflows; nodes, tensors, the input and the output have names that want out of their page."""
    names = [*HOSTILE, "y"]
    weight = numpy_helper.from_array(np.full(4, 300, np.float32), HOSTILE[0] + "weight")
    nodes = [helper.make_node("Mul", ["x<b>", weight.name], [names[0]], name=names[0])]
    for before, after in pairwise(names):
        op = "Mul" if after == HOSTILE[1] else "Abs" if after != "y" else "Sqrt"
        second = [weight.name] if op == "Mul" else []
        nodes.append(helper.make_node(op, [before, *second], [after], name=after))
    inputs = [helper.make_tensor_value_info("x<b>", onnx.TensorProto.FLOAT, [4])]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4])]
    graph = helper.make_graph(nodes, "<i>graph</i>", inputs, outputs, [weight], doc_string="<script>1</script>")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@cache
def repaired_result() -> FixResult:
    """Exact repairs heal all of it."""
    zoo = norm_log_head()
    return fix(zoo.model, zoo.inputs[:4], curve=True)


@cache
def hostile_result() -> FixResult:
    feeds = [{"x<b>": _values(seed)} for seed in range(4)]
    return fix(hostile_model(), feeds, repairs=("none",))


@cache
def large_result() -> FixResult:
    """1,477 nodes; the plan is given, so that nothing is searched, and the diagnosis is made besides."""
    zoo = transformer(layers=24)
    operators = {node.name: node.op_type for node in zoo.model.graph.node}
    result = fix(zoo.model, zoo.inputs[:2], plan=plan_of({name: operators[name] for name in zoo.known_good}))
    seen = Sensitivity()
    measure_sensitivity(Stepper(Emulator(STRICT)), result.sites, result.samples.search[0], seen)
    found = diagnose(result.sites, noise_pieces(result.sites, seen), {})
    return replace(result, measured=replace(result.measured, diagnosis=found))


def plan_of(nodes: dict[str, str]) -> Plan:
    kept = tuple(
        PlannedNode(name, op, Format.FP32, Reason.WANTED, (Note.of(NoteKind.IN_PLAN),)) for name, op in nodes.items()
    )
    return Plan("", "", 0, "onnx", "strict", Tolerance.default(), Format.FP32, "", kept)


def _values(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).uniform(1, 2, 4).astype(np.float32)
