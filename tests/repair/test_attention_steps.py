"""Attention that a compiler refuses is written in its steps: the same answers, also where a plan makes them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from halfwise import fix
from halfwise.compiler import rtx
from halfwise.compiler.build import BuildError, BuildResult
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.repair import Ranges, reapplied, repaired
from halfwise.repair.attention_steps import ATTENTION_STEPS, steps_of
from tests.model.test_standard_steps import CASES, attention
from tests.models.build import model, node, value, weight
from tests.support.deployed import needs_rtx
from tests.support.messages import only

SHAPE = (2, 4, 16, 32)


@pytest.mark.parametrize("name", CASES)
def test_the_answer_stays(name: str) -> None:
    proto, feeds = attention(name)
    given = load(proto)
    (repair,) = ATTENTION_STEPS.find(given, Ranges())
    made, done = repaired(given, [(ATTENTION_STEPS, repair)])
    assert done == (repair,) and made.output_names == given.output_names
    assert not any(each.op_type == "Attention" for each in made.nodes)
    assert set(steps_of(made, repair.nodes)) >= {each.name for each in made.nodes if each.op_type != "Identity"}
    assert reapplied(given, [repair.document()]).node_by_name.keys() == made.node_by_name.keys()
    written = typed_proto(Assignment(Sites(made), {})).SerializeToString()
    expected, found = (ort.InferenceSession(each).run(None, feeds) for each in (proto.SerializeToString(), written))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6)


def test_a_node_that_is_gone_is_named() -> None:
    entry = ATTENTION_STEPS.at(["other"]).document()
    with pytest.raises(InputError, match="'other'"):
        reapplied(load(attention("plain")[0]), [entry])


def capped(loud: float = 1.0) -> onnx.ModelProto:
    """A cap that TensorRT-RTX 1.7 has no kernel for, over scores of queries that are `loud`."""
    return model(
        [
            node("Mul", "q loud", "queries"),
            node("Attention", "queries k v", "a", softcap=5.0, scale=0.2 / loud),
            node("Tanh", "a", "y"),
        ],
        [value(name, shape=SHAPE) for name in "qkv"],
        [value("y", shape=SHAPE)],
        [weight("loud", np.float32(loud))],
        opset=23,
        ir_version=10,
    )


def feeds() -> list[dict[str, Any]]:
    return [
        {
            name: np.random.default_rng([seed, slot]).normal(size=SHAPE).astype(np.float32)
            for slot, name in enumerate("qkv")
        }
        for seed in range(4)
    ]


@needs_rtx
@pytest.mark.parametrize("loud", [1.0, 1e6])
def test_the_model_that_is_written_builds(loud: float, tmp_path: Path) -> None:
    result = fix(capped(loud), feeds(), target="rtx-1.7", out=tmp_path / "first")
    assert result.good and result.refusal == ""
    assert result.plan.repairs[0].rule == "HW414"
    assert only(result.notes, NoteKind.ATTENTION_IN_STEPS).values["nodes"] == ("n_a",)
    again = fix(capped(loud), feeds(), plan=result.plan, out=tmp_path / "again")
    assert again.good
    first, second = (each.typed.path.read_bytes() for each in (result, again) if each.typed is not None)
    assert first == second


@needs_rtx
def test_a_crash_on_the_operator_is_answered_with_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = rtx.build

    def crashes(path: Path, **options: Any) -> BuildResult:
        if any(each.op_type == "Attention" for each in onnx.load(path).graph.node):
            raise BuildError(f"{path}: TensorRT-RTX crashed (SIGSEGV)", failure="crashed", log_path=tmp_path / "log")
        return build(path, **options)

    monkeypatch.setattr(rtx, "build", crashes)
    proto = capped()
    del proto.graph.node[1].attribute[:]
    result = fix(proto, feeds(), target="rtx-1.7", out=tmp_path / "out")
    assert result.good and result.plan.repairs[0].rule == "HW414"
    assert "SIGSEGV" in only(result.notes, NoteKind.ATTENTION_IN_STEPS).values["error"]


@needs_rtx
def test_a_decoder_that_hands_out_its_cache_builds() -> None:
    """Its parser reads Attention with one output only; the past may be of any length."""
    past, present = (2, 4, "past", 32), (2, 4, "present", 32)
    proto = model(
        [node("Attention", "q k v - pk pv", "y nk nv", is_causal=1)],
        [*(value(name, shape=SHAPE) for name in "qkv"), value("pk", shape=past), value("pv", shape=past)],
        [value("y", shape=SHAPE), value("nk", shape=present), value("nv", shape=present)],
        opset=23,
        ir_version=10,
    )
    rng = np.random.default_rng(1)
    given = [
        {**feed, **{name: rng.normal(size=(2, 4, 3 + length, 32)).astype(np.float32) for name in ("pk", "pv")}}
        for length, feed in enumerate(feeds())
    ]
    result = fix(proto, given, target="rtx-1.7")
    assert result.good and result.plan.repairs[0].nodes == ("n_y",)


@needs_rtx
def test_what_the_user_keeps_is_kept_step_by_step() -> None:
    result = fix(capped(), feeds(), target="rtx-1.7", keep="op:Attention")
    assert result.good
    kept = {each.name for each in result.plan.nodes}
    assert kept and all(name.startswith("n_a/") for name in kept)


@needs_rtx
@pytest.mark.parametrize("target", ["rtx-1.7", "trt-10.15"])
def test_the_operator_stays_where_it_builds_or_another_release_is_asked(target: str) -> None:
    proto = capped()
    if target == "rtx-1.7":
        del proto.graph.node[1].attribute[:]
    result = fix(proto, feeds(), target=target)
    assert result.plan.repairs == ()
