"""Products on a GPU in the order of the processor's kernels, with this machine in the place of the GPU."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from halfwise.core.errors import HalfwiseError, MissingBackend
from halfwise.emulation import cuda_compiler, emulate, gpu_products, gpu_weights, product_session, store, streamed
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.gpu_products import GpuProducts, product_model
from halfwise.emulation.ort import MANY, Device, Session
from halfwise.emulation.product_session import ProductSession
from halfwise.emulation.sessions import session_for
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.sum_order import pieces
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.tensor_statistics import tensor_statistics
from tests.models.build import model, node, value, weight
from tests.models.decoders import decoder, decoder_inputs
from tests.support.in_place_of_gpu import Multiplier

on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the order of kernels for x86")
Array = NDArray[Any]
SEVERAL = [(2, 500, 300), (33, 1050, 130), (64, 300, 64), (5, 700, 17), (40, 17, 40), (3, 40, 64), (2, 260, 3)]
ONE = [(1, 512, 64), (1, 331, 203), (1, 6, 7), (1, 5, 6), (1, 8, 5)]


@pytest.fixture
def multiplier(monkeypatch: pytest.MonkeyPatch) -> Multiplier:
    """In the place of the GPU; what lies there lies here."""
    made = Multiplier()
    products = GpuProducts(made, made.functions, "cpu")
    monkeypatch.setattr(product_session, "gpu_products", lambda: products)
    monkeypatch.setattr(product_session, "upload", ort.OrtValue.ortvalue_from_numpy)
    monkeypatch.setattr(gpu_weights, "gpu_weights", lambda: None)
    monkeypatch.setattr(gpu_weights, "upload", ort.OrtValue.ortvalue_from_numpy)
    return made


@on_x86
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("threads", [1, 2, MANY])
@pytest.mark.parametrize("shape", [*SEVERAL, *ONE])
def test_the_order_is_the_processors(shape: tuple[int, int, int], threads: int, turned: bool, biased: bool) -> None:
    rows, depth, columns = shape
    rng, multiplier = np.random.default_rng(rows + columns), Multiplier()
    given = rng.standard_normal((rows, depth)).astype(np.float32)
    table = rng.standard_normal((columns, depth) if turned else (depth, columns)).astype(np.float32)
    feed = {"rows": given, "table": table}
    if biased:
        feed["bias"] = rng.standard_normal(columns).astype(np.float32)
    here = Session(product_model(turned=turned, biased=biased), threads=threads).run(feed)["made"]
    products = GpuProducts(multiplier, multiplier.functions, "cpu")
    there = ort.OrtValue.ortvalue_from_numpy(table)
    made = products.of(given, there, feed.get("bias"), turned=turned, threads=threads)
    assert made is not None and made.tobytes() == here.tobytes()


@pytest.mark.parametrize("shape", [(4, 300, 1), (1, 300, 1), (3, 50_000, 2)])  # one column; one row for each thread
def test_what_has_another_kernel_is_not_guessed(shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    multiplier = Multiplier()
    table = ort.OrtValue.ortvalue_from_numpy(np.ones((depth, columns), np.float32))
    products = GpuProducts(multiplier, multiplier.functions, "cpu")
    assert products.of(np.ones((rows, depth), np.float32), table, turned=False, threads=MANY) is None
    assert not multiplier.asked


def test_few_columns_are_summed_in_longer_pieces() -> None:
    assert pieces(8, 1024, 1000, 8) == (128,) * 64
    assert pieces(8, 512, 1000, 8) == (256,) * 32
    assert set(pieces(2, 300, 1000, 8) or ()) == {256, 512}  # 48 columns for some threads, 32 for the others
    assert pieces(100, 1000, 30, 8) == (32,) * 63  # all of it


@on_x86
def test_it_agrees_only_with_the_processors_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    multiplier = Multiplier()
    assert GpuProducts(multiplier, multiplier.functions, "cpu").agrees()
    monkeypatch.setattr(gpu_products, "pieces", lambda rows, columns, depth, threads: (64,) * -(-columns // 16))
    assert not GpuProducts(multiplier, multiplier.functions, "cpu").agrees()


@pytest.mark.parametrize("error", [MissingBackend("no GPU"), HalfwiseError("nvrtcCompileProgram failed"), OSError()])
def test_without_it_the_runtime_multiplies(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(gpu_products, "open_cuda", fail)
    gpu_products.gpu_products.cache_clear()
    assert gpu_products.gpu_products() is None
    gpu_products.gpu_products.cache_clear()


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_compiler, "_names", lambda: iter(["libnvrtc-that-is-not-there.so"]))
    cuda_compiler._compiler.cache_clear()
    with pytest.raises(MissingBackend, match=r"NVRTC.* pip install 'halfwise\[gpu\]'"):
        cuda_compiler.compiled("")
    cuda_compiler._compiler.cache_clear()


def tied() -> onnx.ModelProto:
    """A product with a weight, and one with another that lies the other way."""
    rng = np.random.default_rng(8)
    first, last = (rng.standard_normal(shape).astype(np.float32) for shape in ((70, 60), (90, 60)))
    nodes = [
        node("MatMul", "x w", "h"),
        node("Relu", "h", "r"),
        node("Transpose", "e", "t", perm=[1, 0]),
        node("MatMul", "r t", "y"),
    ]
    ends = [value("x", shape=[1, "n", 70])], [value("y", shape=[1, "n", 90])]
    return model(nodes, *ends, [weight("w", first), weight("e", last)])


def with_biases(*, turned: bool) -> onnx.ModelProto:
    """Two products with a bias, as GPT-2 has them: the second's is long enough to be handed out as weights are."""
    rng = np.random.default_rng(8)
    sizes = {"w": (70, 60), "b": (60,), "v": (60, 300), "c": (300,)}
    held = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    tables = {name: np.ascontiguousarray(held[name].T) if turned else held[name] for name in "wv"}
    nodes = [
        node("Reshape", "x shape", "flat"),
        node("Gemm", "flat w b", "h", transB=int(turned)),
        node("Relu", "h", "r"),
        node("Gemm", "r v c", "y", transB=int(turned)),
    ]
    ends = [value("x", shape=[1, "n", 70])], [value("y", shape=["n", 300])]
    return model(nodes, *ends, [weight(n, a) for n, a in {**held, **tables, "shape": np.array([-1, 70])}.items()])


def feeds(*tokens: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(9)
    return [{"x": rng.standard_normal((1, each, 70)).astype(np.float32)} for each in tokens]


def cases() -> Sequence[tuple[onnx.ModelProto, list[dict[str, Array]], set[str]]]:
    several = {"rows_by_table"}
    return [
        (decoder("divided"), list(decoder_inputs(2)), several),
        (tied(), feeds(5, 9), several),
        (tied(), feeds(1), {"row_by_table", "row_by_turned"}),
        (tied(), feeds(6, 1), {*several, "row_by_table", "row_by_turned"}),
        (with_biases(turned=False), feeds(5, 9), several),
        (with_biases(turned=True), feeds(1, 4, 3), {*several, "row_by_turned"}),
        (with_biases(turned=False), feeds(1), {"row_by_table"}),
    ]


@on_x86
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("number", range(7))
def test_a_streamed_model_has_the_processors_bits(
    number: int, narrow: bool, multiplier: Multiplier, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto, given, kernels = cases()[number]
    sites = Sites(load(proto))
    assignment = Assignment.all_narrow(sites) if narrow else Assignment(sites, {})
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    monkeypatch.setattr(streamed, "LARGE_BYTES", 0)
    found = []
    devices: tuple[Device, ...] = ("cpu", "cuda")
    for device in devices:
        emulator = Emulator()
        emulator.device = device
        found.append(list(emulator.session(assignment).answers(given)))
    for here, there in zip(*found, strict=True):
        assert not isinstance(here, Exception) and not isinstance(there, Exception)
        assert {name: array.tobytes() for name, array in here.items()} == {n: a.tobytes() for n, a in there.items()}
    assert set(multiplier.asked) == kernels


@on_x86
def test_a_walk_by_steps_has_the_processors_bits(multiplier: Multiplier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    monkeypatch.setattr(store, "WEIGHT_BYTES", 1)
    sites, found = Sites(load(decoder("divided"))), []
    (feed,) = decoder_inputs(1)
    devices: tuple[Device, ...] = ("cpu", "cuda")
    for device in devices:
        emulator = Emulator()
        emulator.device = device
        found.append(tensor_statistics(Stepper(emulator), sites, feed).ranges())
    assert found[0] == found[1]
    assert set(multiplier.asked) == {"rows_by_table"}


@on_x86
def test_what_stores_a_product_runs_on_the_processor(multiplier: Multiplier) -> None:
    proto = product_model(turned=False)
    proto.graph.node[0].output[0] = "wide"
    proto.graph.node.extend([node("Cast", "wide", "half", to=10), node("Cast", "half", "made", to=1)])
    session = session_for(proto, threads=2, device="cuda")
    assert isinstance(session, ProductSession)
    rng = np.random.default_rng(4)
    rows, table = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 50), (50, 20)))
    made = session.run({"rows": rows, "table": ort.OrtValue.ortvalue_from_numpy(table)})["made"]
    assert made.tobytes() == Session(proto).run({"rows": rows, "table": table})["made"].tobytes()
    assert multiplier.asked == ["rows_by_table"]


@pytest.mark.parametrize("operators", [["Gemm"], ["MatMul", "Relu"], ["Mul"]])
def test_other_models_are_left_to_the_runtime(operators: list[str], multiplier: Multiplier) -> None:
    """What multiplies once more, or is more than storing, is none of its business."""
    first = node(operators[0], "rows table", "made", **({"alpha": 0.5} if operators == ["Gemm"] else {}))
    graph = product_model(turned=False)
    del graph.graph.node[:]
    graph.graph.node.extend([first, *(node(each, "made", "last") for each in operators[1:])])
    assert product_session.product_session(graph, 2) is None
    assert not multiplier.asked
