"""A Transpose in front of a product in another format: what ONNX Runtime cannot load is not written."""

from __future__ import annotations

import subprocess
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.deploy.onnxruntime.adjustable import Adjustable
from halfwise.deploy.onnxruntime.transposed_products import adjust_transposes, cpu_crash_note, crash_note
from halfwise.deploy.onnxruntime.turned_products import products_first
from halfwise.emulation.emulate import Emulator
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision
from halfwise.precision.plan import read_plan
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight
from tests.support.messages import kinds

_LOAD = """
import sys
import onnxruntime
for path in sys.argv[1:]:
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
"""


def product(order: tuple[int, ...], *, left: bool = True, wide: str = "") -> onnx.ModelProto:
    """A transposed tensor times a matrix; `wide` is another reader of the transposed tensor."""
    shape = (4,) * len(order)
    return model(
        [
            node("Relu", "x", "before"),
            node("Transpose", "before", "turned", perm=list(order)),
            node("MatMul", "turned w" if left else "w turned", "product"),
            node("Relu", "product", "y"),
            *([node("Sigmoid", "turned", wide)] if wide else []),
        ],
        [value("x", shape=shape)],
        [value("y", shape=shape), *([value(wide, shape=shape)] if wide else [])],
        [weight("w", np.eye(4, dtype=np.float32))],
    )


def typed(proto: onnx.ModelProto, *wide: str) -> tuple[Adjustment, onnx.ModelProto, str | None]:
    """With these nodes in FP32 at first, and what that is adjusted to."""
    sites = Sites(load(proto))
    start = {site.node: Format.FP32 for site in sites.free if site.node.op_type in wide}
    about = Adjustable(sites, Format.FP32, frozenset(), lambda _: True)
    found = adjust_transposes(about, Adjustment(Decision(about.sites, start, Format.FP32)))
    assignment = about.assignment(found.decision.formats)
    return found, typed_proto(assignment), crash_note(assignment)


def test_every_order_is_loaded(tmp_path: Path) -> None:
    orders = [*permutations(range(3)), *permutations(range(4))]
    for number, order in enumerate(orders):
        for left in (True, False):
            for wide in ("MatMul", "Transpose"):
                _, proto, note = typed(product(order, left=left), wide)
                assert note is None
                onnx.save(proto, tmp_path / f"{number}{left}{wide}.onnx")
    files = sorted(map(str, tmp_path.iterdir()))
    assert len(files) == 4 * len(orders)
    ended = subprocess.run([sys.executable, "-c", _LOAD, *files], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_only_what_needs_it_is_added_and_says_why() -> None:
    found, proto, _ = typed(product((1, 2, 0), wide="z"), "MatMul")
    assert [(each.name, each.why) for each in found.added] == [("n_turned", "compiler")]
    assert found.added[0].because == (Note.of(NoteKind.KEEPS_TRANSPOSE_LOADABLE, "n_product"),)
    sigmoid = next(each for each in proto.graph.node if each.op_type == "Sigmoid")
    assert sigmoid.input[0] != "turned"  # it still reads FP16
    assert not typed(product((0, 2, 1)), "MatMul")[0].added
    assert not typed(product((1, 2, 0)))[0].added


def test_the_other_way_round_the_transpose_narrows() -> None:
    found, _, note = typed(product((1, 0, 2)), "Transpose")
    assert not found.decision.formats and not found.added and note is None


def test_a_transpose_of_two_products_is_added_once() -> None:
    proto = product((1, 2, 0))
    proto.graph.node.append(node("MatMul", "turned w", "second"))
    proto.graph.output.append(value("second", shape=(4, 4, 4)))
    found, _, note = typed(proto, "MatMul")
    assert [each.name for each in found.added] == ["n_turned"] and note is None


def test_products_in_both_formats_go_to_fp32_with_it() -> None:
    proto = product((1, 2, 0))
    proto.graph.node.append(node("MatMul", "turned w", "second"))
    proto.graph.output.append(value("second", shape=(4, 4, 4)))
    loaded = load(proto)
    start = {loaded.node_by_name["n_product"]: Format.FP32}
    for stated in (frozenset[str](), frozenset({"n_second"})):
        about = Adjustable(Sites(loaded), Format.FP32, stated, lambda _: True)
        found = adjust_transposes(about, Adjustment(Decision(about.sites, start, Format.FP32)))
        assert {each.name for each in found.decision.formats} == {"n_product", "n_turned", "n_second"} - stated
        told = crash_note(about.assignment(found.decision.formats))
        assert told == (Note.of(NoteKind.ORT_MAY_CRASH, "n_turned", product="n_second") if stated else None)


def test_a_transpose_is_not_narrowed_beyond_the_tolerance() -> None:
    loaded = load(product((1, 0, 2)))
    about = Adjustable(Sites(loaded), Format.FP32, frozenset(), lambda _: False)
    start = {loaded.node_by_name["n_turned"]: Format.FP32}
    found = adjust_transposes(about, Adjustment(Decision(about.sites, start, Format.FP32)))
    assert {each.name for each in found.decision.formats} == {"n_turned", "n_product"}
    assert [each.name for each in found.added] == ["n_product"]


def joined(op: str, order: tuple[int, ...] = (1, 0, 2)) -> onnx.ModelProto:
    """Two transposed tensors in one that a product reads: ONNX Runtime makes one Transpose of the two, behind it."""
    attributes = {"axis": 0} if op == "Concat" else {}
    nodes = [
        node("Relu", "x", "a"), node("Sigmoid", "x", "b"),
        node("Transpose", "a", "ta", perm=list(order)), node("Transpose", "b", "tb", perm=list(order)),
        node(op, "ta tb", "one", **attributes), node("MatMul", "one w", "product"), node("Relu", "product", "y"),
    ]  # fmt: skip
    rows = 8 if op == "Concat" else 4
    return model(
        nodes, [value("x", shape=(4, 4, 4))], [value("y", shape=(rows, 4, 4))], [weight("w", np.eye(4, dtype="f4"))]
    )


def test_a_transpose_that_is_moved_there_is_loaded(tmp_path: Path) -> None:
    for op, order in (("Concat", (1, 0, 2)), ("Add", (1, 0, 2)), ("Concat", (1, 2, 0))):
        found, proto, note = typed(joined(op, order), "MatMul")
        assert [each.name for each in found.added] == ["n_one"] and note is None
        onnx.save(proto, tmp_path / f"{op}{order[-1]}.onnx")
        assert not typed(joined(op, (0, 2, 1)), "MatMul")[0].added
    files = sorted(map(str, tmp_path.iterdir()))
    ended = subprocess.run([sys.executable, "-c", _LOAD, *files], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_model_that_may_crash_is_named() -> None:
    sites = Sites(load(product((1, 2, 0))))
    keep = frozenset(site.node for site in sites.free if site.node.op_type == "MatMul")
    note = crash_note(Assignment.all_narrow(sites, keep))
    assert note == Note.of(NoteKind.ORT_MAY_CRASH, "n_turned", product="n_product")


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
def test_fix_settles_it_and_a_plan_of_that_is_whole(target: str, tmp_path: Path) -> None:
    inputs = [{"x": np.full((4, 4, 4), 1.5, np.float32)}]
    made = fix(product((1, 2, 0)), inputs, target=target, keep=["op:MatMul"], out=tmp_path)
    assert {each.name for each in made.plan.nodes} == {"n_product", "n_turned"}
    assert NoteKind.ORT_MAY_CRASH not in kinds(made.notes)
    again = fix(product((1, 2, 0)), inputs, target=target, plan=read_plan(next(tmp_path.glob("*.plan.json"))))
    assert {each.name for each in again.plan.nodes} == {"n_product", "n_turned"}


@pytest.mark.parametrize("order", [(1, 2, 0), (1, 0, 2), (2, 0, 1)])
def test_what_the_cpu_provider_makes_of_fp16_is_spared_it(order: tuple[int, ...], tmp_path: Path) -> None:
    """Behind the product where that is the same, else both in FP32; what is written runs, in a child of its own."""
    inputs = [{"x": np.full((4, 4, 4), 1.5, np.float32)}]
    made = fix(product(order), inputs, target="onnx", keep=["name:n_before"], confirm="ort-cpu", out=tmp_path)
    assert NoteKind.ORT_CPU_MAY_CRASH not in kinds(made.notes)
    assert made.good
    assert {each.name for each in made.plan.nodes} == {
        "n_before",
        *({"n_turned", "n_product"} if order == (1, 2, 0) else ()),
    }


@pytest.mark.parametrize("target", ["trt-10.9", "onnx"])
def test_the_file_for_another_runtime_says_that_the_cpu_provider_crashes_on_it(target: str, tmp_path: Path) -> None:
    """It is run here without the optimizer that crashes: nobody was told, and everybody else has it."""
    proto = product((1, 2, 0))
    del proto.graph.node[0]
    proto.graph.node[0].input[0] = "x"
    inputs = [{"x": np.full((4, 4, 4), 1.5, np.float32)}]
    made = fix(proto, inputs, target=target, out=tmp_path)
    assert made.delivered is not None and made.delivered.verdict is not None and made.delivered.verdict.met
    assert made.typed is not None
    ended = subprocess.run([sys.executable, "-c", _LOAD, str(made.typed.path)], capture_output=True, check=False)
    assert (NoteKind.ORT_CPU_MAY_CRASH in kinds(made.notes)) is (ended.returncode != 0) is (target != "onnx")


def lstm_and_linear(batch: int | str = 2) -> onnx.ModelProto:
    """As PyTorch exports an LSTM with the batch first, and a Linear behind it."""
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.standard_normal((1, 32, 6)), "r": rng.standard_normal((1, 32, 8)), "b": np.zeros((1, 64)),
        "m": rng.standard_normal((8, 5)), "c": np.ones(5),
    }  # fmt: skip
    nodes = [
        node("Transpose", "x", "seq", perm=[1, 0, 2]), node("LSTM", "seq w r b", "all", hidden_size=8),
        node("Squeeze", "all axis", "one"), node("Transpose", "one", "turned", perm=[1, 0, 2]),
        node("MatMul", "turned m", "p"), node("Add", "p c", "y"),
    ]  # fmt: skip
    weights = [weight("axis", np.array([1])), *(weight(k, v.astype(np.float32)) for k, v in arrays.items())]
    return model(nodes, [value("x", shape=(batch, 7, 6))], [value("y", shape=(batch, 7, 5))], weights)


@pytest.mark.parametrize("batch", [2, "n"])
def test_an_lstm_before_a_linear_runs_in_fp16(batch: int | str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    inputs = [{"x": rng.standard_normal((2, 7, 6)).astype(np.float32)} for _ in range(3)]
    made = fix(lstm_and_linear(batch), inputs, confirm="ort-cpu", out=tmp_path)
    assert made.good and not made.fp32_nodes
    written = onnx.load(next(tmp_path.glob("*.onnx")))
    assert [each.op_type for each in written.graph.node if each.name in ("n_turned", "n_p")] == ["MatMul", "Transpose"]
    onnx.checker.check_model(written, full_check=True)


def normed_and_linear() -> onnx.ModelProto:
    """The end of a Transformer as PyTorch exports it: the provider has norms in FP16, and no products."""
    rng = np.random.default_rng(0)
    arrays = {"m": rng.standard_normal((8, 5)), "s": np.ones(8), "b": np.zeros(8)}
    nodes = [
        node("LayerNormalization", "x s b", "all"), node("Transpose", "all", "turned", perm=[1, 0, 2]),
        node("MatMul", "turned m", "y"),
    ]  # fmt: skip
    weights = [weight(name, each.astype(np.float32)) for name, each in arrays.items()]
    return model(nodes, [value("x", shape=(7, "n", 8))], [value("y", shape=("n", 7, 5))], weights)


def test_a_norm_before_a_linear_runs_in_fp16(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    inputs = [{"x": rng.standard_normal((7, 2, 8)).astype(np.float32)} for _ in range(3)]
    made = fix(normed_and_linear(), inputs, target="onnx", confirm="ort-cpu", out=tmp_path)
    assert made.good and not made.fp32_nodes
    assert made.delivered is not None and made.delivered.verdict is not None


@pytest.mark.parametrize("given", [product((1, 2, 0)), lstm_and_linear(), normed_and_linear(), joined("Concat")])
def test_what_the_target_does_not_run_is_checked_without_what_crashes(given: onnx.ModelProto, tmp_path: Path) -> None:
    """Of a model for TensorRT the CPU provider tells only what the stored numbers give."""
    rng, dims = np.random.default_rng(1), given.graph.input[0].type.tensor_type.shape.dim
    shape = [dim.dim_value or 2 for dim in dims]
    inputs = [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(3)]
    made = fix(given, inputs, target="trt-10.9", out=tmp_path)
    assert made.good and not made.fp32_nodes
    assert made.delivered is not None and made.delivered.verdict is not None and made.delivered.verdict.met


def test_the_order_changes_no_bit() -> None:
    whole = Assignment.all_narrow(Sites(load(lstm_and_linear())))
    feed = {"x": np.random.default_rng(2).standard_normal((2, 7, 6)).astype(np.float32)}
    one, other = (Emulator().session(each).run(feed)["y"] for each in (whole, products_first(whole)))
    assert one.tobytes() == other.tobytes()
    assert {n.name: f for n, f in products_first(whole).formats.items()} == {
        n.name: f for n, f in whole.formats.items()
    }


def queries_keys_and_values() -> onnx.ModelProto:
    """Three products read one Transpose, and so does what adds it to their sum; a name is taken."""
    rng = np.random.default_rng(0)
    weights = [weight(name, rng.standard_normal((8, 8)).astype(np.float32)) for name in ("a", "b", "c")]
    nodes = [
        node("Transpose", "x", "turned", perm=[1, 0, 2]),
        *(node("MatMul", f"turned {name}", each) for name, each in zip("abc", ("q", "k", "v"), strict=True)),
        node("Sigmoid", "k", "n_q_turned"), node("Sum", "q n_q_turned v turned", "y"),
    ]  # fmt: skip
    return model(nodes, [value("x", shape=(7, 2, 8))], [value("y", shape=(2, 7, 8))], weights)


def test_each_product_of_several_has_a_transpose_of_its_own(tmp_path: Path) -> None:
    feeds = [{"x": np.random.default_rng(seed).standard_normal((7, 2, 8)).astype(np.float32)} for seed in range(3)]
    whole = Assignment.all_narrow(Sites(load(queries_keys_and_values())))
    first = products_first(whole)
    assert [each.op_type for each in first.sites.model.nodes].count("Transpose") == 4
    one, other = (Emulator().session(each).run(feeds[0])["y"] for each in (whole, first))
    assert one.tobytes() == other.tobytes()
    made = fix(queries_keys_and_values(), feeds, target="onnx", confirm="ort-cpu", out=tmp_path)
    assert made.good and not made.fp32_nodes
    assert made.delivered is not None and made.delivered.verdict is not None and made.delivered.verdict.met
    onnx.checker.check_model(onnx.load(next(tmp_path.glob("*.onnx"))), full_check=True)


def test_what_else_reads_the_transpose_reads_it_still() -> None:
    proto = lstm_and_linear()
    proto.graph.output.append(value("turned", shape=(2, 7, 8)))
    whole = Assignment.all_narrow(Sites(load(proto)))
    feed = {"x": np.random.default_rng(2).standard_normal((2, 7, 6)).astype(np.float32)}
    one, other = (Emulator().session(each).run(feed) for each in (whole, products_first(whole)))
    assert {name: array.tobytes() for name, array in one.items()} == {k: v.tobytes() for k, v in other.items()}
    assert cpu_crash_note(products_first(whole)) is None and cpu_crash_note(whole) is not None


def test_a_product_behind_a_product_of_several_keeps_the_order(tmp_path: Path) -> None:
    proto = queries_keys_and_values()
    proto.graph.node.insert(2, node("MatMul", "q b", "again"))
    proto.graph.node[-1].input[0] = "again"
    whole = Assignment.all_narrow(Sites(load(proto)))
    assert cpu_crash_note(products_first(whole)) is not None
    made = fix(proto, [{"x": np.ones((7, 2, 8), np.float32)}], target="onnx", confirm="ort-cpu", out=tmp_path)
    assert made.good
    reasons = {each.name: each.because[0].kind for each in made.plan.nodes}
    assert reasons == {"n_turned": NoteKind.KEEPS_TRANSPOSE_LOADABLE, "n_q": NoteKind.KEEPS_RUNNABLE}


def test_what_was_computed_in_fp16_needs_no_word() -> None:
    assert cpu_crash_note(Assignment.all_narrow(Sites(load(product((1, 2, 0)))))) is None


def test_what_crashes_the_cpu_provider_is_found_by_running_it(tmp_path: Path) -> None:
    """All in FP16 there is no Cast in the model, and the provider puts one behind the moved Transpose."""
    inputs = [{"x": np.full((4, 4, 4), 1.5, np.float32)}]
    made = fix(joined("Concat"), inputs, out=tmp_path)
    assert made.good and made.delivered is not None and made.delivered.verdict is not None
    assert made.fp32_nodes and len(made.fp32_nodes) <= 2
    assert {each.because[0].kind for each in made.plan.nodes} == {NoteKind.KEEPS_RUNNABLE}
