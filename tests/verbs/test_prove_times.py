"""What operations take: timed in a child, and told of others by a law; a decision's kernels are what would run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from halfwise.backends import BackendOptions
from halfwise.backends.runtime_timing import clock_named, time_operation
from halfwise.core.document import read
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.emulation.latency import kernels_of, latency_of
from halfwise.emulation.timing.gpus import PEAKS
from halfwise.emulation.timing.grid import GRID, LAUNCH
from halfwise.emulation.timing.law import measured_law, roofline
from halfwise.emulation.timing.operation import Operand, Operation, work_of
from halfwise.emulation.timing.record import TimeRecord, TimesRecord
from halfwise.emulation.timing.timed_model import load_for, reads_weights, timed_feed, timed_model
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.journal import Journal
from halfwise.verbs.fix.cost import casts_of
from halfwise.verbs.prove import prove
from halfwise.verbs.prove.times import rows_of, timed
from tests.models.zoo import encoder


def product(rows: int, inner: int, columns: int) -> Operation:
    operands = (Operand((rows, inner)), Operand((inner, columns), fixed=True))
    return Operation("MatMul", operands, ((rows, columns),))


def test_operations_are_timed_and_what_a_backend_refuses_is_a_fact(tmp_path: Path, monkeypatch: Any) -> None:
    unknown = Operation("NoSuchOperator", (Operand((4,)),), ((4,),))
    assert [kind for _, kind in rows_of([product(8, 8, 8)] * 2)] == ["fp16", "fp32", "tf32"]
    rows = rows_of([LAUNCH, unknown])
    journal = Journal(tmp_path / "journal", "same")
    seen: list[int] = []
    found = timed("ort-cpu", rows, BackendOptions(), journal, seen.append)
    assert found is not None and seen[-1] == len(rows)
    assert len(set(seen)) == len(rows)  # each is told, not each child
    assert all(row.microseconds > 0 for row in found.rows) and len(found.rows) == 2
    assert [text.split(":")[0] for text in found.refused] == ["NoSuchOperator fp16", "NoSuchOperator fp32"]
    assert read(found.to_json(), TimesRecord, "it").to_json() == found.to_json()
    monkeypatch.setattr("halfwise.verbs.prove.times.Worker", None)  # nothing is left to ask
    again = timed("ort-cpu", rows, BackendOptions(), Journal(tmp_path / "journal", "same"), seen.append)
    assert again is not None and again.rows == found.rows and again.clock == found.clock


def test_a_backend_without_a_clock_is_refused_before_any_work() -> None:
    with pytest.raises(InputError, match="cannot be timed"):
        prove("cmd:nothing", time=True)


def test_every_operation_of_the_grid_runs_as_told() -> None:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    small = [each for each in GRID if sum(math.prod(shape) for shape in each.outputs) < 1 << 17]
    assert len({each.op for each in small}) > 35
    for operation in small:
        if work_of(operation).flops > 1e6:
            continue
        model = timed_model(operation, "fp32", 1)
        session = ort.InferenceSession(model.SerializeToString(), settings)
        results = session.run(None, timed_feed(operation, "fp32"))
        assert tuple(each.shape for each in results) == operation.outputs, operation.key


def test_the_law_gives_what_was_measured_and_what_lies_between() -> None:
    """A machine of 10 GB/s, 1 TFLOP/s and 3 us a launch: it is found again from products of other sizes."""

    def truth(operation: Operation, width: int) -> float:
        work = work_of(operation)
        return 3.0 + max(work.flops / 1e6, width * (work.read + work.written) / 1e4)

    sizes = [(rows, inner, columns) for rows in (1, 64, 512) for inner in (64, 1024) for columns in (64, 1024)]
    records = [TimeRecord(product(*size), "fp16", truth(product(*size), 2)) for size in sizes]
    records += [TimeRecord(Operation("Relu", (Operand((n,)),), ((n,),)), "fp16", 3.0 + 4 * n / 1e4) for n in (1, 10**6)]
    law = measured_law(records, "it")
    assert all(law.microseconds(each.operation, "fp16") == each.microseconds for each in records)
    for size in ((128, 256, 256), (300, 500, 700), (2048, 1024, 1024)):
        told, right = law.microseconds(product(*size), "fp16"), truth(product(*size), 2)
        assert 0.8 < told / right < 1.25, size


def test_weights_that_left_the_cache_make_a_network_slower() -> None:
    mb = 1 << 20
    records = [TimeRecord(product(8, 64, size), "fp16", float(size), 0.0, 1.5 * size) for size in (64, 256, 1024)]
    law = measured_law(records, "it", 40 * mb)
    missed = [law.missed(weights * mb) for weights in (0, 6, 12, 24, 400)]
    assert missed == pytest.approx([0.0, 0.25, 0.5, 1.0, 1.0])
    for size in (64, 256, 512):
        known = law.microseconds(product(8, 64, size), "fp16")
        told = [law.microseconds(product(8, 64, size), "fp16", each) for each in missed]
        assert told == pytest.approx([known, 1.125 * known, 1.25 * known, 1.5 * known, 1.5 * known])
    assert measured_law(records, "it").missed(400 * mb) == 0.0  # a cache of unknown size


def test_behind_a_load_the_same_is_computed_and_the_load_comes_between() -> None:
    import onnxruntime as ort

    operation, settings = product(4, 8, 4096), ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert reads_weights(operation) and not reads_weights(product(4, 8, 8))
    right = timed_feed(operation, "fp32")["x0"]
    for between in (False, True):
        load = load_for(1 << 12, "fp32", between=between)
        model = timed_model(operation, "fp32", 3, load)
        ops = [node.op_type for node in model.graph.node]
        assert ops.count("MatMul") == 3 and ops.count("Relu") == (3 if between else 6)
        session = ort.InferenceSession(model.SerializeToString(), settings)
        weight = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == "x1"))
        names = [value.name for value in session.get_outputs()]
        results = dict(zip(names, session.run(None, timed_feed(operation, "fp32", load)), strict=True))
        for copy in range(3):
            np.testing.assert_allclose(results[f"y{copy}_0"], right @ weight, rtol=1e-4, atol=1e-5)
        alone = load_for(1 << 12, "fp32", between=between, alone=True)
        empty = timed_model(operation, "fp32", 3, alone)
        assert [node.op_type for node in empty.graph.node] == [op for op in ops if op != "MatMul"]
        session = ort.InferenceSession(empty.SerializeToString(), settings)
        assert len(session.run(None, timed_feed(operation, "fp32", alone))) == (3 if between else 6)


def test_a_gpu_is_timed_beyond_its_load() -> None:
    clock = replace(clock_named("ort-cpu", 0), cache=1 << 12)
    done = time_operation(clock, product(4, 8, 4096), "fp32")
    assert 0 < done.milliseconds <= done.cold_ms
    assert time_operation(clock, LAUNCH, "fp32").cold_ms == 0.0


def test_a_roofline_follows_the_data_sheet() -> None:
    law = roofline(PEAKS["t4"])
    assert not law.is_measured and "T4" in law.source
    large = product(4096, 4096, 4096)
    assert 7 < law.microseconds(large, "fp32") / law.microseconds(large, "fp16") < 9  # 65 against 8.1 TFLOP/s
    assert law.microseconds(large, "tf32") == law.microseconds(large, "fp32")  # it has none


def test_the_casts_of_a_decision_are_those_of_its_model() -> None:
    sites = Sites(load(encoder().model))
    nodes = [site.node for site in sites.free]
    rng = np.random.default_rng(3)
    for share in (0.0, 0.5):
        keep = frozenset(node for node in nodes if rng.random() < share)
        decision = Assignment.all_narrow(sites, keep)
        own = sum(site.op == "Cast" for site in sites.all)
        kernels = list(kernels_of(decision, {}, ""))
        assert sum(kernel.operation.op == "Cast" for kernel in kernels) - own == casts_of(decision), share


def test_nodes_that_one_kernel_stands_for_are_one() -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 16)), "b": np.zeros(16), "half": np.array(0.5)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "b"], ["s"], "sum"),
        helper.make_node("Sigmoid", ["s"], ["g"], "gate"),
        helper.make_node("Mul", ["s", "g"], ["m"], "swish"),
        helper.make_node("Reshape", ["m", "shape"], ["r"], "flat"),
        helper.make_node("Mul", ["r", "half"], ["y"], "halved"),
    ]
    values = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    values.append(numpy_helper.from_array(np.array([64], np.int64), "shape"))
    graph = helper.make_graph(
        nodes,
        "pairs",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])],
        values,
    )
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    sites = Sites(load(model))
    wide = [each.operation.op for each in kernels_of(Assignment(sites, {}, Format.FP32), {})]
    assert wide == ["Gemm", "QuickGelu", "Mul"]
    narrow = list(kernels_of(Assignment.all_narrow(sites), {}))
    assert [each.operation.op for each in narrow] == ["Cast", "Gemm", "QuickGelu", "Mul", "Cast"]
    told = latency_of(Assignment.all_narrow(sites), {}, roofline(PEAKS["h100"]))
    assert told.milliseconds == pytest.approx(sum(told.by_node.values())) and "swish" in told.by_node


def test_what_is_known_before_the_first_run_joins_kernels() -> None:
    """A weight that is transposed in the graph, and scores whose scale follows from a fixed shape, as in attention."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["wt"], "turned", perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["p"], "product"),
        helper.make_node("Add", ["b", "p"], ["q"], "biased"),
        helper.make_node("Shape", ["x"], ["sizes"], "sizes"),
        helper.make_node("Gather", ["sizes", "last"], ["size"], "size"),
        helper.make_node("Cast", ["size"], ["width"], "width", to=TensorProto.FLOAT),
        helper.make_node("Sqrt", ["width"], ["scale"], "scale"),
        helper.make_node("Mul", ["q", "scale"], ["scaled"], "scaled"),
        helper.make_node("Transpose", ["q"], ["k"], "keys", perm=[0, 2, 1]),
        helper.make_node("Mul", ["k", "scale"], ["scaled_keys"], "scaled_keys"),
        helper.make_node("MatMul", ["scaled", "scaled_keys"], ["y"], "scores"),
    ]
    weights = {"w": np.ones((8, 8), np.float32), "b": np.zeros(8, np.float32), "last": np.array(2, np.int64)}
    graph = helper.make_graph(
        nodes,
        "known",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    sites = Sites(load(model))
    wide = [each.operation.op for each in kernels_of(Assignment(sites, {}, Format.FP32), {})]
    assert wide == ["Gemm", "Transpose", "FusedMatMul"]
    narrow = [each.operation.op for each in kernels_of(Assignment.all_narrow(sites), {})]
    assert "Sqrt" in narrow and narrow.count("Gemm") == 1  # the CPU has no square root of FP16 numbers
