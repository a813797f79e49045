"""`fix --cost`: the fastest set that holds, by a machine's times; a data sheet where there are none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.optimum.graphs import Problem
from benchmarks.optimum.switched import Switched
from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.latency import latency_of
from halfwise.emulation.profiles import STRICT
from halfwise.emulation.profiles.machine import MachineDocument, Ran, read_machine, signed
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.timing.law import measured_law
from halfwise.emulation.timing.operation import Operand, Operation
from halfwise.emulation.timing.record import TimeRecord, TimesRecord
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.speed import Speed, time_table
from halfwise.search.tensor_statistics import tensor_statistics
from halfwise.verbs.fix.document import LatencyRecord
from halfwise.verbs.fix.fix import fix
from tests.support.messages import kinds
from tests.support.says import Says

SIZES = (64, 4096, 262144)


def chain() -> Problem:
    """An offset that is taken off again, between products: FP16 loses its low bits there."""
    rng = np.random.default_rng(5)
    weights = {name: (rng.standard_normal((8, 8)) / 3).astype(np.float32) for name in ("a", "b", "c")}
    weights["offset"] = np.float32(60.0)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"], "first"),
        helper.make_node("Tanh", ["p"], ["t"], "bent"),
        helper.make_node("Add", ["t", "offset"], ["s"], "up"),
        helper.make_node("Relu", ["s"], ["r"], "cut"),
        helper.make_node("Sub", ["r", "offset"], ["d"], "down"),
        helper.make_node("MatMul", ["d", "b"], ["q"], "second"),
        helper.make_node("Exp", ["q"], ["e"], "exp"),
        helper.make_node("MatMul", ["e", "c"], ["y"], "third"),
    ]
    shape: list[str | int | None] = ["n", 16, 8]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = tuple({"x": rng.standard_normal((1, 16, 8)).astype(np.float32)} for _ in range(8))
    return Problem("chain", onnx.shape_inference.infer_shapes(model), feeds, ())


def machine(path: Path, casts: float, wide: float) -> Path:
    """FP16 takes 2 us, FP32 so many times that, a cast so many microseconds; all grow slowly with size."""

    def pair(op: str, size: int, narrow_us: float, wide_us: float) -> list[TimeRecord]:
        operation = Operation(op, (Operand((size,)),), ((size,),))
        grown = 1 + size / 1e6
        return [TimeRecord(operation, "fp16", narrow_us * grown), TimeRecord(operation, "fp32", wide_us * grown)]

    rows = [row for size in SIZES for row in pair("Cast", size, casts, casts)]
    for op in ("Relu", "Tanh", "Exp", "Add", "Sub"):
        rows += [row for size in SIZES for row in pair(op, size, 2.0, 2.0 * wide)]
    for size in (8, 64):
        product = Operation("MatMul", (Operand((16, size)), Operand((size, size), fixed=True)), ((16, size),))
        rows += [TimeRecord(product, "fp16", 2.0), TimeRecord(product, "fp32", 2.0 * wide)]
    document = signed(MachineDocument(Ran("simulated"), "0", "2026-01-01", 1.0, (), TimesRecord("none", 0.0, rows)))
    path.write_text(json.dumps(document.to_json()), encoding="utf-8")
    return path


@pytest.mark.parametrize(("casts", "wide"), [(0.2, 3.0), (3.0, 1.2), (1.0, 0.8)])
def test_no_set_that_holds_is_faster(casts: float, wide: float, tmp_path: Path) -> None:
    """All 256 sets are tried. Cheap casts: few nodes. Dear ones: more in FP32 than the tolerance needs, or all."""
    posed, tolerance = chain(), 0.002
    path = machine(tmp_path / "machine.json", casts, wide)
    found = fix(posed.model, list(posed.feeds), tolerance=(f"rel_l2<={tolerance}",), cost=path, repairs=("none",))
    assert found.met and isinstance(found.latency, LatencyRecord) and found.latency.measured

    sites = Sites(load(posed.model))
    shapes = tensor_statistics(Stepper(Emulator(STRICT)), sites, posed.feeds[0]).shapes
    times = read_machine(path).times
    assert isinstance(times, TimesRecord)
    law, switched = measured_law(times.rows, ""), Switched(posed, sites)

    def milliseconds(keep: frozenset[str]) -> float:
        nodes = frozenset(site.node for site in sites.free if site.name in keep)
        return latency_of(Assignment.all_narrow(sites, nodes), shapes, law).milliseconds

    every = (1 << len(switched.names)) - 1
    holding = [narrow for narrow in range(every + 1) if switched.bound(narrow, tolerance) <= 1.0]
    best = min(
        milliseconds(frozenset(name for place, name in enumerate(switched.names) if not narrow >> place & 1))
        for narrow in holding
    )
    assert milliseconds(frozenset(found.fp32_nodes)) <= 1.03 * best
    assert found.latency.fixed_ms == pytest.approx(milliseconds(frozenset(found.fp32_nodes)), abs=2e-5)


def test_the_table_tells_what_the_kernels_tell(tmp_path: Path) -> None:
    posed = chain()
    times = read_machine(machine(tmp_path / "machine.json", 1.0, 2.0)).times
    assert isinstance(times, TimesRecord)
    sites, law = Sites(load(posed.model)), measured_law(times.rows, "")
    shapes = tensor_statistics(Stepper(Emulator(STRICT)), sites, posed.feeds[0]).shapes
    table, rng = time_table(Speed(law), sites, shapes, Format.FP32), np.random.default_rng(0)
    for _ in range(20):
        keep = frozenset(site.node for site in sites.free if rng.random() < 0.5)
        told = latency_of(Assignment.all_narrow(sites, keep), shapes, law).milliseconds
        assert table.microseconds(keep) == pytest.approx(1e3 * told)
    assert min(table.costs().values()) > 0


def test_what_is_slower_by_its_casts_alone_is_told_so() -> None:
    """No set of FP32 nodes is faster; inputs and outputs in FP16 are."""
    posed = chain()
    given: dict[str, Any] = {"tolerance": ("rel_l2<=0.5",), "target": "trt-10.9@t4"}
    told = fix(posed.model, list(posed.feeds), **given)
    assert told.fp32_nodes == ()
    assert {NoteKind.SLOWER_BY_CASTS, NoteKind.SLOWER_THAN_FP32} & set(kinds(told.notes)) == {NoteKind.SLOWER_BY_CASTS}
    latency = fix(posed.model, list(posed.feeds), io_types="fp16", **given).to_json()["latency"]
    assert latency["fixed_ms"] < latency["fp32_ms"]


def test_a_data_sheet_tells_times_and_chooses_only_where_asked(tmp_path: Path, says: Says) -> None:
    posed = chain()
    given: dict[str, Any] = {"tolerance": ("rel_l2<=0.002",), "repairs": ("none",)}
    plain = fix(posed.model, list(posed.feeds), target="trt-10.9", **given)
    told = fix(posed.model, list(posed.feeds), target="trt-10.9@t4", **given)
    assert told.fp32_nodes == plain.fp32_nodes and plain.to_json().get("latency") is None
    latency = told.to_json()["latency"]
    assert not latency["measured"] and "T4" in latency["source"] and {row["name"] for row in latency["nodes"]} > {"up"}
    assert latency["fixed_ms"] > latency["fp32_ms"] and NoteKind.SLOWER_THAN_FP32 in kinds(told.notes)
    fast = fix(posed.model, list(posed.feeds), target="trt-10.9@t4", cost="roofline", **given)
    assert NoteKind.SLOWER_THAN_FP32 not in kinds(fast.notes)
    assert NoteKind.SLOWER_THAN_FP32 not in kinds(fix(posed.model, list(posed.feeds), plan=told.plan).notes)
    with says.raises(InputError):
        fix(posed.model, list(posed.feeds), target="trt-10.9", cost="roofline", **given)
    unmeasured = tmp_path / "machine.json"
    empty = signed(MachineDocument(Ran("simulated"), "0", "2026-01-01", 1.0, ()))
    unmeasured.write_text(json.dumps(empty.to_json()), encoding="utf-8")
    with pytest.raises(InputError, match="holds no times"):
        fix(posed.model, list(posed.feeds), cost=unmeasured, **given)


@pytest.mark.parametrize(
    ("microseconds", "sizes"),
    [
        (math.nan, (4, 4)), (0.0, (4, 4)), (-3.0, (4, 4)), (math.inf, (4, 4)),
        (1.0, (-4, 4)), (1.0, (1 << 62,) * 30), (1.0, ()),
    ],
)  # fmt: skip
def test_times_that_no_kernel_takes(microseconds: float, sizes: tuple[int, ...], tmp_path: Path, says: Says) -> None:
    """Of a file that tells its own hash."""
    op = "MatMul" if sizes else "LSTM"
    row = TimeRecord(Operation(op, (Operand(sizes), Operand(sizes)), (sizes,)), "fp16", microseconds)
    document = MachineDocument(Ran("simulated"), "0", "2026-01-01", 1.0, (), TimesRecord("none", 0.0, (row,)))
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(signed(document).to_json()), encoding="utf-8")
    with says.raises(InputError):
        fix(chain().model, cost=path)


def test_a_machine_file_with_a_text_that_is_no_unicode(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    empty = MachineDocument(Ran("simulated"), "0", "2026-01-01", 1.0, ())
    path.write_text(json.dumps(empty.to_json() | {"more": "\ud800"}), encoding="utf-8")
    with pytest.raises(InputError, match="no Unicode"):
        read_machine(path)
