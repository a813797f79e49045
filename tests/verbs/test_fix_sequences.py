"""Inputs and outputs that are sequences or optionals: fed, made up, and compared tensor by tensor."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from halfwise import fix, verify
from halfwise.core.child.arrays import read_arrays, write_arrays
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.metrics import compare
from halfwise.core.whole_files import WholeFiles
from halfwise.emulation.stepper import Stepper
from halfwise.model.inputs.samples import content_of
from halfwise.model.inputs.save import save_samples
from tests.models.build import model, node, value, weight
from tests.support.backend_cases import UNITS, differs, float_cases
from tests.support.says import Says

Array = np.ndarray[Any, Any]
FEEDS = [{"x": np.random.default_rng(seed).standard_normal((4, 8)).astype(np.float32)} for seed in range(4)]


def sequence(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)


def optional(name: str) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_optional_type_proto(helper.make_tensor_type_proto(1, None)))


def matrix(scale: float) -> Array:
    return (scale * np.random.default_rng(9).standard_normal((8, 8))).astype(np.float32)


def of_two(scale: float = 1.0) -> onnx.ModelProto:
    """A sequence of a tensor that is made of large values, which cancel again, and one that is not."""
    nodes = [
        node("MatMul", "x w", "p"),
        node("Mul", "p big", "large"),
        node("Mul", "large small", "a"),
        node("ReduceMax", "x", "b", axes=[0]),
        node("SequenceConstruct", "a b", "s"),
    ]
    weights = [weight("w", matrix(1.0)), weight("big", np.float32(scale)), weight("small", np.float32(1 / scale))]
    return model(nodes, [value("x", shape=(4, 8))], [sequence("s")], weights)


def ran(path: Path, feed: dict[str, Array]) -> Any:
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed)[0]


@pytest.mark.parametrize("scale", [1.0, 2.0**16])
def test_a_sequence_as_an_output(scale: float, tmp_path: Path) -> None:
    """What overflows before an element is kept in FP32, and nothing else."""
    given = of_two(scale)
    onnx.save(given, tmp_path / "given.onnx")
    made = fix(tmp_path / "given.onnx", FEEDS, out=tmp_path / "out", repairs="none")
    assert made.good and made.typed is not None and made.delivered is not None
    kept = set(made.fp32_nodes) - {"n_s"}  # what makes the sequence is no choice
    assert kept <= {"n_large", "n_a"} and bool(kept) is (scale > 1)
    errors = []
    for feed in made.samples.validation:
        wanted, got = ran(tmp_path / "given.onnx", dict(feed)), ran(made.typed.path, dict(feed))
        assert [each.dtype for each in got] == [np.float32] * 2
        errors += [np.linalg.norm(b - a) / np.linalg.norm(a) for a, b in zip(wanted, got, strict=True)]
    assert made.delivered.outputs["s"].rel_l2 == pytest.approx(max(errors), rel=1e-3)


def through_an_optional() -> onnx.ModelProto:
    nodes = [
        node("Mul", "x big", "large"),
        node("Optional", "large", "maybe"),
        node("OptionalGetElement", "maybe", "there"),
        node("Mul", "there small", "y"),
    ]
    weights = [weight("big", np.float32(2.0**16)), weight("small", np.float32(2.0**-16))]
    return model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], weights)


def test_what_overflows_on_the_way_to_an_optional_is_found() -> None:
    made = fix(through_an_optional(), FEEDS, repairs="none")
    assert made.good and "n_large" in made.fp32_nodes


def test_where_a_node_cannot_run_by_itself_what_comes_before_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Stepper.run

    def refuses(self: Stepper, ran: ir.Node, *more: Any, **named: Any) -> Any:
        if ran.name == "n_there":
            raise InputError("node 'n_there' by itself: no")
        return run(self, ran, *more, **named)

    monkeypatch.setattr(Stepper, "run", refuses)
    made = fix(through_an_optional(), FEEDS, repairs="none")
    assert made.good and "n_large" in made.fp32_nodes


@pytest.mark.parametrize("told", ["no type of an output", "another type of a weight", "another shape of a weight"])
def test_what_a_file_says_wrongly_of_tensors_is_inferred(told: str, tmp_path: Path) -> None:
    """As ONNX Runtime reads it."""
    given = of_two()
    if told.startswith("no"):
        given.graph.output[0].ClearField("type")
    else:
        kind, shape = (TensorProto.INT64, (8, 8)) if "type" in told else (TensorProto.FLOAT, (7,))
        given.graph.value_info.append(helper.make_tensor_value_info("w", kind, shape))
    onnx.save(given, tmp_path / "given.onnx")
    assert len(ran(tmp_path / "given.onnx", FEEDS[0])) == 2
    made = fix(tmp_path / "given.onnx", FEEDS, out=tmp_path / "out")
    assert made.good and made.typed is not None
    assert len(ran(made.typed.path, FEEDS[0])) == 2


@pytest.mark.parametrize("target", ["ort-cuda", "trt-10.9"])
def test_other_targets_and_types_at_the_ends(target: str) -> None:
    made = fix(of_two(), FEEDS, target=target, io_types="fp16", curve=True)
    assert made.good


def test_an_optional_as_an_output(tmp_path: Path) -> None:
    """Of a tensor: it is compared as that."""
    nodes = [node("MatMul", "x w", "p"), node("Optional", "p", "o")]
    given = model(nodes, [value("x", shape=(4, 8))], [optional("o")], [weight("w", matrix(1.0))], opset=18)
    made = fix(given, FEEDS, out=tmp_path / "out")
    assert made.good and made.fp32_nodes == ("n_o",) and made.typed is not None
    for feed in FEEDS:
        wanted = feed["x"] @ matrix(1.0)
        assert np.linalg.norm(ran(made.typed.path, feed) - wanted) <= 0.01 * np.linalg.norm(wanted)


def test_a_sequence_that_a_loop_makes(tmp_path: Path) -> None:
    """One tensor more in every round."""
    body = helper.make_graph(
        [
            node("MatMul", "carried w", "p"),
            node("Tanh", "p", "next"),
            node("SequenceInsert", "grown next", "more"),
            node("Identity", "go", "on"),
        ],
        "body",
        [value("i", TensorProto.INT64, ()), value("go", TensorProto.BOOL, ()), value("carried"), sequence("grown")],
        [value("on", TensorProto.BOOL, ()), value("next"), sequence("more")],
    )
    for each in (body.input[2], body.output[1]):
        each.type.tensor_type.ClearField("shape")
    nodes = [node("SequenceEmpty", "", "empty"), node("Loop", "rounds yes x empty", "last s", body=body)]
    weights = [weight("w", matrix(0.5)), weight("rounds", np.int64(3)), weight("yes", np.bool_(True))]
    given = model(nodes, [value("x", shape=(4, 8))], [value("last", shape=(4, 8)), sequence("s")], weights, opset=17)
    onnx.save(given, tmp_path / "given.onnx")
    made = fix(tmp_path / "given.onnx", FEEDS, out=tmp_path / "out")
    assert made.good and made.typed is not None
    for feed in FEEDS:
        outputs = []
        for path in (tmp_path / "given.onnx", made.typed.path):
            session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            outputs.append(session.run(["s"], feed)[0])
        assert len(outputs[0]) == len(outputs[1]) == 3
        for wanted, got in zip(*outputs, strict=True):
            assert np.linalg.norm(got - wanted) <= 0.01 * np.linalg.norm(wanted)


def test_verify_compares_them_too(tmp_path: Path) -> None:
    onnx.save(of_two(), tmp_path / "a.onnx")
    result = verify(tmp_path / "a.onnx", tmp_path / "a.onnx", FEEDS)
    assert result.met and set(result.outputs) == {"s"}


BACKEND = "if_seq if_opt split_to_sequence_1 split_to_sequence_2 split_to_sequence_nokeepdims".split()


@pytest.mark.parametrize("name", BACKEND)
def test_backend_cases(name: str, tmp_path: Path) -> None:
    case = next(each for each in float_cases() if each.name == f"test_{name}")
    made = fix(case.model, [case.feeds], out=tmp_path / "out")
    assert made.good and made.typed is not None
    (wanted,) = case.expected.values()
    assert differs(ran(made.typed.path, case.feeds), wanted, Format.FP16, UNITS) is None


ONE, TWO = np.ones(2, np.float32), np.full((1, 2), 2.0, np.float32)


@pytest.mark.parametrize(
    ("reference", "other", "error"),
    [
        ([ONE, TWO], [ONE, TWO], 0.0),
        ([ONE, TWO], [ONE, 1.5 * TWO], 0.5),  # the worst tensor's own
        ([ONE, TWO], [ONE], math.inf),
        ([ONE], [ONE, TWO], math.inf),
        ([ONE, TWO], [TWO, ONE], math.inf),
        ([], [], 0.0),
        (None, None, 0.0),
        (ONE, None, math.inf),
        (None, ONE, math.inf),
    ],
)
def test_the_error_of_a_sequence(reference: Any, other: Any, error: float) -> None:
    assert compare(reference, other).rel_l2 == pytest.approx(error)


def test_sequences_and_nothing_go_to_a_child_and_back(tmp_path: Path) -> None:
    sent = {"s": [ONE, TWO], "none": None, "empty": [], "x": ONE, "text": np.array(["a", "b"], object)}
    write_arrays(tmp_path / "a.npz", sent)
    back = read_arrays(tmp_path / "a.npz")
    assert list(back) == list(sent)
    assert back["none"] is None and back["empty"] == [] and back["text"].tolist() == ["a", "b"]
    assert all(np.array_equal(a, b) for a, b in zip([*back["s"], back["x"]], [ONE, TWO, ONE], strict=True))


# -- inputs ------------------------------------------------------------------------------------------------------------


def taking_a_sequence() -> onnx.ModelProto:
    """Its squares overflow."""
    nodes = [
        node("ConcatFromSequence", "s", "c", axis=0),
        node("MatMul", "c w", "p"),
        node("Mul", "p p", "squares"),
        node("ReduceSum", "squares", "sum", keepdims=1),
        node("Sqrt", "sum", "y"),
    ]
    given = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, (2, 8))
    return model(nodes, [given], [value("y", shape=(1, 1))], [weight("w", matrix(200.0))])


def taking_an_optional() -> onnx.ModelProto:
    """x + o where there is an o, and x where there is none."""
    there = helper.make_graph(
        [node("OptionalGetElement", "o", "held"), node("Add", "x held", "both")], "there", [], [value("both")]
    )
    lacking = helper.make_graph([node("Identity", "x", "same")], "lacking", [], [value("same")])
    nodes = [
        node("OptionalHasElement", "o", "has"),
        node("If", "has", "a", then_branch=there, else_branch=lacking),
        node("Exp", "a", "y"),
    ]
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, (4, 8)))
    inputs = [value("x", shape=(4, 8)), helper.make_value_info("o", kind)]
    return model(nodes, inputs, [value("y", shape=(4, 8))], opset=18)


def drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SEQUENCES = [{"s": [drawn(10 * seed + place, 2, 8) for place in range(3)]} for seed in range(4)]
OPTIONALS: list[dict[str, Any]] = [
    {"x": drawn(1, 4, 8), "o": drawn(2, 4, 8)},
    {"x": drawn(3, 4, 8)},
    {"x": drawn(4, 4, 8), "o": None},
    {"x": drawn(5, 4, 8), "o": drawn(6, 4, 8)},
]


@pytest.mark.parametrize("given", ["samples", "files", "made up"])
@pytest.mark.parametrize(("make", "feeds"), [(taking_a_sequence, SEQUENCES), (taking_an_optional, OPTIONALS)])
def test_inputs_that_are_sequences_or_optionals(make: Any, feeds: Any, given: str, tmp_path: Path) -> None:
    path, inputs = tmp_path / "given.onnx", {"samples": feeds, "files": tmp_path / "samples", "made up": None}[given]
    onnx.save(make(), path)
    with WholeFiles() as files:
        save_samples(files, tmp_path / "samples", feeds)
    made = fix(path, inputs, out=tmp_path / "out")
    assert made.good and made.typed is not None and made.delivered is not None
    assert (made.samples.origin == "synthetic") is (given == "made up")
    if given == "files":
        assert {content_of(feed) for feed in made.samples.all} == {content_of(whole(feed)) for feed in feeds}
    session = ort.InferenceSession(str(made.typed.path), providers=["CPUExecutionProvider"])
    before = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [each.type for each in session.get_inputs()] == [each.type for each in before.get_inputs()]
    for feed in feeds:
        (wanted,), (got,) = before.run(None, whole(feed)), session.run(None, whole(feed))
        assert np.linalg.norm(got - wanted) < 0.01 * np.linalg.norm(wanted)
    assert verify(path, made.typed.path, inputs).verdict.met


def whole(feed: dict[str, Any]) -> dict[str, Any]:
    return {"x": feed["x"], "o": feed.get("o")} if "x" in feed else feed


def test_a_sample_without_its_sequence_is_refused(says: Says) -> None:
    with says.raises(InputError):
        fix(taking_a_sequence(), [{"s": drawn(0, 2, 8)}])
    with pytest.raises(InputError, match="has shape"):
        fix(taking_a_sequence(), [{"s": [drawn(0, 2, 8), drawn(0, 3, 8)]}])
