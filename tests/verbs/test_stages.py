"""Stage by stage: where a model is cut, what each stage does alone and chained, and its culprits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from halfwise import InputError, fix, load, read_plan
from halfwise.core.evaluation import sample_error
from halfwise.core.notes import NoteKind
from halfwise.emulation.emulate import Emulator
from halfwise.model.outputs.kinds import facts_of
from halfwise.model.outputs.understood import understand
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.verbs.stages import stages
from halfwise.verbs.stages.culprits import exponent_note
from halfwise.verbs.stages.cut import cut_at_scopes, cut_at_tensors, needed_by
from halfwise.verbs.stages.scopes import spoken, stage_labels
from tests.models.build import f32, model, node, value, weight
from tests.models.dags import FEEDS, dags
from tests.models.tracker import samples, tracker
from tests.support.command_line import CommandLine
from tests.support.says import Says

PARTS = ["box_encoding", "position_embedding", "(root)", "transformer", "filter_predictor", "classifier"]


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.delenv("COLUMNS", raising=False)
    return CommandLine(monkeypatch, capsys)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    onnx.save(tracker(), tmp_path / "tracker.onnx")
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    for index, feed in enumerate(samples()):
        np.savez(inputs / f"{index}.npz", **feed)
    return tmp_path / "tracker.onnx", inputs


# -- the tracker -------------------------------------------------------------------------------------------------------


def test_the_parts_convert_well_the_whole_does_not_and_the_softmax_is_named() -> None:
    result = stages(tracker(), samples())
    assert [stage.name for stage in result.stages] == PARTS
    assert not result.met
    assert [stage.name for stage in result.wrong] == ["filter_predictor"]
    assert [stage.finding for stage in result.stages] == [*["good"] * 4, "wrong by itself", "inherits"]
    culprit = result.stage("filter_predictor").culprits[0]
    assert (culprit.name, culprit.op) == ("/filter_predictor/self_attn/Softmax", "Softmax")
    assert culprit.because[0] == exponent_note(culprit.numbers["input_max_abs"])
    assert {node.name.rpartition("/")[0] for node in result.stage("filter_predictor").culprits} == {
        "/filter_predictor/self_attn"
    }
    corrected = result.stage("filter_predictor").corrected
    assert corrected is not None and corrected < 0.5


def test_without_the_spread_every_part_and_the_whole_are_good() -> None:
    result = stages(tracker(spread=0.0), samples())
    assert result.met
    assert {stage.finding for stage in result.stages} == {"good"}


def test_deeper_stages_point_nearer() -> None:
    result = stages(tracker(), samples(), depth=2)
    assert [stage.name for stage in result.wrong] == ["filter_predictor.self_attn"]
    assert {"transformer.layers.0", "filter_predictor.norm1", "filter_predictor.ffn"} <= {s.name for s in result.stages}


def test_culprits_in_fp32_are_enough_for_the_whole_model() -> None:
    found = stages(tracker(), samples()).stage("filter_predictor").culprits
    whole = load(tracker())
    keep = frozenset(whole.node_by_name[node.name] for node in found)
    result = stages(tracker(), samples())
    emulated = Emulator().session(Assignment.all_narrow(Sites(whole), keep))
    exact = Emulator().session(Assignment(Sites(whole), {}))
    for feed in samples():
        wanted, got = exact.run(feed)["filter"], emulated.run(feed)["filter"]
        assert np.linalg.norm(got - wanted) <= 0.01 * np.linalg.norm(wanted)
    assert result.whole.ratio > 1


# -- what is promised of the chain -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_chain_is_the_whole_model_in_fp16_to_the_last_bit(data: st.DataObject) -> None:
    dag, feeds = data.draw(dags()), data.draw(FEEDS)
    whole = load(dag.proto())
    made = [f"t{index}" for index in range(len(dag.steps))]
    cut = data.draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    try:
        result = stages(whole, [feeds], cut=cut)
    except InputError as error:
        assert "do not divide the model" in str(error)  # or nothing needs these tensors
        return
    wanted = Emulator().session(Assignment(Sites(whole), {})).run(feeds)
    got = Emulator().session(Assignment.all_narrow(Sites(whole))).run(feeds)
    expected = sample_error(wanted, got, kinds=understand(facts_of(whole), (), None, [wanted]).tolerance.kinds)
    assert set(result.whole.outputs) == {name for name in dag.outputs if name in made}
    for name, metrics in result.whole.outputs.items():
        assert metrics == expected.outputs[name]


def test_an_output_that_no_stage_makes_is_not_judged() -> None:
    proto = model([node("Relu", "x", "y")], [value("x")], [value("x"), value("y")])
    assert set(stages(proto, [{"x": f32(1, -2, 3, 4)}]).whole.outputs) == {"y"}


def test_every_stage_reads_only_what_comes_before_it() -> None:
    for proto in (tracker(), shared_module()):
        whole = load(proto)
        pieces = cut_at_scopes(Sites(whole), 2)
        home = {n: index for index, piece in enumerate(pieces) for n in piece.nodes}
        assert sorted(n.name or "" for n in home) == sorted(n.name or "" for n in whole.graph)
        for n, index in home.items():
            producers = [v.producer() for v in needed_by(n)]
            assert all(home[p] <= index for p in producers if p is not None)


def test_only_in_company_and_spreading() -> None:
    """Alone each rounds within 2e-4. Together two roundings of the same kind go beyond it; a difference of nearly equal
    values goes far beyond it, and would do so in FP32."""
    ones = np.ones(512, np.float32)
    nodes = [
        node("Mul", "x third", "a", name="/first/Mul"),
        node("Mul", "a third", "b", name="/second/Mul"),
        node("Mul", "b third", "y", name="/third/Mul"),
        node("Sub", "x ones", "d", name="/near/Sub"),
    ]
    weights = [weight("third", f32(0.333)), weight("ones", ones)]
    outputs = [value("y", shape=(512,)), value("d", shape=(512,))]
    proto = model(nodes, [value("x", shape=(512,))], outputs, weights)
    x = np.random.default_rng(0).uniform(1, 2, 512).astype(np.float32)
    free = stages(proto, [{"x": x}])
    alone = max(free.stage(name).alone.outputs[out].rel_l2 for name, out in (("second", "b"), ("third", "y")))
    first = free.stage("first").alone.outputs["a"].rel_l2
    result = stages(proto, [{"x": x}], tolerance=[f"*:rel_l2<={max(alone, first) * 1.01:.9f}"])
    assert [result.stage(name).finding for name in ("first", "second")] == ["good", "only in company"]
    assert result.stage("third").finding == "inherits"


def test_a_stage_that_spreads_small_errors_would_do_so_in_fp32() -> None:
    """The first is off by a step of FP16 here and there; the second takes away all but those steps. On exact inputs,
    which FP16 can hold, it makes no error at all."""
    nodes = [
        node("Mul", "x three", "m", name="/first/Mul"),
        node("Div", "m three", "a", name="/first/Div"),
        node("Sub", "a hundred", "y", name="/second/Sub"),
    ]
    weights = [weight("three", f32(3)), weight("hundred", f32(100))]
    proto = model(nodes, [value("x", shape=(64,))], [value("y", shape=(64,))], weights)
    x = (100 + np.random.default_rng(0).integers(-9, 10, 64) / 16).astype(np.float32)
    first, second = stages(proto, [{"x": x}]).stages
    assert (first.finding, second.finding) == ("good", "spreads")
    assert second.alone.ratio == 0 and second.propagated.ratio > 1


def shared_module() -> onnx.ModelProto:
    """A module that is called twice, with another between, and a skip connection around all."""
    nodes = [
        node("Relu", "x", "a", name="/shared/Relu"),
        node("Sigmoid", "a", "b", name="/other/Sigmoid"),
        node("Relu", "b", "c", name="/shared/Relu_1"),
        node("Add", "c x", "y", name="/Add"),
    ]
    return model(nodes, [value("x")], [value("y")])


def test_a_module_called_twice_makes_two_stages() -> None:
    result = stages(shared_module(), [{"x": f32(1, 2, 3, 4)}])
    assert [stage.name for stage in result.stages] == ["shared", "other", "shared (2)", "(root)"]
    assert result.stage("(root)").inputs == ("c", "x")


# -- where modules are told --------------------------------------------------------------------------------------------


def labels_of(proto: onnx.ModelProto, depth: int = 1) -> list[str]:
    return [spoken(label) for label in stage_labels(load(proto), depth).values()]


def test_what_all_scopes_have_in_common_counts_for_nothing() -> None:
    nodes = [
        node("Relu", "x", "a", name="/model/net/body/conv/Relu"),
        node("Sigmoid", "a", "y", name="/model/net/head/Sigmoid"),
    ]
    proto = model(nodes, [value("x")], [value("y")])
    assert labels_of(proto) == ["body", "head"]
    assert labels_of(proto, depth=2) == ["body.conv", "head"]


def test_unnamed_nodes_are_placed_by_their_results_and_plain_names_by_their_weights() -> None:
    nodes = [node("Relu", "x", "/body/Relu_output_0", name=""), node("Sigmoid", "/body/Relu_output_0", "y", name="")]
    assert labels_of(model(nodes, [value("x")], [value("y")]))[0] == "body"
    nodes = [
        node("Mul", "x body.scale.weight", "a", name="Mul_0"),
        node("Relu", "a", "b", name="Relu_1"),
        node("Mul", "b head.0.weight", "y", name="Mul_2"),
    ]
    weights = [weight("body.scale.weight", f32(2)), weight("head.0.weight", f32(3))]
    assert labels_of(model(nodes, [value("x")], [value("y")], weights)) == ["body", "body", "head"]


def test_cuts_at_tensors() -> None:
    whole = load(shared_module())
    assert [(p.name, len(p.nodes)) for p in cut_at_tensors(whole, ["b", "a"])] == [
        ("to a", 1),
        ("to b", 1),
        ("to the outputs", 2),
    ]


def test_a_subgraph_captures_across_stages() -> None:
    then = onnx.helper.make_graph([node("Mul", "a a", "t", name="t")], "then", [], [value("t")])
    other = onnx.helper.make_graph([node("Neg", "a", "e", name="e")], "else", [], [value("e")])
    nodes = [
        node("Relu", "x", "a", name="/first/Relu"),
        node("If", "yes", "y", name="/second/If", then_branch=then, else_branch=other),
    ]
    proto = model(nodes, [value("x")], [value("y")], [weight("yes", np.array(True))])
    result = stages(proto, [{"x": f32(1, -2, 300, 1000)}])
    assert result.stage("second").inputs == ("a",)
    assert result.stage("second").finding == "wrong by itself"  # 1000 squared is beyond FP16


def test_a_model_that_is_one_module_is_one_stage_and_no_answer_is_said() -> None:
    nodes = [node("Exp", "x", "a", name="/net/Exp"), node("Log", "a", "y", name="/net/Log")]
    proto = model(nodes, [value("x")], [value("y")])
    result = stages(proto, [{"x": f32(1, 2, 3, 12)}])
    assert [(stage.name, stage.finding) for stage in result.stages] == [("net", "wrong by itself")]
    lost = stages(proto, [{"x": f32(200, 200, 300, 400)}])
    told = [note for note in lost.notes if note.kind is NoteKind.NOTHING_FINITE_FROM]
    assert [(note.subject, note.values["op"]) for note in told] == [("/net/Exp", "Exp")]


def test_half_a_step() -> None:
    note = exponent_note(1225.0)
    assert note is not None and note.kind is NoteKind.ROUNDS_EXPONENT
    assert (note.values["step"], round(note.values["change"], 3)) == (1.0, 0.649)
    assert exponent_note(4.0) is exponent_note(0.0) is exponent_note(1e6) is None


# -- what is written ---------------------------------------------------------------------------------------------------


def test_stages_on_disk_are_the_model_again(tmp_path: Path) -> None:
    result = stages(tracker(), samples(), out=tmp_path)
    values = dict(samples()[0])
    for stage in result.stages:
        assert stage.onnx is not None
        onnx.checker.check_model(onnx.load(stage.onnx))
        part = load(stage.onnx)
        session = Emulator().session(Assignment(Sites(part), {}))
        with np.load(stage.onnx.with_suffix(".inputs") / "0.npz") as given:
            assert set(given.files) == set(stage.inputs)
            assert all(np.array_equal(given[name], values[name]) for name in stage.inputs)
        values.update(session.run({name: values[name] for name in stage.inputs}))
    whole = load(tracker())
    wanted = Emulator().session(Assignment(Sites(whole), {})).run(samples()[0])
    assert all(np.array_equal(values[name], wanted[name]) for name in wanted)


def test_upto_gives_a_plan_that_fix_takes(saved: tuple[Path, Path], tmp_path: Path) -> None:
    path, inputs = saved
    result = stages(path, inputs, upto="transformer", out=tmp_path / "out")
    assert result.upto is not None and result.upto.path is not None
    plan = read_plan(result.upto.path)
    assert {n.name.split("/")[1] for n in plan.nodes} == {"filter_predictor", "classifier"}
    assert result.upto.whole.verdict.met
    fixed = fix(path, inputs, plan=plan)
    assert fixed.met and {n.name for n in fixed.plan.nodes} == {n.name for n in plan.nodes}
    last = stages(path, inputs, upto="/filter_predictor")
    assert last.upto is not None and not last.upto.whole.verdict.met


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_screen_names_stage_and_node(halfwise_cli: CommandLine, saved: tuple[Path, Path], says: Says) -> None:
    path, inputs = saved
    ended = halfwise_cli("stages", path, "--inputs", inputs)
    lines = ended.out.splitlines()
    assert ended.code == 1 and ended.err == ""
    says(lines[0])
    row = next(line for line in lines if line.startswith("filter_predictor "))
    assert row.endswith("fails alone")
    says(lines, "filter_predictor fails alone")
    assert any(line.startswith("/filter_predictor/self_attn/Softmax") for line in lines)


def test_long_tables_are_whole_on_request(
    halfwise_cli: CommandLine, saved: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inputs = saved
    monkeypatch.setattr("halfwise.report.stages._CULPRITS", 0)
    monkeypatch.setattr("halfwise.report.verdict._SHOWN", 1)
    short = halfwise_cli("stages", path, "--inputs", inputs).out
    full = halfwise_cli("stages", path, "--inputs", inputs, "--full").out
    softmax = "\n/filter_predictor/self_attn/Softmax"
    assert "(--full shows all)" in short and softmax not in short
    assert "--full" not in full and softmax in full


def test_the_document(halfwise_cli: CommandLine, saved: tuple[Path, Path], tmp_path: Path) -> None:
    path, inputs = saved
    out = tmp_path / "o"
    ended = halfwise_cli("stages", path, "--inputs", inputs, "--upto", "transformer", "--out", out, "--json")
    document = ended.document
    assert ended.code == 1
    assert document["schema"] == "halfwise.stages/1" and document["status"] == "not-met"
    assert [stage["name"] for stage in document["stages"]] == PARTS
    stage = document["stages"][4]
    assert stage["finding"] == "wrong by itself" and stage["culprits"][0]["op"] == "Softmax"
    assert Path(stage["onnx"]).name == "05-filter_predictor.onnx"
    assert document["upto"]["met"] and json.loads(Path(document["upto"]["plan"]).read_text())["fp32_nodes"]


def test_overflow_in_the_document_is_json(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    nodes = [node("Mul", "x x", "a", name="/sq/Mul"), node("Relu", "a", "y", name="/act/Relu")]
    onnx.save(model(nodes, [value("x")], [value("y")]), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=f32(1, 2, 3, 1000))
    document = halfwise_cli("stages", tmp_path / "m.onnx", "--inputs", tmp_path / "x.npz", "--json").document
    assert document["stages"][0]["alone"]["load"] == "inf"
    assert document["stages"][1]["finding"] == "wrong by itself"  # FP16 cannot hold what it is given


def test_what_cannot_be_cut_is_one_line(
    halfwise_cli: CommandLine, saved: tuple[Path, Path], tmp_path: Path, says: Says
) -> None:
    path, inputs = saved
    plain = tmp_path / "plain.onnx"
    onnx.save(model([node("Relu", "x", "y", name="relu")], [value("x")], [value("y")]), plain)
    near = halfwise_cli("stages", path, "--inputs", inputs, "--cut", "/Ad").told
    says(near)
    says(halfwise_cli("stages", path, "--inputs", inputs, "--cut", "boxes").told)
    assert "do not divide the model" in halfwise_cli("stages", plain, "--cut", "y").told
    unknown = halfwise_cli("stages", path, "--inputs", inputs, "--upto", "transfomer")
    assert unknown.code == 2
    says(unknown.told)
    assert "begins at 1" in halfwise_cli("stages", path, "--depth", "0").told
    assert "give one of them" in halfwise_cli("stages", path, "--depth", "1", "--cut", "/Add").told
    (tmp_path / "file").write_text("")
    assert "choose another folder" in halfwise_cli("stages", path, "--inputs", inputs, "--out", tmp_path / "file").told
    bound = halfwise_cli("stages", path, "--inputs", inputs, "--tol", "metric<=1").told
    assert "use halfwise verify" in bound


def test_several_cuts_in_one_option(halfwise_cli: CommandLine, saved: tuple[Path, Path]) -> None:
    path, inputs = saved
    ended = halfwise_cli("stages", path, "--inputs", inputs, "--cut", "/Add,/Add_1", "--json")
    assert [s["name"] for s in ended.document["stages"]] == ["to /Add", "to /Add_1", "to the outputs"]


def test_a_tensor_between_stages_can_be_bounded(says: Says) -> None:
    result = stages(tracker(), samples(), tolerance=["filter:rel_l2<=0.5", "scores:rel_l2<=0.5"])
    assert result.met and not result.wrong
    with says.raises(InputError):
        stages(tracker(), samples(), tolerance=["nothing:rel_l2<=0.5"])


def test_a_tensor_type_that_cannot_pass_joins_stages() -> None:
    nodes = [
        node("SequenceConstruct", "x x", "s", name="/first/SequenceConstruct"),
        node("ConcatFromSequence", "s", "a", name="/second/ConcatFromSequence", axis=0),
        node("Exp", "a", "y", name="/third/Exp"),
    ]
    proto = model(nodes, [value("x", TensorProto.FLOAT, (4,))], [value("y", TensorProto.FLOAT, (8,))])
    result = stages(proto, [{"x": f32(1, 2, 3, 4)}], cut=["s", "a"])
    assert result.met
    assert any(" + " in stage.name for stage in result.stages)


def test_a_model_without_nodes_has_no_stages() -> None:
    proto = model([], [value("x", shape=(1,))], [value("x", shape=(1,))])
    with pytest.raises(InputError, match="has no nodes"):
        stages(proto)
