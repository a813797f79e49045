"""What an answer is worth: its colour, the cause of a miss, and the one command that leads out of it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise import fix
from halfwise.core.english import say
from halfwise.core.notes import NoteKind
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.samples import Samples
from halfwise.report.answer import caution, inputs_told, way_out
from halfwise.report.fix import show_fix
from halfwise.report.html.commands import next_steps
from halfwise.report.html.verdict import verdict_words
from halfwise.report.markdown import fix_markdown
from halfwise.report.terminal import Terminal
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds, only
from tests.support.says import Says

FEEDS = [{"x": np.random.default_rng(seed).standard_normal((2, 64)).astype(np.float32)} for seed in range(4)]


def product(scale: float = 1.0) -> onnx.ModelProto:
    weights = scale * np.random.default_rng(0).standard_normal((64, 8))
    return model(
        [node("MatMul", "x w", "y")],
        [value("x", shape=(2, 64))],
        [value("y", shape=(2, 8))],
        [weight("w", weights.astype(np.float32))],
    )


def norm() -> onnx.ModelProto:
    given = product()
    given.graph.node[0].input[0] = "l"
    given.graph.node.insert(0, node("LayerNormalization", "x g b", "l", axis=-1))
    given.graph.initializer.extend([weight("g", np.ones(64, np.float32)), weight("b", np.zeros(64, np.float32))])
    return given


def test_a_ready_measure_is_called_by_its_name_and_a_function_is_the_users_own(says: Says) -> None:
    ready = fix(product(), FEEDS, metric="logits")
    assert ready.verdict.part == "logits"
    says(verdict_words(ready).after)
    own = fix(product(), FEEDS, metric=lambda reference, other: 0.5, tolerance="metric<=1")
    assert own.verdict.part == ""
    says(verdict_words(own).after)


def test_what_a_metric_measures_is_no_output(says: Says) -> None:
    made = fix(product(), FEEDS, metric=lambda reference, other: 0.0, tolerance="metric<=1", keep="op:*")
    missed = replace(made.verdict, met=False, ratio=2.0, value=2.0)
    for verdict in (missed, replace(missed, part="boxes")):
        each = replace(made, measured=replace(made.measured, verdict=verdict))
        assert not each.met
        says(way_out(each).cause)


def test_an_input_that_fp16_makes_zero_is_the_cause_whatever_overflows_behind_it(tmp_path: Path) -> None:
    """A strain of 1e-21, which the model multiplies with what overflows."""
    given = product()
    given.graph.node[0].input[0] = "l"
    given.graph.node.insert(0, node("Mul", "x up", "l"))
    given.graph.initializer.append(weight("up", np.float32(1e21)))
    path = tmp_path / "m.onnx"
    onnx.save(given, path)
    made = fix(path, [{"x": np.float32(1e-21) * feed["x"]} for feed in FEEDS], io_types="fp16")
    out = way_out(made)
    assert not made.met and "'x' in FP16" in out.cause
    assert out.step is not None and "--io-types fp32" in out.step.command


def test_an_input_that_overflows_is_the_cause_and_the_command_leaves_it_in_fp32(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(product(1e-4), path)
    feeds = [{"x": 1e5 * feed["x"]} for feed in FEEDS]
    made = fix(path, feeds, io_types="fp16", out=tmp_path / "out")
    asked = shlex.join(["halfwise", "fix", str(path), "--inputs", "in", "--io-types", "fp16", "--keep", "op:Add"])
    out = way_out(made, f"{asked} --out out")
    assert not made.good and made.standing.rank == "missed" and "'x' overflows" in out.cause
    assert out.step is not None
    words = shlex.split(out.step.command)
    assert words[:7] == ["halfwise", "fix", str(path), "--inputs", "in", "--keep", "op:Add"]
    assert words[7:] == ["--out", "out", "--io-types", "fp32"]
    again = fix(path, feeds, io_types=words[-1], out=tmp_path / "out")
    assert again.good
    assert [step.command for step in next_steps(made, "")] == [way_out(made).step.command]  # type: ignore[union-attr]
    assert verdict_words(made).but == out.cause
    assert "git add" not in fix_markdown(made)


@pytest.mark.parametrize(("copies", "told"), [(1, "1 perturbed copy"), (2, "2 perturbed copies")])
def test_copies_are_counted(copies: int, told: str) -> None:
    feed = Feed(0, FEEDS[0])
    assert inputs_told(Samples((feed,), (feed,) * copies, "derived")) == f"1 input and {told}"


def test_a_plan_that_does_not_hold_leads_to_a_search(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(product(1e4), path)
    plan = fix(product(), FEEDS).plan
    step = way_out(fix(path, [{"x": 100 * feed["x"]} for feed in FEEDS], plan=_for(plan, path))).step
    assert step is not None and "--plan" not in step.command and step.command.startswith("halfwise fix")


def _for(plan: object, path: Path) -> object:
    import dataclasses

    from halfwise.model.model import load

    return dataclasses.replace(plan, sha256=load(path).sha256, graph_sha256="", data_sha256="")  # type: ignore[type-var]


def test_synthetic_inputs_are_no_clean_yes() -> None:
    made = fix(product())
    assert made.good and made.standing.rank == "caution" and verdict_words(made).standing == "caution"
    assert fix(product(), FEEDS).standing.rank == "met"
    assert fix_markdown(made).startswith("## ⚠️")


def test_an_answer_that_keeps_most_of_the_arithmetic_is_no_success() -> None:
    made = fix(product(), FEEDS, keep="op:MatMul")
    assert made.good and made.cost.fp32_flops_share > 0.5
    assert made.standing.rank == "caution" and caution(made) == say(only(made.notes, NoteKind.MOST_FOR_MEASURE))


def in_doubles() -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((64, 8))
    given, made = value("x", TensorProto.DOUBLE, (2, 64)), value("y", TensorProto.DOUBLE, (2, 8))
    return model([node("MatMul", "x w", "y")], [given], [made], [weight("w", weights)])


def behind_doubles() -> onnx.ModelProto:
    """One node of little work may narrow."""
    given = in_doubles()
    given.graph.node.append(node("Cast", "y", "c", to=TensorProto.FLOAT))
    given.graph.node.append(node("Relu", "c", "z"))
    given.graph.output[0].CopyFrom(value("z", shape=(2, 8)))
    return given


@pytest.mark.parametrize(
    ("given", "said"),
    [(in_doubles(), "no node can be FP16"), (behind_doubles(), "no node needs FP32")],
    ids=["nothing narrows", "little narrows"],
)
def test_arithmetic_that_cannot_narrow_is_not_laid_to_an_error(
    given: onnx.ModelProto, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    feeds = [{"x": feed["x"].astype(np.float64)} for feed in FEEDS]
    made = fix(given, feeds)
    why = say(only(made.notes, NoteKind.MOST_PINNED))
    assert "'n_y' (MatMul in FP64)" in why and NoteKind.MOST_FOR_MEASURE not in kinds(made.notes)
    assert made.good and made.standing.rank == "caution" and caution(made) == why
    terminal = Terminal()
    show_fix(terminal, made)
    terminal.flush()
    assert said in verdict_words(made).headline and said in capsys.readouterr().out


def in_integers() -> onnx.ModelProto:
    weights = np.random.default_rng(0).integers(0, 255, (64, 1 << 12)).astype(np.uint8)
    return model(
        [
            node("DynamicQuantizeLinear", "x", "q s z"),
            node("MatMulInteger", "q w z", "i"),
            node("ReduceMax", "i", "m", axes=[1]),
            node("Cast", "m", "f", to=TensorProto.FLOAT),
            node("Mul", "f s", "y"),
        ],
        [value("x", shape=(2, 64))],
        [value("y", shape=(2, 1))],
        [weight("w", weights)],
    )


def in_halves_and_doubles() -> onnx.ModelProto:
    """Typed FP16 but for one product."""
    given = in_doubles()
    given.graph.node.insert(0, node("Cast", "h", "x", to=TensorProto.DOUBLE))
    given.graph.node.append(node("Cast", "y", "c", to=TensorProto.FLOAT16))
    given.graph.node.append(node("Relu", "c", "z"))
    given.graph.input[0].CopyFrom(value("h", TensorProto.FLOAT16, (2, 64)))
    given.graph.output[0].CopyFrom(value("z", TensorProto.FLOAT16, (2, 8)))
    return given


@pytest.mark.parametrize(
    ("given", "feeds", "types"),
    [
        (in_doubles(), [{"x": feed["x"].astype(np.float64)} for feed in FEEDS], "FP64"),
        (in_halves_and_doubles(), [{"h": feed["x"].astype(np.float16)} for feed in FEEDS], "FP64"),
        (in_integers(), FEEDS, "integers"),
        (product(), FEEDS, "FP32"),
    ],
    ids=["doubles", "halves and doubles", "integers", "kept"],
)
def test_the_arithmetic_that_is_left_is_told_by_its_types(
    given: onnx.ModelProto, feeds: list[Feed], types: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = fix(given, feeds, keep="op:MatMul" if types == "FP32" else ())
    terminal = Terminal()
    show_fix(terminal, made)
    terminal.flush()
    said = capsys.readouterr().out
    assert f"of the arithmetic in {types}, " in said and f"of the arithmetic in {types}; " in fix_markdown(made)
    assert "everywhere:" not in said


@pytest.mark.parametrize(("target", "known"), [("trt-8.6", True), ("trt-8.5", True), ("onnx", False)])
def test_what_is_known_of_the_version_is_no_clean_yes(target: str, known: bool, tmp_path: Path) -> None:
    """TensorRT 8.6 computes a LayerNormalization in FP16 although FP32 was asked for; 8.5 has none."""
    made = fix(norm(), FEEDS, target=target, out=tmp_path)
    assert (NoteKind.DEFECTS_NOT_PREVENTED in kinds(made.notes)) is (known and target == "trt-8.6")
    assert made.good and (made.standing.rank == "caution") is (known and target == "trt-8.6")


def test_the_headline_is_the_worst_over_all_inputs(tmp_path: Path) -> None:
    """The input that overflows is searched with; both sides are told of it all the same."""
    feeds = [*FEEDS[:3], {"x": 1e4 * FEEDS[3]["x"]}]
    given = product(2.0)
    made = fix(given, feeds, repairs="none")
    assert made.fp16["y"].nonfinite and made.fixed["y"].nonfinite == 0
    assert inputs_told(made.samples).startswith("4 inputs (") and not made.fp16_verdict.met
