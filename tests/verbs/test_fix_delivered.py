"""What was written is run once by ONNX Runtime as it is, and its error stands beside the verdict."""

from __future__ import annotations

import gc
import signal
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from benchmarks.optimum.graphs import problem
from halfwise import fix
from halfwise.backends.as_written import NoKernel, run_as_written
from halfwise.backends.backend import BackendFailure
from halfwise.core.child.process import Ended
from halfwise.core.child.worker import ChildDied, ChildFailed
from halfwise.core.errors import NoRoom
from halfwise.core.notes import NoteKind
from halfwise.emulation.ort import Session
from halfwise.report.answer import way_out
from halfwise.report.html.verdict import verdict_words
from halfwise.search.run_counter import Untried
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds, only
from tests.support.says import Says


def product(scale: float = 1.0) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    return model(
        [node("MatMul", "x w", "p"), node("Tanh", "p", "y")],
        [value("x", shape=(2, 8))],
        [value("y", shape=(2, 8))],
        [weight("w", (scale * rng.standard_normal((8, 8))).astype(np.float32))],
    )


FEEDS = [{"x": np.random.default_rng(seed).standard_normal((2, 8)).astype(np.float32)} for seed in range(4)]


def test_the_error_of_what_was_written_is_that_of_onnx_runtime(tmp_path: Path) -> None:
    made = fix(product(), FEEDS, out=tmp_path, io_types="fp16")
    assert made.good and made.typed is not None and made.delivered is not None
    session = ort.InferenceSession(str(made.typed.path), providers=["CPUExecutionProvider"])
    exact = ort.InferenceSession(product().SerializeToString(), providers=["CPUExecutionProvider"])
    errors = []
    for feed in made.samples.all:  # searched ones, too: the hardest may be among them
        got = session.run(None, {"x": feed["x"].astype(np.float16)})[0].astype(np.float64)
        wanted = exact.run(None, dict(feed))[0].astype(np.float64)
        errors.append(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
    assert made.delivered.outputs["y"].rel_l2 == pytest.approx(max(errors), rel=1e-3)
    assert made.to_json()["delivered"]["status"] == "met"


def test_without_a_folder_nothing_is_delivered() -> None:
    made = fix(product(), FEEDS)
    assert made.delivered is None and "delivered" not in made.to_json()


@pytest.mark.parametrize(("target", "good"), [("onnx", False), ("trt-8.6", True)])
def test_a_miss_there_is_a_no_where_the_target_may_run_it_so(
    target: str, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(path: Path, feeds: list[dict[str, np.ndarray]], *_: object, **__: object) -> Any:
        return tuple({"y": np.zeros((2, 8), np.float32)} for _ in feeds)

    monkeypatch.setattr("halfwise.verbs.fix.delivered.run_as_written", wrong)
    made = fix(product(), FEEDS, out=tmp_path, target=target)
    assert made.met and made.good is good
    assert made.to_json()["delivered"]["status"] == "not-met"
    assert (NoteKind.DELIVERED_MISSES in kinds(made.notes)) is good


def wrong_in_fp16() -> onnx.ModelProto:
    """The CPU provider has no kernel of ReduceLogSumExp in FP16, and takes the exponent of 1,000 as it is."""
    return model(
        [node("Mul", "x k", "h"), node("Relu", "h", "r"), node("ReduceLogSumExp", "r axes", "y")],
        [value("x", shape=(2, 8))],
        [value("y", shape=(2, 1))],
        [weight("k", np.float32(1000.0)), weight("axes", np.array([1]))],
        opset=18,
    )


def test_no_session_is_held_while_a_written_model_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where several are tried."""

    def alive() -> int:
        return sum(isinstance(each, Session) for each in gc.get_objects())

    def counted(*args: Any, **named: Any) -> Any:
        seen.append(alive())
        return run_as_written(*args, **named)

    seen: list[int] = []
    gc.collect()  # of what other tests left
    before = alive()
    for module in ("delivered", "runnable"):
        monkeypatch.setattr(f"halfwise.verbs.fix.{module}.run_as_written", counted)
    assert fix(wrong_in_fp16(), FEEDS, out=tmp_path).good
    assert len(seen) > 2 and max(seen) <= before


@pytest.mark.parametrize(("target", "kept"), [("onnx", ("n_y",)), ("ort-cuda", ())])
def test_what_the_runtime_computes_wrong_in_fp16_stays_in_fp32_where_it_may_run(
    target: str, kept: tuple[str, ...], tmp_path: Path
) -> None:
    given = wrong_in_fp16()
    made = fix(given, FEEDS, out=tmp_path, target=target)
    assert made.good and made.fp32_nodes == kept
    if kept:
        assert made.delivered is not None and made.delivered.verdict is not None and made.delivered.verdict.met
        assert kinds(made.plan.nodes[0].because) == [NoteKind.KEEPS_CPU_RIGHT]


@pytest.mark.parametrize("most", [20, 24, 28])
def test_a_budget_bounds_what_is_tried_where_the_runtime_goes_wrong(most: int, tmp_path: Path) -> None:
    """What is found within it runs right; what was left untried is told."""
    made = fix(wrong_in_fp16(), FEEDS, out=tmp_path, max_runs=most)
    assert made.good and "n_y" in made.fp32_nodes and made.cost.model_runs <= most
    untried = [each for note in made.notes if note.kind is NoteKind.BEST_SO_FAR for each in note.values["untried"]]
    assert untried == ([] if most == 28 else [Untried.RUNTIME.value])


def packed(level: int) -> onnx.ModelProto:
    """Two products of 4-bit weights, whose other factor the CPU provider rounds to INT8 at level 4."""
    rng = np.random.default_rng(5)
    attributes = {"K": 64, "N": 64, "bits": 4, "block_size": 32, "accuracy_level": level}
    nodes = [
        onnx.helper.make_node("MatMulNBits", [x, f"w{i}", f"s{i}"], [y], f"n{i}", domain="com.microsoft", **attributes)
        for i, (x, y) in enumerate((("x", "p"), ("t", "y")))
    ]
    nodes.insert(1, node("Tanh", "p", "t"))
    held = [weight(f"w{i}", rng.integers(0, 256, (64, 2, 16)).astype(np.uint8)) for i in range(2)]
    held += [weight(f"s{i}", (0.02 + 0.02 * rng.random((64, 2))).astype(np.float32)) for i in range(2)]
    made = model(nodes, [value("x", shape=(4, 64))], [value("y", shape=(4, 64))], held)
    made.opset_import.add(domain="com.microsoft", version=1)
    return made


def dequantised() -> onnx.ModelProto:
    """The same with weights behind DequantizeLinear, which the CPU provider joins with the product."""
    rng = np.random.default_rng(5)
    nodes = [node("DequantizeLinear", f"w{i} s{i}", f"t{i}", axis=1) for i in range(2)]
    nodes += [node("MatMul", "x t0", "p"), node("Tanh", "p", "t"), node("MatMul", "t t1", "y")]
    held = [weight(f"w{i}", rng.integers(-127, 128, (64, 64)).astype(np.int8)) for i in range(2)]
    held += [weight(f"s{i}", (0.001 + 0.001 * rng.random(64)).astype(np.float32)) for i in range(2)]
    return model(nodes, [value("x", shape=(4, 64))], [value("y", shape=(4, 64))], held, opset=21, ir_version=10)


def test_of_weights_behind_dequantizelinear_it_is_told_that_the_runtime_multiplies_in_int8(tmp_path: Path) -> None:
    feeds = [{"x": np.random.default_rng(seed).standard_normal((4, 64)).astype(np.float32)} for seed in range(4)]
    made = fix(dequantised(), feeds, out=tmp_path, tolerance="rel_l2<=0.003")
    (told,) = (note for note in made.notes if note.kind is NoteKind.DELIVERED_MISSES_IN_FP32)
    assert made.good and told.values["why"].kind is NoteKind.INT8_FUSED


@pytest.mark.parametrize(("level", "told"), [(4, [NoteKind.DELIVERED_MISSES_IN_FP32]), (0, [])])
def test_what_the_runtime_computes_otherwise_in_fp32_too_is_no_miss_of_fp16(
    level: int, told: list[NoteKind], tmp_path: Path
) -> None:
    feeds = [{"x": np.random.default_rng(seed).standard_normal((4, 64)).astype(np.float32)} for seed in range(4)]
    made = fix(packed(level), feeds, out=tmp_path, tolerance="rel_l2<=0.003")
    assert made.good and not made.fp32_nodes
    assert [kind for kind in kinds(made.notes) if kind.value.startswith("delivered")] == told
    assert made.standing.rank == ("caution" if told else "met")
    assert made.delivered is not None and made.delivered.verdict is not None
    assert made.delivered.verdict.met is not bool(told)


def test_nodes_kept_for_the_runtime_do_not_cost_the_tolerance(tmp_path: Path) -> None:
    """Errors that cancel: with the node in FP32 that the runtime computes otherwise, the emulated error would grow."""
    posed = problem(408)
    made = fix(posed.model, list(posed.feeds), out=tmp_path, tolerance="rel_l2<=0.01", repairs="none")
    assert made.met and made.delivered is not None
    assert made.delivered.verdict is not None and made.delivered.verdict.met


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_kernels_of_quantised_data_run_as_written(op: str, tmp_path: Path) -> None:
    """The runtime's list of kernels names no float type for them."""
    mixed = onnx.helper.make_node(op, "q s z q s z s z".split(), ["r"], domain="com.microsoft")
    given = model(
        [
            node("MatMul", "x w", "p"),
            node("QuantizeLinear", "p s z", "q"),
            mixed,
            node("DequantizeLinear", "r s z", "y"),
        ],
        [value("x", shape=(2, 8))],
        [value("y", shape=(2, 8))],
        [weight("w", np.eye(8, dtype=np.float32)), weight("s", np.float32(1 / 16)), weight("z", np.uint8(128))],
    )
    given.opset_import.add(domain="com.microsoft", version=1)
    feeds = [{"x": np.round(4 * feed["x"]).astype(np.float32) / 4} for feed in FEEDS]
    made = fix(given, feeds, out=tmp_path)
    assert made.good and made.plan.nodes == ()
    assert made.delivered is not None and made.delivered.outputs["y"].rel_l2 == 0.0


def test_where_it_cannot_run_one_line_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, kind in (
        (NoKernel("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : no X"), NoteKind.DELIVERED_NOT_RUN),
        (BackendFailure("it crashed (SIGSEGV)"), NoteKind.DELIVERED_FAILS_IN_FP32),
    ):

        def refused(*_: object, error: BackendFailure = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("halfwise.verbs.fix.delivered.run_as_written", refused)
        made = fix(product(), FEEDS, out=tmp_path)
        told = only(made.notes, kind)
        record = {"status": "not-run", "outputs": {}, "why": told.values["why"], "because": [told.to_json()]}
        assert made.good and made.to_json()["delivered"] == record


@pytest.mark.parametrize(("target", "good"), [("onnx", False), ("ort-cuda", True), ("trt-11", True)])
def test_what_cannot_be_loaded_there_is_a_no_where_the_target_may_run_it_so(
    target: str, good: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is applied as it is; the FP32 model can be loaded."""

    def refused(path: Path, *args: Any, **named: Any) -> Any:
        if any(each.data_type == onnx.TensorProto.FLOAT16 for each in onnx.load(path).graph.initializer):
            raise BackendFailure("it crashed (SIGSEGV)")
        return run_as_written(path, *args, **named)

    plan = fix(product(), FEEDS, out=tmp_path / "plan", target=target).plan_path
    monkeypatch.setattr("halfwise.verbs.fix.delivered.run_as_written", refused)
    made = fix(product(), FEEDS, out=tmp_path / "out", target=target, plan=plan)
    only(made.notes, NoteKind.DELIVERED_FAILS)
    assert made.met and made.good is good and made.to_json()["status"] == ("met" if good else "not-met")
    assert (way_out(made).note is only(made.notes, NoteKind.DELIVERED_FAILS)) is not good
    assert made.standing.rank == ("caution" if good else "missed")
    assert ("cannot be run by" in verdict_words(made).headline) is not good


_FULL = OSError(28, "No space left on device")
_KILLED = Ended(-int(getattr(signal, "SIGKILL", 9)), 1.0, 60.0, False)


@pytest.mark.parametrize(
    "lack",
    [
        ChildFailed("pthread_create failed, error code: 11 error msg: Resource temporarily unavailable"),
        NoRoom("no room for a temporary file in /tmp (TMPDIR): it takes 2 GB, and 1 GB are left"),
        ChildFailed("MemoryError: bad allocation"),
        ChildDied(_KILLED, ()),
        _FULL,
    ],
    ids=["threads", "disk", "memory", "killed", "disk here"],
)
def test_where_the_system_has_no_more_of_something_the_model_is_not_to_blame(
    lack: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """Nothing is put back into FP32 for it, and the result is good."""

    def none_left(*_: object, **__: object) -> NoReturn:
        raise lack

    monkeypatch.setattr("halfwise.backends.as_written.ask", none_left)
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    made = fix(product(), FEEDS, out=tmp_path)
    assert made.good and made.plan.nodes == ()
    told = only(made.notes, NoteKind.DELIVERED_NOT_RUN)
    assert made.delivered is not None and not made.delivered.refutes
    says(told.values["why"])


def test_what_has_no_kernel_is_told_from_what_is_broken(tmp_path: Path) -> None:
    """BF16 has no Det on the CPU; and a model whose types do not fit cannot be loaded at all."""
    half, brain = onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
    given = model([node("Det", "x", "y")], [value("x", brain, (2, 2))], [value("y", brain, ())], opset=22)
    onnx.save(given, tmp_path / "det.onnx")
    feed = {"x": np.eye(2, dtype=np.float32)}
    with pytest.raises(NoKernel, match="Det"):
        run_as_written(tmp_path / "det.onnx", [feed], 60.0)
    broken = model([node("Add", "x x", "y")], [value("x", half, (2, 2))], [value("y", shape=(2, 2))])
    onnx.save(broken, tmp_path / "broken.onnx")
    with pytest.raises(BackendFailure, match="Type Error"):
        run_as_written(tmp_path / "broken.onnx", [feed], 60.0)


@pytest.mark.parametrize("ends", ["x", "y", "xy"])
def test_a_model_whose_ends_are_bf16_is_run_as_it_is(tmp_path: Path, ends: str) -> None:
    proto = product()
    for end in (*proto.graph.input, *proto.graph.output):
        if end.name in ends:
            end.type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    casts = [node("Cast", "x", "wide", to=1), *proto.graph.node, node("Cast", "sum", "y", to=16 if "y" in ends else 1)]
    casts[1].input[0], casts[2].output[0] = "wide", "sum"
    del proto.graph.node[:]
    proto.graph.node.extend(casts)
    made = fix(proto, FEEDS, out=tmp_path)
    assert made.delivered is not None and made.delivered.verdict is not None and made.delivered.verdict.met
    assert NoteKind.DELIVERED_FAILS not in kinds(made.notes)


def test_a_quantised_join_for_another_target_is_run_without_integer_kernels(tmp_path: Path) -> None:
    """The provider makes a join in integers of it, which takes no FP16 scale: TensorRT was told that it fails."""
    scales = [weight(name, np.float32(0.05)) for name in "stu"]
    nodes = [
        node("Tanh", "x", "a"), node("QuantizeLinear", "a s z", "qa"), node("DequantizeLinear", "qa s z", "da"),
        node("Relu", "x", "b"), node("QuantizeLinear", "b t z", "qb"), node("DequantizeLinear", "qb t z", "db"),
        node("Concat", "da db", "c", axis=1), node("QuantizeLinear", "c u z", "qc"),
        node("DequantizeLinear", "qc u z", "dc"), node("Neg", "dc", "y"),
    ]  # fmt: skip
    given = model(nodes, [value("x", shape=(2, 8))], [value("y", shape=(2, 16))],
                  [*scales, weight("z", np.int8(0))], opset=19)  # fmt: skip
    made = fix(given, FEEDS, target="trt-10.9", tolerance=["rel_l2<=0.1"], out=tmp_path)
    assert NoteKind.DELIVERED_FAILS not in kinds(made.notes)
    assert made.delivered is not None and made.delivered.verdict is not None
