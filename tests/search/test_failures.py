"""What fails on the way is one trial's or one repair's loss: the job goes on and says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto

import halfwise
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.repair import Ranges, Repair, Rule, repaired, table
from halfwise.search.journal import Journal
from halfwise.search.judge import Judge, Question
from halfwise.search.noise_model import measure_noise
from halfwise.search.sets import Sets
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds, only


def squares() -> onnx.ModelProto:
    """The squares of values near 300, and their root: they overflow in FP16."""
    nodes = [node("Mul", "x x", "s"), node("Mul", "s c", "t"), node("Sqrt", "t", "y")]
    return model(nodes, [value("x")], [value("y")], [weight("c", np.float32(1.5))])


FEEDS = [{"x": np.array([300.0, 310.0, 320.0, 330.0 + i], np.float32)} for i in range(4)]


@dataclass(frozen=True)
class Faulty:
    """A rule for the first node of a model; what goes wrong is in `fault`."""

    fault: str
    id: str = "HW499"
    name: str = "faulty"
    bound: float = 1e-6
    lossy: bool = False

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        if self.fault == "find":
            raise AssertionError("no rank")
        return (Repair(self.id, (model.nodes[0].name or "",), "x = x"),)

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        first = model.graph[0]
        if self.fault == "apply":
            model.graph.remove(model.graph[-1], safe=False)
            raise AssertionError("half done")
        if self.fault == "cycle":
            first.replace_input_with(0, model.graph[-1].outputs[0])
        if self.fault == "load":
            shape = ir.Value(name="three", const_value=ir.tensor(np.array([3], np.int64), name="three"))
            model.graph.register_initializer(shape)
            changed = ir.node("Reshape", [first.inputs[0], shape], name="changed")
            changed.outputs[0].name = "three_of_four"
            model.graph.insert_before(first, changed)
            first.replace_input_with(0, changed.outputs[0])
        if self.fault == "answer":
            first.replace_input_with(1, model.graph.initializers["c"])
        return True


TOLD = {
    "find": NoteKind.RULE_FAILED,
    "apply": NoteKind.RULE_FAILED,
    "cycle": NoteKind.RULE_FAILED,
    "load": NoteKind.REPAIR_NOT_RUN,
    "answer": NoteKind.REPAIR_UNFAITHFUL,
}


@pytest.mark.parametrize("fault", TOLD)
def test_a_repair_that_fails_is_not_taken(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules: tuple[Rule, ...] = (Faulty(fault),)
    monkeypatch.setattr(table, "RULES", rules)
    fixed = halfwise.fix(squares(), FEEDS)
    assert fixed.met
    assert not fixed.plan.repairs
    assert only(fixed.notes, TOLD[fault]).subject == "faulty"


@pytest.mark.parametrize("fault", ["find", "apply"])
def test_other_repairs_are_still_made(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = halfwise.fix(squares(), FEEDS)
    monkeypatch.setattr(table, "RULES", (Faulty(fault), *table.RULES))
    fixed = halfwise.fix(squares(), FEEDS)
    assert plain.plan.repairs
    assert fixed.plan.repairs == plain.plan.repairs
    assert fixed.plan.nodes == plain.plan.nodes


def test_the_place_of_the_failure_is_shown_on_demand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "RULES", (Faulty("find"),))
    halfwise.fix(squares(), FEEDS)
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("HALFWISE_DEBUG", "1")
    halfwise.fix(squares(), FEEDS)
    assert "AssertionError: no rank" in capsys.readouterr().err


def test_a_plan_with_a_repair_that_fails_is_still_refused() -> None:
    """Without somebody to tell, nothing is left out in silence."""
    given = load(squares())
    rule = Faulty("apply")
    with pytest.raises(AssertionError):
        repaired(given, [(rule, rule.find(given, Ranges())[0])])
    left_out: list[str] = []
    same, done = repaired(given, [(rule, rule.find(given, Ranges())[0])], lambda name, _: left_out.append(name))
    assert (left_out, done, len(same.nodes)) == (["faulty"], (), 3)


def table_of(rows: int) -> onnx.ModelProto:
    """A row of a table, chosen by a product of real data: rounded, it is one row too far."""
    nodes = [
        node("Mul", "x w", "m"),
        node("ReduceSum", "m", "place", keepdims=0),
        node("Cast", "place", "index", to=TensorProto.INT64),
        node("Gather", "t index", "row"),
        node("Sqrt", "row", "y"),
    ]
    rising = np.linspace(1.0, 2.0, rows, dtype=np.float32)
    weights = [weight("w", np.full(4, 0.25, np.float32)), weight("t", rising)]
    return model(nodes, [value("x")], [value("y", shape=None)], weights)


def test_a_trial_that_leaves_the_table_has_an_infinite_error() -> None:
    """5999 becomes 6000 in FP16: the table has none, and the runtime refuses the run."""
    feeds = [{"x": np.full(4, 5999.0, np.float32)}, {"x": np.full(4, 5997.0, np.float32)}]
    sites = Sites(load(table_of(6000)))
    judge = Judge(sites, Emulator(), Question(Tolerance.default()), feeds)
    cast = sites.model.node_by_name["n_place"]
    narrow = Assignment.all_narrow(sites, frozenset({sites.model.node_by_name["n_row"]}))
    if narrow.of(cast).narrow:
        assert judge.measure(narrow).ratio == np.inf
        assert judge.measure_one(narrow, 0) == np.inf
    fixed = halfwise.fix(table_of(6000), feeds)
    assert fixed.met
    assert {"n_m", "n_place"} <= set(fixed.fp32_nodes)


def test_a_failure_of_the_emulation_is_a_failure_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = Sites(load(squares()))
    write = Emulator.write

    def failing(self: Emulator, assignment: Assignment, **options: Any) -> Any:
        if assignment.formats:
            raise AssertionError("no rank")
        return write(self, assignment, **options)

    monkeypatch.setattr(Emulator, "write", failing)
    judge = Judge(sites, Emulator(), Question(Tolerance((Bound.of("y", "exact", 0.0),))), FEEDS)
    measured = judge.measure(Assignment.all_narrow(sites))
    assert measured.ratios == (np.inf,) * len(FEEDS)
    assert not measured.met
    assert not measured.uncompared
    assert kinds(judge.failures.notes) == [NoteKind.TRIAL_NOT_RUN]


def test_a_model_that_no_node_of_runs_alone_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise InputError("the type of a tensor is not known")

    monkeypatch.setattr(Stepper, "_compile", refused)
    fixed = halfwise.fix(squares(), FEEDS, repairs="none")
    assert fixed.met
    assert NoteKind.NOT_STEPPED in kinds(fixed.notes)
    assert {each.name for each in fixed.plan.nodes} == {"n_s", "n_t", "n_y"}


def test_a_walk_that_fails_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No set is chosen by what half a walk saw."""
    run, begun = Stepper.run, list[str]()

    def refuses(self: Stepper, ran: ir.Node, *more: Any, **named: Any) -> Any:
        begun.append(ran.op_type)
        if ran.op_type == "Sqrt":
            raise InputError("node 'n_y' by itself: no")
        return run(self, ran, *more, **named)

    monkeypatch.setattr(Stepper, "run", refuses)
    sites = Sites(load(squares()))
    judge = Judge(sites, emulator := Emulator(), Question(Tolerance((Bound.of("*", "rel_l2", 0.01),))), FEEDS[:1])
    sets = Sets(sites, judge, Stepper(emulator), Journal(), Format.FP32)
    noise = measure_noise(sets, sets.measure(frozenset()), lambda text: None)
    assert not noise.pieces and not judge.memory.statistics
    assert begun.count("Sqrt") == 1
