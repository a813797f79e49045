"""Loops that a rounded number would keep from ending: they end, without a result, and `fix` finds what mends them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise import fix
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.endless_loops import MOST, deciding
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.report.story import tell
from halfwise.verbs.fix.delivered import LOOP_LIMIT_S, TIME_LIMIT_S, limit_s
from tests.models.build import f32, graph, model, node, value, weight
from tests.support.messages import kinds

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64
STUCK = 2048.0  # where FP16 takes one more for the same


def counted(most: int | None, gathered: bool = False) -> onnx.ModelProto:
    """t grows by one to `limit`; beside it a value is halved towards one, and a sum of integers grows."""
    body = graph(
        [node("Add", "t one", "t1"), node("Less", "t1 limit", "again"), node("Mul", "v half", "v0"),
         node("Add", "v0 half", "v1"), node("Add", "k step", "k1"), node("Identity", "t1", "seen")],
        [value("i", INT64, []), value("was", BOOL, []), value("t", shape=[]), value("v", shape=[2]),
         value("k", INT64, [])],
        [value("again", BOOL, []), value("t1", shape=[]), value("v1", shape=[2]), value("k1", INT64, []),
         *([value("seen", shape=[])] if gathered else [])],
    )  # fmt: skip
    held = {"one": np.float32(1), "half": np.float32(0.5), "zero": np.float32(0), "go": np.array(True),
            "none": np.array(0, np.int64), "step": np.array(1, np.int64)}  # fmt: skip
    if most is not None:
        held["most"] = np.array(most, np.int64)
    constants = [weight(name, array) for name, array in held.items()]
    outputs = [value("t9", shape=[]), value("v9", shape=[2]), value("k9", INT64, [])]
    outputs += [value("all", shape=[None])] if gathered else []
    names = " ".join(each.name for each in outputs)
    loop = node("Loop", "most go zero v none", names, body=body, name="loop")
    if most is None:
        loop.input[0] = ""
    return model([loop], [value("limit", shape=[]), value("v", shape=[2])], outputs, constants)


def feed(limit: float) -> dict[str, np.ndarray]:
    return {"limit": np.array(limit, np.float32), "v": f32(3, 5)}


@pytest.mark.parametrize("most", [None, np.iinfo(np.int64).max])
@pytest.mark.parametrize("gathered", [False, True])
def test_a_loop_that_never_ends_in_fp16_ends_without_a_result(most: int | None, gathered: bool) -> None:
    sites = Sites(load(counted(most, gathered)))
    emulator = Emulator()
    right = emulator.session(Assignment(sites, {node.node: Format.FP32 for node in sites.free})).run(feed(3000))
    assert (right["t9"], right["k9"]) == (3000, 3000)
    narrow = Assignment.all_narrow(sites)
    found = emulator.session(narrow).run(feed(3000))
    assert np.isnan(found["t9"]) and np.isnan(found["v9"]).all() and found["k9"] == MOST
    if gathered:
        assert found["all"].shape == (MOST,) and np.isnan(found["all"]).all()
        assert right["all"].tolist() == list(range(1, 3001))
    short = emulator.session(narrow).run(feed(40))
    assert (short["t9"], short["k9"]) == (40, 40) and short["v9"].tolist() == [1, 1]
    store = Store(emulator, narrow, feed(3000))
    steps = {each.name: array for step in Stepper(emulator).walk(store) for each, array in step.outputs.items()}
    assert np.isnan(steps["t9"]) and np.isnan(steps["v9"]).all()

    typed = Sites(load(typed_proto(narrow)))
    again = emulator.session(Assignment(typed, {})).run(feed(3000))
    assert np.isnan(again["t9"]) and np.isnan(again["v9"]).all()


def test_a_loop_with_a_stated_number_of_passes_is_left_as_it_is() -> None:
    sites = Sites(load(counted(2500)))
    narrow = Assignment.all_narrow(sites)
    (loop,) = (site.node for site in sites.all if site.op == "Loop")
    assert deciding(loop, narrow) == []
    assert Emulator().session(narrow).run(feed(3000))["t9"] == STUCK
    assert limit_s(narrow) == TIME_LIMIT_S


def test_only_what_the_condition_depends_on_decides() -> None:
    sites = Sites(load(counted(None)))
    (loop,) = (site.node for site in sites.all if site.op == "Loop")
    narrow = Assignment.all_narrow(sites)
    assert {node.name for node in deciding(loop, narrow)} == {"loop", "n_t1", "n_again"}
    assert limit_s(narrow) == LOOP_LIMIT_S
    kept = Assignment(sites, {site.node: Format.FP32 for site in sites.free if site.name not in ("n_v0", "n_v1")})
    assert deciding(loop, kept) == []


def test_fix_keeps_in_fp32_what_a_loop_needs_to_end_and_tells_of_the_rest() -> None:
    given = [feed(limit) for limit in (2500, 2800, 3000, 2999)]
    result = fix(counted(None), given, repairs="none")
    assert result.met and "n_t1" in result.fp32_nodes
    grows = next(each for each in result.plan.nodes if each.name == "n_t1")
    assert grows.because[0].kind is NoteKind.KEEPS_FROM_ENDING
    assert "may never end" in tell(grows, result.sites.model.node_by_name["n_t1"], {}).cause
    assert (NoteKind.LOOP_MAY_NOT_END in kinds(result.notes)) == ("n_again" not in result.fp32_nodes)
    kept = fix(counted(None), given, repairs="none", keep=["name:loop", "name:n_t1", "name:n_again"])
    assert kept.met and NoteKind.LOOP_MAY_NOT_END not in kinds(kept.notes)
    near = fix(counted(None), [feed(limit) for limit in (40, 50, 60, 70)], repairs="none")
    assert near.met and not near.fp32_nodes and NoteKind.LOOP_MAY_NOT_END in kinds(near.notes)
