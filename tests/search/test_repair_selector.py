"""Choosing repairs: what saves FP32 nodes is applied, what does not, or changes the answer, is not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from halfwise.core.errors import InputError
from halfwise.model.model import Model, load
from halfwise.precision.plan import read_plan
from halfwise.repair import RULES, Ranges, Repair, Rule, rules_named
from halfwise.repair.epsilons import EPSILONS
from halfwise.repair.norm_operator import NormOperator
from halfwise.repair.reductions import REDUCTIONS
from halfwise.repair.rescale import RESCALE, Rescale
from halfwise.repair.stable_logs import STABLE_LOGS
from halfwise.verbs.fix import time_left
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.fix.result import FixResult
from tests.models.build import model, node, value, weight
from tests.models.zoo import SHAPES, ZooModel, cnn_tiny_weights, encoder, norm_log_head
from tests.support.says import Says


def fixed(zoo: ZooModel, **options: object) -> FixResult:
    return fix(zoo.model, zoo.inputs[:4], tolerance=[f"*:rel_l2<={zoo.tolerance}"], **options)  # type: ignore[arg-type]


class _Made:
    """A rule of the test's own, at the LayerNorm's square."""

    id = "HW499"
    name = "made-up"
    bound = 0.0

    def __init__(self, factor: float, at: str = "Pow", lossy: bool = False) -> None:
        self.factor = factor
        self.at = at
        self.lossy = lossy

    def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
        return [Repair(self.id, (n.name or "",), "made up") for n in model.graph if n.op_type == self.at]

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        node = next((n for n in model.graph if n.name == repair.nodes[0]), None)
        if node is None:
            return False
        old = node.inputs[0]
        factor = ir.Value(name="made.factor", const_value=ir.tensor(np.array(self.factor, np.float32)))
        factor.type, factor.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
        model.graph.register_initializer(factor)
        scaled = ir.Node("", "Mul", [old, factor], name="made/Mul")
        scaled.outputs[0].name = "made.scaled"
        model.graph.insert_before(node, scaled)
        node.replace_input_with(0, scaled.outputs[0])
        return True


@pytest.mark.parametrize(
    ("zoo", "rule"),
    [
        (encoder(layers=2), "HW402"),
        (cnn_tiny_weights("tensors"), "HW401"),
        (cnn_tiny_weights("channels"), "HW401"),
        (SHAPES["two_masks_added"](), "HW403"),
        (SHAPES["sum_over_512x512"](), "HW405"),
    ],
    ids=lambda value: value.name if isinstance(value, ZooModel) else value,
)
def test_repairs_leave_no_node_in_fp32(zoo: ZooModel, rule: str) -> None:
    plain, repaired = fixed(zoo, repairs=("none",)), fixed(zoo)
    assert plain.plan.nodes
    assert not plain.plan.repairs
    assert repaired.met
    assert repaired.fp32_nodes == ()
    assert {entry.rule for entry in repaired.plan.repairs} == {rule}
    assert sum(entry.saved_fp32_nodes for entry in repaired.plan.repairs) >= len(plain.plan.nodes)
    assert all(entry.algebra for entry in repaired.plan.repairs)


def test_a_head_that_needs_several_rules() -> None:
    result = fixed(norm_log_head())
    assert result.met
    assert len(result.fp32_nodes) <= 2
    assert len({entry.rule for entry in result.plan.repairs}) >= 2


@pytest.mark.parametrize("name", ["healthy_mlp", "global_average_pool_large"])
def test_a_healthy_model_is_left_as_it_is(name: str) -> None:
    result = fixed(SHAPES[name]())
    assert result.plan.repairs == ()
    assert result.fixed == result.fp16


def test_only_the_rules_that_were_named(tmp_path: Path) -> None:
    result = fixed(SHAPES["layer_norm_overflow"](), repairs=("masks", "rescale"))
    assert result.plan.repairs == ()
    assert result.plan.nodes


def with_rule(monkeypatch: pytest.MonkeyPatch, *rules: Rule) -> None:
    monkeypatch.setattr(import_module("halfwise.verbs.fix.fix"), "rules_named", lambda words: rules)


def test_a_rule_that_changes_the_answer_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rule(monkeypatch, _Made(0.01))  # no overflow any more, and quite another norm
    result = fixed(SHAPES["layer_norm_overflow"]())
    assert result.plan.repairs == ()
    assert result.met
    assert result.plan.nodes


def test_the_bound_is_the_rules_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SHAPES["layer_norm_overflow"]()  # the operator sums in another order: 1.6e-7
    with_rule(monkeypatch, NormOperator(bound=1e-6))
    assert fixed(shape).plan.repairs
    with_rule(monkeypatch, NormOperator(bound=1e-8))
    assert not fixed(shape).plan.repairs


def test_a_lossy_rule_excuses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, lossy = SHAPES["layer_norm_overflow"](), _Made(0.999, at="MatMul", lossy=True)
    with_rule(monkeypatch, lossy, NormOperator(bound=1e-8))
    assert not fixed(shape).plan.repairs
    with_rule(monkeypatch, lossy, NormOperator())
    assert "HW402" in {entry.rule for entry in fixed(shape).plan.repairs}


def test_no_rule_hides_behind_another(monkeypatch: pytest.MonkeyPatch) -> None:
    head = norm_log_head()
    with_rule(monkeypatch, *rules_named(["norm-operator", "epsilons", "stable-log", "reductions"]))
    assert {"HW404", "HW407", "HW405"} == {entry.rule for entry in fixed(head).plan.repairs}
    tight = replace(STABLE_LOGS, bound=1e-9)
    with_rule(monkeypatch, tight, EPSILONS, REDUCTIONS)
    assert "HW407" not in {entry.rule for entry in fixed(head).plan.repairs}


def test_no_rule_is_asked_twice_of_the_same_model_and_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that a repair is tried on is asked before it, for what follows from it, and without what lies at its ends."""
    asked: list[tuple[object, ...]] = []

    class Watched(Rescale):
        def find(self, model: Model, ranges: Ranges) -> Sequence[Repair]:
            held = tuple(sorted(ranges.high.items()))
            asked.append((id(model), held, ranges.ends))
            return tuple(super().find(model, ranges))

    with_rule(monkeypatch, *(Watched() if rule is RESCALE else rule for rule in RULES if not rule.lossy))
    head = norm_log_head()
    fix(head.model, head.inputs[:4], tolerance=["*:rel_l2<=0.001"])
    assert len(asked) > 2 and len(set(asked)) == len(asked)


def test_a_rule_that_buys_nothing_is_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rule(monkeypatch, _Made(1.0))
    result = fixed(SHAPES["layer_norm_overflow"]())
    assert result.plan.repairs == ()
    assert [node.op for node in result.plan.nodes] == ["Pow", "ReduceMean"]


class _OneHelps(_Made):
    """At each Relu; the one at `helps` takes the factors away that overflow in between, the others do nothing."""

    def __init__(self, helps: str) -> None:
        super().__init__(1.0, at="Relu", lossy=True)
        self.helps = helps

    def apply(self, model: ir.Model, repair: Repair) -> bool:
        if repair.nodes[0] == self.helps:
            one = ir.Value(name="made.one", const_value=ir.tensor(np.array(1.0, np.float32)))
            one.type, one.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
            model.graph.register_initializer(one)
            for node in (n for n in model.graph if n.op_type == "Mul"):
                node.replace_input_with(1, one)
        return True


def test_of_many_places_of_a_rule_those_that_save_nothing_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = " ".join(f"r{i}" for i in range(8))
    nodes = [node("Relu", "x", f"r{i}") for i in range(8)]
    nodes += [node("Sum", parts, "s"), node("Mul", "s large", "l"), node("Mul", "l small", "y")]
    weights = [weight("large", np.float32(2.0**20)), weight("small", np.float32(2.0**-20))]
    given = model(nodes, [value("x")], [value("y")], weights)
    random = np.random.default_rng(0)
    feeds = [{"x": random.uniform(0.5, 1.0, 4).astype(np.float32)} for _ in range(4)]
    with_rule(monkeypatch, _OneHelps("n_r5"))
    result = fix(given, feeds)
    assert not result.fp32_nodes
    assert [repair.nodes for repair in result.plan.repairs] == [("n_r5",)]


def test_a_plan_with_repairs_makes_the_same_model_again(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    first = fixed(zoo, out=tmp_path / "a")
    assert first.typed is not None and first.plan_path is not None
    again = fixed(zoo, out=tmp_path / "b", plan=read_plan(first.plan_path))
    assert again.typed is not None
    assert again.typed.path.read_bytes() == first.typed.path.read_bytes()
    assert again.plan.repairs == first.plan.repairs
    assert again.verdict == first.verdict


def test_a_plan_with_a_repair_that_no_longer_fits(tmp_path: Path, says: Says) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    first = fixed(zoo, out=tmp_path)
    assert first.plan_path is not None
    text = first.plan_path.read_text(encoding="utf-8")
    anchor = first.plan.repairs[0].nodes[0]
    first.plan_path.write_text(text.replace(f'"{anchor}"', '"/elsewhere"'), encoding="utf-8")
    with says.raises(InputError):
        fixed(zoo, plan=read_plan(first.plan_path))
    first.plan_path.write_text(text.replace('"HW402"', '"HW999"'), encoding="utf-8")
    with says.raises(InputError):
        fixed(zoo, plan=read_plan(first.plan_path))


def test_rules_by_name_and_id(says: Says) -> None:
    assert [rule.id for rule in rules_named(["masks", "HW401"])] == ["HW403", "HW401"]
    assert [rule.id for rule in rules_named(["masks, HW401", "rescale"])] == ["HW403", "HW401"]
    assert rules_named(["none"]) == ()
    every = rules_named(["all"])
    assert {rule.id for rule in RULES} - {rule.id for rule in every} == {"HW409"}  # lossy: only when named
    assert [rule.id for rule in rules_named(["clip-weights"])] == ["HW409"]
    with says.raises(InputError):
        rules_named(["clip"])


def test_ids_and_names_are_told_once() -> None:
    assert len({rule.id for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)


def test_how_far_a_look_at_all_weights_is_gets_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of billions of weights it takes a minute, in which nothing else is told."""
    monkeypatch.setattr(time_left, "_EVERY_S", 0.0)
    zoo, told = encoder(layers=1), list[str]()
    fix(zoo.model, zoo.inputs[:2], notify=lambda text: told.append(str(text)))
    parts = {re.split(": (?:walk \\d+, )?part ", text)[-1] for text in told if "exact repairs: " in text}
    assert {part.split()[-1] for part in parts} == {str(len(load(zoo.model).graph))}
    assert len(parts) > 10
