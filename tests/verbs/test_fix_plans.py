"""`fix` with a plan, and for targets and types."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.tolerance import Tolerance
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import load
from halfwise.precision.plan import Plan, PlannedNode, read_plan
from halfwise.search.attempt import Attempt
from halfwise.search.held_out import HeldOutSearch
from halfwise.verbs.fix.fix import fix
from tests.models.random_nets import feeds, random_net
from tests.models.zoo import SHAPES, encoder
from tests.support.fixing import float_types, solved
from tests.support.says import Says

# -- targets, types ---------------------------------------------------------------------------------------------------


def test_fp16_inputs_and_outputs(tmp_path: Path) -> None:
    zoo = SHAPES["rms_norm_overflow"]()
    result = solved(zoo, tmp_path, io_types=Format.FP16)
    assert result.typed is not None
    graph = onnx.load(result.typed.path).graph
    types = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    assert types == {TensorProto.FLOAT16}
    assert result.plan.io_types is Format.FP16


def test_bf16_for_nodes_that_only_lack_range(tmp_path: Path) -> None:
    zoo = SHAPES["layer_norm_overflow"]()
    result = fix(zoo.model, zoo.inputs, out=tmp_path, allow_bf16=True, repairs=("none",))
    assert result.met and result.typed is not None
    wide = [node for node in result.plan.nodes if node.format is Format.BF16]
    assert wide and all(node.why == "overflow" for node in wide)
    assert TensorProto.BFLOAT16 in float_types(result.typed.path)
    assert not set(result.fp32_nodes) & {node.name for node in wide}
    onnx.checker.check_model(str(result.typed.path), full_check=True)
    assert read_plan(tmp_path / "model.plan.json") == result.plan


def test_the_profile_follows_the_target() -> None:
    zoo = SHAPES["healthy_mlp"]()
    assert fix(zoo.model, zoo.inputs).plan.profile == "strict"
    assert fix(zoo.model, zoo.inputs, target="ort-cuda").plan.profile == "ort-cuda"
    assert fix(zoo.model, zoo.inputs, target="ort-cuda", profile="strict").plan.profile == "strict"


# -- plans ------------------------------------------------------------------------------------------------------------


def by_hand(model: onnx.ModelProto, *names: str, fmt: Format = Format.FP32, target: str = "onnx") -> Plan:
    nodes = tuple(PlannedNode(name, "", fmt, Reason.WANTED, (Note.of(NoteKind.IN_PLAN),)) for name in names)
    sha = load(model).sha256
    return Plan("m", sha, len(model.graph.node), target, "strict", Tolerance.default(), Format.FP32, "", nodes)


def test_a_plan_gives_the_same_model_again(tmp_path: Path) -> None:
    zoo = encoder(2, seq=16)
    first = fix(zoo.model, zoo.inputs[:6], out=tmp_path / "a")
    again = fix(zoo.model, zoo.inputs[6:], out=tmp_path / "b", plan=read_plan(tmp_path / "a" / "model.plan.json"))
    assert again.met and again.plan.nodes == first.plan.nodes
    assert (tmp_path / "a" / "model.fp16.onnx").read_bytes() == (tmp_path / "b" / "model.fp16.onnx").read_bytes()
    assert again.cost.model_runs < first.cost.model_runs


def test_a_plan_by_hand_is_applied_and_judged(tmp_path: Path) -> None:
    zoo = encoder(2, seq=16)
    assert fix(zoo.model, zoo.inputs[:4], plan=by_hand(zoo.model, *zoo.known_good)).met
    missed = fix(zoo.model, zoo.inputs[:4], plan=by_hand(zoo.model, *zoo.known_good[1:]), out=tmp_path)
    assert not missed.met
    assert set(missed.fp32_nodes) == set(zoo.known_good[1:])


def test_what_is_stated_beside_a_plan_wins() -> None:
    zoo = SHAPES["healthy_mlp"]()
    plan = by_hand(zoo.model, target="ort-cuda")
    assert fix(zoo.model, zoo.inputs, plan=plan).plan.target == "ort-cuda"
    result = fix(zoo.model, zoo.inputs, plan=plan, target="onnx", io_types=Format.FP16, tolerance=["rel_l2<=0.5"])
    assert (result.plan.target, result.plan.io_types) == ("onnx", Format.FP16)
    assert result.plan.tolerance.to_json()["*:rel_l2"] == 0.5


def test_plans_that_cannot_be_applied(says: Says) -> None:
    zoo, other = SHAPES["layer_norm_overflow"](), SHAPES["healthy_mlp"]()
    pow_node = next(node.name for node in zoo.model.graph.node if node.op_type == "Pow")
    for plan in (by_hand(other.model), by_hand(zoo.model, pow_node, fmt=Format.BF16, target="trt-10.9@t4")):
        with says.raises(InputError):
            fix(zoo.model, zoo.inputs, plan=plan)


@pytest.mark.parametrize("seed", [1, 3, 12])
def test_allowing_bf16_loses_no_answer_that_fp16_and_fp32_have(seed: int) -> None:
    asked = {"repairs": "none", "max_runs": 20}
    without = fix(random_net(seed), feeds(seed), **asked)  # type: ignore[arg-type]
    allowed = fix(random_net(seed), feeds(seed), allow_bf16=True, **asked)  # type: ignore[arg-type]
    assert allowed.met >= without.met
    assert set(allowed.fp32_nodes) <= set(without.fp32_nodes)


@pytest.mark.parametrize("name", [*SHAPES])
def test_allowing_bf16_is_never_worse(name: str) -> None:
    """In what is met, and in nodes out of FP16; without repairs, so that there are some."""
    zoo = SHAPES[name]()
    without = fix(zoo.model, zoo.inputs, target="trt-10.9", repairs=("none",))
    allowed = fix(zoo.model, zoo.inputs, target="trt-10.9", repairs=("none",), allow_bf16=True)
    assert allowed.met >= without.met
    assert set(allowed.fp32_nodes) <= set(without.fp32_nodes)
    assert {node.name for node in allowed.plan.nodes} <= {node.name for node in without.plan.nodes}


def test_where_bf16_does_not_hold_the_answer_without_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere(search: HeldOutSearch, best: Attempt, _: Samples) -> dict[ir.Node, Format]:
        return dict.fromkeys((site.node for site in best.search.sites.free), Format.BF16)

    zoo, asked = SHAPES["layer_norm_overflow"](), {"repairs": "none", "tolerance": "rel_l2<=1e-3"}
    without = fix(zoo.model, zoo.inputs, **asked)  # type: ignore[arg-type]
    monkeypatch.setattr(HeldOutSearch, "_use_bf16", everywhere)
    allowed = fix(zoo.model, zoo.inputs, allow_bf16=True, **asked)  # type: ignore[arg-type]
    assert without.met and allowed.met
    assert allowed.fp32_nodes == without.fp32_nodes
