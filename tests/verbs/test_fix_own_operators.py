"""ONNX Runtime's own operators in the main job: kept where they are read, else written out or refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from halfwise import fix
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.core.targets import Target
from halfwise.core.told import Stand, Told
from halfwise.model.contrib.steps_traditional import TRADITIONAL_DOMAIN
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.repair.lower import lowered
from halfwise.report.answer import caution, way_out
from halfwise.verbs.fix.own_operators import read_by
from tests.model.test_contrib import CASES, IDS, RUNNING, session
from tests.models.build import model, node, value, weight
from tests.models.contrib_cases import DOMAIN, Case
from tests.support.deployed import needs_rtx
from tests.support.messages import kinds, only
from tests.support.says import Says

Array = NDArray[Any]
SIZE, HEADS = 16, 2


def requantised(zero: Any) -> onnx.ModelProto:
    return model(
        [node("MatMul", "x w", "p"), node("QuantizeLinear", "p s z", "q"), node("DequantizeLinear", "q s z", "y")],
        [value("x", shape=(2, 8))],
        [value("y", shape=(2, 8))],
        [weight("w", np.eye(8, dtype=np.float32)), weight("s", np.float32(1 / 16)), weight("z", np.array(zero))],
        opset=21,
    )


@pytest.mark.parametrize(("zero", "rank"), [(128, "missed"), (0, "met")])
def test_a_build_that_ends_at_a_quantised_tensor_is_no_yes(zero: int, rank: str) -> None:
    feeds = [{"x": np.round(np.random.default_rng(seed).uniform(1, 8, (2, 8))).astype(np.float32)} for seed in range(4)]
    made = fix(requantised(np.uint8(zero)), feeds, target="trt-11", tolerance="rel_l2<=0.05")
    assert made.met and made.good is not bool(zero) and made.standing.rank == rank
    assert (NoteKind.QUANTISED_NOT_READ in kinds(made.notes)) is bool(zero)
    assert ("Its build ends there" in caution(made)) is bool(zero)


@pytest.mark.parametrize(
    ("zero", "target", "told"),
    [
        (np.uint8(128), "trt-11", True),
        (np.uint16(0), "trt-10.9", True),
        (np.int8(5), "rtx-1.7", True),
        (np.uint8(0), "trt-11", False),
        (np.int8(0), "trt-11", False),
        (np.uint8(128), "ort-cuda", False),
        (ml_dtypes.int4(0), "trt-10.9", False),
        (ml_dtypes.int4(2), "trt-11", True),
        (ml_dtypes.int4(0), "trt-8.6", True),
        (ml_dtypes.uint4(0), "rtx-1.7", True),
        (ml_dtypes.float8_e4m3fn(0), "trt-10.9", False),
        (ml_dtypes.float8_e4m3fn(0), "trt-8.6", True),
        (ml_dtypes.float8_e5m2(0), "trt-11", True),
        (ml_dtypes.float8_e5m2(0), "onnx", False),
    ],
)
def test_quantised_tensors_that_tensorrt_does_not_read_are_told(zero: Any, target: str, told: bool) -> None:
    """As the parser of TensorRT-RTX 1.7 answers; nothing compiles for TensorRT here."""
    _, notes = read_by(Target.parse(target), load(requantised(zero)))
    assert [note.values["node"] for note in notes if note.kind is NoteKind.QUANTISED_NOT_READ] == ["n_q"] * told


def test_the_node_told_is_one_that_stays_not_a_weight_that_could_be_a_float() -> None:
    """A user who quantises the weight again would be refused as before."""
    proto = requantised(np.uint8(128))
    proto.graph.initializer.extend([weight("table", np.ones((8, 4), np.uint8)), weight("step", np.float32(0.5))])
    proto.graph.node.insert(0, helper.make_node("DequantizeLinear", ["table", "step"], ["wide"], name="n_table"))
    proto.graph.node.append(helper.make_node("MatMul", ["y", "wide"], ["out"], name="n_out"))
    proto.graph.output[0].CopyFrom(value("out", shape=(2, 4)))
    _, notes = read_by(Target.parse("rtx-1.7"), load(proto))
    assert [note.values["node"] for note in notes if note.kind is NoteKind.QUANTISED_NOT_READ] == ["n_q"]


def _w(name: str, *shape: int, scale: float = 0.3) -> onnx.TensorProto:
    draw = np.random.default_rng(len(name) + sum(shape)).standard_normal(shape)
    return numpy_helper.from_array((draw * scale).astype(np.float32), name)


def block(scale: float = 1.0) -> onnx.ModelProto:
    """A layer of an encoder as ONNX Runtime's optimizer writes it; `scale` of the values that enter it."""
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["big"], name="grow"),
        helper.make_node(
            "Attention", ["x", "qkv", "qkv_bias", "mask"], ["a"], name="att", domain=DOMAIN, num_heads=HEADS
        ),
        helper.make_node(
            "SkipLayerNormalization",
            ["a", "big", "g", "b"],
            ["n", "", "", "s"],
            name="skip",
            domain=DOMAIN,
            epsilon=1e-5,
        ),
        helper.make_node("MatMul", ["n", "up"], ["u"], name="up"),
        helper.make_node("BiasGelu", ["u", "up_bias"], ["v"], name="gelu", domain=DOMAIN),
        helper.make_node("FusedMatMul", ["v", "down"], ["d"], name="down", domain=DOMAIN, alpha=0.5),
        helper.make_node(
            "SkipLayerNormalization", ["d", "n", "g", "b"], ["y"], name="last", domain=DOMAIN, epsilon=1e-5
        ),
    ]
    weights = [_w("qkv", SIZE, 3 * SIZE), _w("qkv_bias", 3 * SIZE), _w("g", SIZE), _w("b", SIZE)]
    weights += [_w("up", SIZE, 32), _w("up_bias", 32), _w("down", 32, SIZE)]
    weights.append(numpy_helper.from_array(np.array(scale, np.float32), "scale"))
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence", SIZE]),
        helper.make_tensor_value_info("mask", TensorProto.INT32, ["batch", "sequence"]),
    ]
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def feeds(count: int = 4) -> list[dict[str, Array]]:
    rng = np.random.default_rng(1)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], np.int32)
    return [{"x": rng.standard_normal((2, 5, SIZE)).astype(np.float32), "mask": mask} for _ in range(count)]


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
def test_the_operators_stay_where_onnx_runtime_reads_them_and_the_model_runs(tmp_path: Path, target: str) -> None:
    result = fix(block(), feeds(), target=target, out=tmp_path)
    assert result.met and not result.fp32_nodes and result.typed is not None
    typed = onnx.load(result.typed.path)
    assert [node.op_type for node in typed.graph.node if node.domain] == [
        node.op_type for node in block().graph.node if node.domain
    ]
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        given = feeds()[0]
        (found,) = ort.InferenceSession(str(result.typed.path), options).run(None, given)
        (exact,) = session(block()).run(None, given)
        assert np.linalg.norm(found - exact) <= 0.01 * np.linalg.norm(exact)


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
def test_an_overflow_inside_of_a_skip_norm_leaves_few_nodes_in_fp32(tmp_path: Path, target: str) -> None:
    result = fix(block(1e5), feeds(), target=target, repairs="none")
    assert result.met and 0 < len(result.fp32_nodes) <= 3
    assert "skip" in result.fp32_nodes
    repaired = fix(block(1e5), feeds(), target=target, out=tmp_path)
    assert repaired.met and not repaired.fp32_nodes and repaired.typed is not None
    for given in feeds():
        (found,) = ort.InferenceSession(str(repaired.typed.path)).run(None, given)
        (exact,) = session(block(1e5)).run(None, given)
        assert np.linalg.norm(found - exact) <= 0.01 * np.linalg.norm(exact)


def test_for_tensorrt_they_are_written_in_operators_that_its_parser_reads(tmp_path: Path) -> None:
    said: list[str] = []
    result = fix(block(), feeds(), target="trt-10.9", out=tmp_path, notify=said.append)
    assert result.met and result.typed is not None
    typed = onnx.load(result.typed.path)
    assert not any(node.domain for node in typed.graph.node)
    assert [opset.domain for opset in typed.opset_import] == [""]
    (note,) = (note for note in result.notes if note.kind is NoteKind.OWN_NOT_READ)
    assert note.values["ops"] == ["Attention", "SkipLayerNormalization", "BiasGelu", "FusedMatMul"]
    assert "Attention" in said[0]  # before anything is run
    again = fix(block(), feeds(), plan=result.plan)
    assert again.met and again.fp32_nodes == result.fp32_nodes


@pytest.mark.parametrize("case", RUNNING, ids=[case.name for case in RUNNING])
def test_a_model_written_out_gives_the_same_under_the_same_names(case: Case) -> None:
    found = lowered(load(case.proto()), lambda node: True)
    assert not found.left and found.written == (case.op,)
    assert not any(node.domain for node in found.model.nodes)
    assert found.model.output_names == load(case.proto()).output_names
    proto = typed_proto(Assignment(Sites(found.model), {}))
    for one, other in zip(
        session(proto).run(None, case.feeds), session(case.proto()).run(None, case.feeds), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def test_operators_without_a_narrow_kernel_are_written_out_for_every_target() -> None:
    case = CASES[IDS.index("conv sum")]
    model, notes = read_by(Target.parse("ort-cuda"), load(case.proto()))
    assert [node.op_type for node in model.nodes] == ["Conv", "Add", "Relu"]
    assert [note.kind for note in notes] == [NoteKind.OWN_WITHOUT_KERNEL]


def test_a_written_model_that_the_cpu_has_no_kernel_for_is_not_run(tmp_path: Path) -> None:
    for name in ("group-norm", "multi-head packed"):
        case = CASES[IDS.index(name)]
        result = fix(case.proto(), [case.feeds] * 2, out=tmp_path / case.op)
        assert result.met and NoteKind.DELIVERED_NOT_RUN in {note.kind for note in result.notes}


@pytest.mark.parametrize(("target", "told"), [("ort-cuda", True), ("onnx", False)])
def test_an_fp32_operator_that_cuda_has_only_narrow_kernels_of_is_told(target: str, told: bool) -> None:
    case = CASES[IDS.index("grouped turned")]
    result = fix(case.proto(), [case.feeds] * 2, target=target, keep="op:GroupQueryAttention")
    assert (NoteKind.OWN_WIDE_ON_CPU in {note.kind for note in result.notes}) is told


def test_what_cannot_be_written_out_is_refused_with_the_way_on(says: Says) -> None:
    proto = CASES[IDS.index("attention")].proto()
    proto.graph.node[0].attribute.append(helper.make_attribute("do_rotary", 1))
    with says.raises(InputError):
        read_by(Target.parse("trt-10.9"), load(proto))


def test_a_model_in_the_blocked_layout_of_a_cpu_is_refused_with_the_way_on(tmp_path: Path) -> None:
    path = tmp_path / "blocked.onnx"
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(path)
    image = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)
    kernel = np.random.default_rng(1).standard_normal((16, 16, 3, 3)).astype(np.float32)
    ort.InferenceSession(
        Case("c", "Conv", (image, kernel), {}, weights=(1,), domain="").proto().SerializeToString(), options
    )
    if not any(node.domain == "com.microsoft.nchwc" for node in onnx.load(path).graph.node):
        pytest.skip("this CPU has no blocked layout")
    with pytest.raises(InputError, match="ORT_ENABLE_EXTENDED"):
        fix(path, [{"x0": image}])


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("QMoE", "x router w1 s1 none w2 s2"),
        ("LinearAttention", "x k v state decay"),
        ("PagedAttention", "x k v keys values ends lengths table"),
    ],
)
def test_what_onnxruntime_genai_writes_and_has_no_steps_is_refused_in_one_line(op: str, inputs: str) -> None:
    made = helper.make_node(op, inputs.split(), ["y"], "layer", domain=DOMAIN)
    ends = [value(name) for name in inputs.split()]
    proto = model([made], ends, [value("y")], [])
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    with pytest.raises(
        InputError, match=rf"TensorRT-RTX 1.7 does not read {op} \(node 'layer'\).*use --target ort-cuda$"
    ):
        read_by(Target.parse("rtx-1.7"), load(proto))


@needs_rtx
def test_a_quantiser_that_is_refused_is_to_be_quantised_otherwise_not_replaced() -> None:
    feeds = [{"x": np.round(np.random.default_rng(seed).uniform(1, 8, (2, 8))).astype(np.float32)} for seed in range(4)]
    told = kinds(fix(requantised(np.int8(5)), feeds, target="rtx-1.7").notes)
    assert NoteKind.QUANTISED_NOT_READ in told and NoteKind.NOT_PROVEN in told
    assert NoteKind.OPERATORS_REFUSED not in told


def of_scaled(*, trees: bool) -> onnx.ModelProto:
    """As skl2onnx writes a scaler in front of a network, or of a tree of one leaf."""
    scaler = node("Scaler", "x", "s", domain=TRADITIONAL_DOMAIN, offset=[0.5], scale=[2.0], name="scaler")
    ends = {name: [0] for name in "nodes_treeids nodes_nodeids nodes_featureids nodes_truenodeids".split()}
    ends |= {name: [0] for name in "nodes_falsenodeids target_treeids target_nodeids target_ids".split()}
    forest = node(
        "TreeEnsembleRegressor", "s", "y", domain=TRADITIONAL_DOMAIN, n_targets=1, nodes_modes=["LEAF"],
        nodes_values=[0.0], target_weights=[1.0], name="forest", **ends,
    )  # fmt: skip
    last = forest if trees else node("Tanh", "s", "y")
    return model([scaler, last], [value("x", shape=(2, 4))], [value("y", shape=None)], domains=[TRADITIONAL_DOMAIN])


def of_dynamic_steps() -> onnx.ModelProto:
    ends = "x w r b none h c ws wz rs rz"
    made = helper.make_node("DynamicQuantizeLSTM", ends.split(), ["y"], "lstm", domain=DOMAIN, hidden_size=4)
    proto = model([made], [value(name) for name in ends.split()], [value("y")], [])
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return proto


@pytest.mark.parametrize("proto", [of_scaled(trees=True), of_dynamic_steps()], ids=["trees", "dynamic quantisation"])
def test_what_only_onnx_runtime_runs_is_refused_with_what_its_writer_does_otherwise(
    proto: onnx.ModelProto, says: Says
) -> None:
    for target in ("trt-10.9", "rtx-1.7"):
        with says.raises(InputError):
            read_by(Target.parse(target), load(proto))
    read, notes = read_by(Target.parse("ort-cuda"), load(proto))
    assert len(read.nodes) == len(proto.graph.node) and not notes


@pytest.mark.parametrize("target", ["trt-8.6", "trt-10.9", "trt-11.4", "rtx-1.7"])
def test_a_scaler_is_written_for_what_does_not_read_it(target: str) -> None:
    read, notes = read_by(Target.parse(target), load(of_scaled(trees=False)))
    assert [each.op_type for each in read.nodes] == ["Sub", "Mul", "Tanh"]
    (told,) = notes
    assert told.kind is NoteKind.STANDARD_NOT_READ and told.values["ops"] == ["Scaler"]
    kept, none = read_by(Target.parse("ort-cuda"), load(of_scaled(trees=False)))
    assert [each.op_type for each in kept.nodes] == ["Scaler", "Tanh"] and not none


def test_what_stands_behind_it_is_written_once_its_shape_is_known() -> None:
    """ONNX infers no shape behind a Scaler."""
    options = {"targets": 1, "coefficients": [1.0, 2.0, 3.0, 4.0], "domain": TRADITIONAL_DOMAIN}
    proto = of_scaled(trees=False)
    proto.graph.node[1].CopyFrom(node("LinearRegressor", "s", "y", **options))
    read, notes = read_by(Target.parse("trt-10.9"), load(proto))
    assert [each.op_type for each in read.nodes] == ["Sub", "Mul", "MatMul"]
    assert notes[0].values["ops"] == ["Scaler", "LinearRegressor"]


def of_integers(op: str) -> onnx.ModelProto:
    """As quantize_dynamic writes a product, and quantize_static in the form of QOperator."""
    stored = {"s": np.float32(0.1), "z": np.int8(0), "w": np.ones((4, 4), np.int8)}
    nodes = [node("QuantizeLinear", "x s z", "q"), node("QLinearMatMul", "q s z w s z s z", "p")]
    nodes += [node("DequantizeLinear", "p s z", "y")]
    if op == "DynamicQuantizeLinear":
        nodes = [node(op, "x", "q s z"), node("MatMulInteger", "q w z", "p"), node("Cast", "p", "c", to=1)]
        nodes += [node("Mul", "c s", "y")]
        stored = {"w": stored["w"]}
    weights = [weight(name, held) for name, held in stored.items()]
    return model(nodes, [value("x", shape=(2, 4))], [value("y", shape=(2, 4))], weights)


@needs_rtx
@pytest.mark.parametrize("op", ["DynamicQuantizeLinear", "QLinearMatMul"])
def test_a_model_that_computes_with_integers_is_no_yes_for_tensorrt(op: str) -> None:
    feeds = [{"x": np.random.default_rng(seed).uniform(1, 8, (2, 4)).astype(np.float32)} for seed in range(4)]
    for target in ("trt-10.9", "rtx-1.7"):  # of the one no compiler is here to refuse it
        result = fix(of_integers(op), feeds, target=target, tolerance="2%")
        assert result.met and not result.good and result.standing.rank == "missed"
        assert result.standing.title == "Cannot be built"
        assert op in way_out(result).cause
        assert not {NoteKind.OPERATORS_REFUSED, NoteKind.PARSER_REFUSES} & set(kinds(result.notes))
        told = only(result.notes, NoteKind.INTEGERS_NOT_READ)
        assert told.values["op"] == op and told.severity == "warning"  # it is seen beside another caution
    assert NoteKind.INTEGERS_NOT_READ not in kinds(fix(of_integers(op), feeds, target="ort-cuda").notes)


@pytest.mark.parametrize("op", ["DynamicQuantizeLinear", "QLinearMatMul"])
def test_that_its_build_ends_is_told_before_anything_runs(op: str) -> None:
    """Such a model was searched for 30 s first."""
    seen: list[Stand] = []

    def stop(text: str) -> None:
        seen.append(Told.stand_of(text))
        if not seen[-1].stays:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fix(of_integers(op), [{"x": np.ones((2, 4), np.float32)}], target="trt-10.9", notify=stop)
    assert [each.stays for each in seen] == [True, False] and op in seen[0].step


def test_sums_of_quantised_tensors_are_refused_with_the_other_form_of_quantisation(says: Says) -> None:
    ends = "a a_scale a_zero b b_scale b_zero y_scale y_zero"
    made = helper.make_node("QLinearAdd", ends.split(), ["y"], "sum", domain=DOMAIN)
    zeros = [weight(name, np.int8(0) if "zero" in name else np.float32(0.1)) for name in ends.split() if "_" in name]
    proto = model(
        [made], [value("a", TensorProto.INT8), value("b", TensorProto.INT8)], [value("y", TensorProto.INT8)], zeros
    )
    proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    with says.raises(InputError):
        read_by(Target.parse("rtx-1.7"), load(proto))
