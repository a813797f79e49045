"""What the compiler takes back, joins or refuses reaches the result of `fix`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.compiler import rtx
from halfwise.compiler.audit import Violation
from halfwise.compiler.build import BuildError
from halfwise.compiler.compiled import Compiler, compile_and_adjust
from halfwise.compiler.isolated_matmuls import companions, find_isolated_matmuls
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.model.inputs.samples import load_samples
from halfwise.model.model import load
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from halfwise.report.fix import show_fix
from halfwise.report.markdown import fix_markdown
from halfwise.report.terminal import Terminal
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value
from tests.models.encoder_attention import encoder_attention
from tests.support.deployed import WIDTH, big_square, fixed, model_of, needs_rtx, samples
from tests.support.messages import kinds, only
from tests.support.says import Says


def weight(name: str, value: float, spread: float = 0.0) -> onnx.TensorProto:
    rng = np.random.default_rng(7)
    values = value * (1 + spread * rng.standard_normal((WIDTH, WIDTH)))
    return numpy_helper.from_array(values.astype(np.float32), name)


def isolated_product(op: str = "MatMul", **attributes: str) -> onnx.ModelProto:
    """Weights beyond FP16's range, so that this one product must stay in FP32; all around it is healthy."""
    nodes = [
        helper.make_node("Mul", ["x", "small"], ["s"], "shrink"),
        helper.make_node(op, ["s", "w"], ["p"], "product", **attributes),
        helper.make_node("Transpose", ["p"], ["t"], "turn", perm=[1, 0]),
        helper.make_node("Relu", ["t"], ["u"], "bend"),
        helper.make_node("Transpose", ["u"], ["y"], "back", perm=[1, 0]),
    ]
    large = numpy_helper.from_array((1e5 * np.eye(WIDTH)).astype(np.float32), "w")
    return model_of(nodes, large, numpy_helper.from_array(np.array(0.01, np.float32), "small"))


# -- the compiler ------------------------------------------------------------------------------------------------------


@needs_rtx
def test_the_audit_of_the_compiled_model_goes_into_the_result(tmp_path: Path) -> None:
    result = fixed(tmp_path, big_square(), "trt-10.9")
    document = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert document["violations"] == []
    assert document["audit"]["compiler"].startswith("TensorRT-RTX ")
    assert document["audit"]["builds"] == 1
    assert document["audit"]["engine"]["kernels"] >= 1
    assert set(document["audit"]["engine"]) >= {"kernels", "bytes_moved", "casts", "reformats"}
    assert document["audit"]["coverage"]["unknown"] == 0
    assert NoteKind.NEAREST_COMPILER in kinds(result.notes)


@needs_rtx
def test_a_lone_product_gets_company_and_stays_fp32(tmp_path: Path) -> None:
    result = fixed(tmp_path, isolated_product(), "trt-10.9", scale=1.0)
    compiled = result.deploy_files.compiled
    assert compiled is not None
    assert compiled.audit is not None
    assert result.met
    assert compiled.builds == 2
    assert compiled.audit.violations == ()
    assert "product" in result.fp32_nodes
    added = [node for node in result.plan.nodes if node.why == "compiler"]
    assert added
    assert all(node.because == (Note.of(NoteKind.KEEPS_PRODUCT, "product"),) for node in added)
    joined = only(result.notes, NoteKind.PRODUCTS_JOINED).values
    assert (joined["products"], joined["nodes"], joined["before"], joined["after"]) == (["product"], ["shrink"], 1, 0)
    again = fix(tmp_path / "m.onnx", samples(1.0), target="trt-10.9", plan=result.plan)
    assert again.to_json()["violations"] == []


@needs_rtx
def test_a_lone_einsum_gets_company_and_stays_fp32(tmp_path: Path) -> None:
    result = fixed(tmp_path, isolated_product("Einsum", equation="ij,jk->ik"), "trt-10.9", scale=1.0)
    joined = only(result.notes, NoteKind.PRODUCTS_JOINED).values
    assert (joined["products"], joined["before"], joined["after"]) == (["product"], 1, 0)


@needs_rtx
def test_what_is_forced_joins_no_lone_product(tmp_path: Path) -> None:
    result = fixed(tmp_path, isolated_product(), "trt-10.9", scale=1.0, force=["name:shrink"])
    assert "shrink" not in result.fp32_nodes and not [node for node in result.plan.nodes if node.why == "compiler"]
    assert only(result.notes, NoteKind.PRODUCT_FORCED).values["nodes"] == ["shrink"]


@needs_rtx
def test_isolated_products_of_a_real_model_are_kept(shared_models: Path) -> None:
    path = shared_models / "nanotrack_v3_head" / "model.onnx"
    if not path.exists():
        pytest.skip("the shared model nanotrack_v3_head is not here")
    model = load(path)
    sites, node = Sites(model), model.node_by_name
    isolated = [node[name] for name in ("Conv_113", "Conv_103", "Conv_108", "Conv_20")]
    compiled = compile_and_adjust(
        Decision(sites, dict.fromkeys(isolated, Format.FP32), Format.FP32),
        samples=load_samples(model.inputs, None).search,
        sizes={value: 1 for each in model.nodes for value in each.outputs},
        suspects=(),
        holds=lambda assignment: True,
        folder=None,
        notify=lambda text: None,
    )
    assert compiled.audit is not None
    assert compiled.audit.violations == ()
    joined = only(compiled.notes, NoteKind.PRODUCTS_JOINED).values
    assert (joined["before"], joined["after"]) == (4, 0)
    assert {node.op for node in compiled.added} <= {"Clip", "Sigmoid"}


@needs_rtx
def test_a_given_plan_is_not_changed_and_what_breaks_it_is_told(tmp_path: Path) -> None:
    first = fixed(tmp_path, isolated_product(), "onnx", scale=1.0)
    assert first.fp32_nodes == ("product",)
    result = fix(tmp_path / "m.onnx", samples(1.0), target="trt-10.9", plan=first.plan)
    (violation,) = result.to_json()["violations"]
    assert (violation["node"], violation["wanted"], violation["got"]) == ("product", "fp32", "fp16")
    assert result.fp32_nodes == ("product",)
    broken = only(result.notes, NoteKind.NOT_KEPT)
    assert (broken.subject, broken.values["wanted"], broken.values["got"]) == ("product", "fp32", "fp16")


@needs_rtx
def test_a_wrong_attention_kernel_is_kept_out_where_the_version_is_known_for_it(tmp_path: Path) -> None:

    onnx.save(encoder_attention(), tmp_path / "m.onnx")
    rng = np.random.default_rng(5)
    inputs = [{"x": rng.standard_normal((1, 64, 64)).astype(np.float32)} for _ in range(3)]
    results = {target: fix(tmp_path / "m.onnx", inputs, target=target) for target in ("trt-10.0.0", "trt-10.0.1")}
    assert results["trt-10.0.1"].fp32_nodes == ()
    result = results["trt-10.0.0"]
    assert result.fp32_nodes == ("softmax", "av")
    assert result.met
    document = result.to_json()
    assert document["audit"]["engine"]["fused_attention"] == []
    assert document["audit"]["island"]["nodes"] == ["softmax", "av"]
    assert "TRT-MHA-V2-1000" in [advisory["id"] for advisory in document["advisories"]]
    assert only(result.notes, NoteKind.KNOWN_DEFECTS).values["ids"] == ["TRT-MHA-V2-1000"]


def test_without_the_compiler_the_result_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtx, "available", lambda: False)
    result = fixed(tmp_path, big_square(), "trt-10.9")
    assert result.met
    assert result.deploy_files.command is not None
    assert result.to_json()["audit"] is None
    assert only(result.notes, NoteKind.NOT_COMPILED).values == {"install": rtx.INSTALL}


def refused() -> onnx.ModelProto:
    """A model with a determinant, which NVIDIA's parser does not take."""
    nodes = [helper.make_node("Det", ["m"], ["d"], "determinant"), helper.make_node("Add", ["x", "d"], ["y"], "add")]
    nodes.insert(0, helper.make_node("MatMul", ["x", "w"], ["h"], "product"))
    nodes.insert(1, helper.make_node("Slice", ["h", "zero", "two"], ["m"], "corner"))
    bounds = [numpy_helper.from_array(np.array(v), n) for n, v in (("zero", [0, 0]), ("two", [2, 2]))]
    return model_of(nodes, weight("w", 0.1, 1.0), *bounds)


@needs_rtx
def test_a_model_that_another_compiler_refuses_is_a_note_with_its_reason(tmp_path: Path) -> None:
    result = fixed(tmp_path, refused(), "trt-10.9", scale=1.0)
    assert result.deploy_files.command is not None
    assert result.good
    assert result.to_json()["refusal"] is None
    error = only(result.notes, NoteKind.NOT_PROVEN).values["error"]
    assert "refuses the typed model" in error
    assert "Det" in error
    assert list(only(result.notes, NoteKind.PARSER_REFUSES).values["nodes"]) == ["determinant"]
    assert result.standing.rank == "caution"  # it has the same parser


@needs_rtx
def test_a_model_that_the_targets_own_compiler_refuses_is_a_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    result = fixed(tmp_path, refused(), "rtx-1.7", scale=1.0)
    assert result.met
    assert not result.good
    document = result.to_json()
    assert document["status"] == "not-met"
    assert document["refusal"].startswith("TensorRT-RTX ")
    assert list(only(result.notes, NoteKind.OPERATORS_REFUSED).values["nodes"]) == ["determinant"]
    assert result.deploy_files.build == ()  # building it is no next step
    says(document["refusal"])
    terminal = Terminal()
    show_fix(terminal, result)
    terminal.flush()
    shown = capsys.readouterr().out
    says(shown, "keeps the tolerance in emulation")
    says(shown, "No choice")
    assert shown.count("refuses the typed model") == 1 and "halfwise trace" not in shown
    assert "cause:" not in fix_markdown(result)  # no rounding is


@needs_rtx
def test_a_refusal_that_names_a_tensor_is_about_its_node() -> None:
    """More rows are written than there are, which is known once the shapes of the inputs are."""
    rows, columns = ("n", 4), ("e", 4)
    proto = model(
        [node("Tanh", "x", "t"), node("ScatterElements", "t at u", "s", axis=0), node("Neg", "s", "y")],
        [value("x", shape=rows), value("at", TensorProto.INT64, columns), value("u", shape=columns)],
        [value("y", shape=rows)],
        opset=16,
    )
    ones = np.ones((5, 4), np.float32)
    feeds = [{"x": k * ones[:2], "at": np.arange(20).reshape(5, 4) % 2, "u": k * ones} for k in (1, 2, 3)]
    result = fix(proto, feeds, target="rtx-1.7")
    assert list(only(result.notes, NoteKind.OPERATORS_REFUSED).values["nodes"]) == ["n_s"]


@needs_rtx
def test_a_refusal_that_names_a_layer_is_about_its_node() -> None:
    """Of an open batch: whether it is squeezed, too, is known once it is given."""
    sizes = [value("x", shape=("n", 1, 4))], [value("y", shape=None)]
    proto = model([node("Tanh", "x", "t"), node("Squeeze", "t", "s"), node("Neg", "s", "y")], *sizes)
    feeds = [{"x": np.full((1, 1, 4), k, np.float32)} for k in (1, 2, 3)]
    result = fix(proto, feeds, target="rtx-1.7")
    assert list(only(result.notes, NoteKind.OPERATORS_REFUSED).values["nodes"]) == ["n_s"]


@needs_rtx
def test_a_refusal_that_names_nothing_is_told_with_what_fp32_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: object, **__: object) -> None:
        raise BuildError("it refuses: an assertion failed", failure="refused", log_path=Path("log"))

    monkeypatch.setattr(rtx, "build", refusing)
    proto = model([node("Tanh", "x", "y")], [value("x", shape=(4,))], [value("y", shape=(4,))])
    result = fix(proto, [{"x": np.full(4, k, np.float32)} for k in (1, 2, 3)], target="rtx-1.7")
    assert NoteKind.REFUSED_WHOLE in kinds(result.notes) and not result.good


@needs_rtx
def test_a_time_limit_is_the_users(tmp_path: Path, says: Says) -> None:
    result = fixed(tmp_path, big_square(), "rtx-1.7", time_limit_s=0.01)
    says(only(result.notes, NoteKind.NOT_PROVEN).values["error"])
    assert result.good  # nothing was refused


@needs_rtx
def test_a_build_that_takes_too_long_ends_in_one_line(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path, {}, time_limit_s=0.01)
    with pytest.raises(BuildError, match=r"TensorRT-RTX .* while building") as caught:
        compiler(Decision(Sites(load(big_square())), {}, Format.FP32))
    assert caught.value.failure == "timeout"
    assert compiler.builds == 1


# -- isolated products, decided without a compiler -------------------------------------------------------------------


def test_the_cheapest_neighbour_joins_with_what_lies_between() -> None:
    model = load(isolated_product())
    sites = Sites(model)
    node = model.node_by_name
    formats = {node["product"]: Format.FP32}
    (product,) = find_isolated_matmuls([Violation("product", "fp32", "fp16", (), "")], sites, formats)
    sizes = {value: 8 * WIDTH for each in model.nodes for value in each.outputs}
    assert companions(product, sites, formats, sizes) == (node["shrink"],)
    sizes[node["shrink"].outputs[0]] = 9 * WIDTH
    assert companions(product, sites, formats, sizes) == (node["turn"], node["bend"])


def test_an_fp32_node_behind_a_narrow_move_is_no_company() -> None:
    model = load(isolated_product())
    sites, node = Sites(model), model.node_by_name
    formats = {node["product"]: Format.FP32, node["bend"]: Format.FP32}
    (product,) = find_isolated_matmuls([Violation("product", "fp32", "fp16", (), "")], sites, formats)
    sizes = {value: 8 * WIDTH for each in model.nodes for value in each.outputs}
    assert companions(product, sites, formats, sizes) == (node["turn"],)


def test_a_product_in_company_or_of_another_kind_is_left_alone() -> None:
    model = load(isolated_product())
    sites, node = Sites(model), model.node_by_name
    broken = Violation("product", "fp32", "fp16", (), "")
    company = dict.fromkeys((node["product"], node["turn"], node["bend"]), Format.FP32)
    assert find_isolated_matmuls([broken], sites, company) == []
    assert find_isolated_matmuls([Violation("bend", "fp32", "fp16", (), "")], sites, {node["bend"]: Format.FP32}) == []
    hidden = Violation("product", "fp32", "unproven", (), "")
    assert find_isolated_matmuls([hidden], sites, {node["product"]: Format.FP32}) == []
