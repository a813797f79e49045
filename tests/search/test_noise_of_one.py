"""Where a held-out input is missed and no search is to be had, its own noise tells which nodes it needs."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from halfwise.core.formats import Format
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import load
from halfwise.precision.sites import Sites
from halfwise.search.journal import Journal
from halfwise.search.judge import Judge, Question
from halfwise.search.noise_model import measure_noise, noise_of_one
from halfwise.search.sets import Sets


def squares() -> onnx.ModelProto:
    """What is squared overflows for an input above 256 alone."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy"]
    nodes = [helper.make_node("Mul", ["x", "x"], ["s"], name="square"), helper.make_node("Sqrt", ["s"], ["y"])]
    graph = helper.make_graph(nodes, "squares", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_what_others_told_is_not_taken_for_the_noise_of_one() -> None:
    sites, journal = Sites(load(squares())), Journal()

    def sets(size: float) -> Sets:
        feed = {"x": np.linspace(0.5, size, 8, dtype=np.float32)}
        judge = Judge(sites, Emulator(), Question(Tolerance.default()), [feed])
        return Sets(sites, judge, Stepper(judge.emulator), journal, Format.FP32)

    quiet, loud = sets(2.0), sets(1000.0)
    assert not measure_noise(quiet, quiet.measure(frozenset()), lambda _: None).fatal
    assert "square" in {node.name for node in noise_of_one(loud, lambda _: None).fatal}
