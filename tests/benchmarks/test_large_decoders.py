"""Decoders of any size: what the generator writes is what it says, and halfwise keeps its one embedding one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

from benchmarks.fresh_processes import Measured, measured, medians
from benchmarks.large import growth, row, time_told
from benchmarks.zoo.decoder import Sizes, feeds, write_decoder
from halfwise.emulation.emulate import Emulator
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites as ModelSites
from halfwise.precision.typed_onnx import typed_proto, write_typed
from halfwise.repair import repaired
from halfwise.repair.norm_operator import NormOperator
from halfwise.repair.rescale import RESCALE
from halfwise.verbs.fix.fix import fix
from tests.support.repairing import ranges_of

TINY = Sizes(layers=2, width=64, heads=4, shared=2, inner=128, vocabulary=100)


def _run(path: Path, feed: dict[str, Any]) -> dict[str, NDArray[Any]]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


@pytest.mark.parametrize("billions", [0.1, 0.24, 0.71, 1.5, 3.0, 7.0])
def test_a_size_is_about_what_was_asked_for(billions: float) -> None:
    sizes = Sizes.of(billions)
    assert sizes.parameters / 1e9 == pytest.approx(billions, rel=0.05)
    assert sizes.width % sizes.heads == 0 == sizes.heads % sizes.shared


def test_steps_and_operators_say_the_same(tmp_path: Path) -> None:
    (feed,) = feeds(TINY, count=1, tokens=5)
    steps = _run(write_decoder(tmp_path / "steps", TINY), feed)
    operators = _run(write_decoder(tmp_path / "operators", TINY, operators=True), feed)
    assert all(np.allclose(steps[name], operators[name], atol=1e-4) for name in steps)


def test_a_step_behind_the_cache_is_the_prefill_s_last_token(tmp_path: Path) -> None:
    path = write_decoder(tmp_path, TINY)
    (feed,) = feeds(TINY, count=1, tokens=5)
    whole = _run(path, feed)
    first = {**feed, "attention_mask": np.ones((1, 4), np.int64)}
    first |= {name: feed[name][:, :4] for name in ("input_ids", "position_ids")}
    cache = {
        name.replace("present", "past_key_values"): a for name, a in _run(path, first).items() if "present" in name
    }
    last = {**feed, **cache, **{name: feed[name][:, 4:] for name in ("input_ids", "position_ids")}}
    assert np.allclose(_run(path, last)["logits"][:, 0], whole["logits"][:, 4], atol=1e-4)


def test_what_is_planted_is_there(tmp_path: Path) -> None:
    path = write_decoder(tmp_path, TINY, planted=("massive", "tiny", "mask"))
    proto = onnx.load(path)
    stream = next(node.input[0] for node in reversed(proto.graph.node) if node.op_type == "Pow")
    proto.graph.output.append(onnx.helper.make_tensor_value_info(stream, onnx.TensorProto.FLOAT, None))
    onnx.save(proto, tmp_path / "watched.onnx")
    (feed,) = feeds(TINY, count=1, tokens=5)
    found = np.abs(_run(tmp_path / "watched.onnx", feed)[stream])
    assert found[0, 0].max() > 65504 > found[0, 1:].max()
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    values = np.abs(weights["layers.1.attention.v"])
    assert values[:, :2].max() < 2.0**-24 < values[:, 2:].max()
    assert min(array.min() for array in weights.values() if array.dtype == np.float32) < -1e38


@pytest.mark.parametrize("stored", ["fp32", "fp16"])
def test_a_tied_embedding_is_stored_once_in_the_result(tmp_path: Path, stored: str) -> None:
    from halfwise.model.fp32_model import fp32_model

    sites = ModelSites(fp32_model(load(write_decoder(tmp_path / "given", TINY, stored=stored))))
    (tmp_path / "out").mkdir()
    write_typed(Assignment.all_narrow(sites), tmp_path / "out" / "typed.onnx")
    typed = onnx.load(tmp_path / "out" / "typed.onnx")
    tables = [tensor for tensor in typed.graph.initializer if tuple(tensor.dims) == (TINY.vocabulary, TINY.width)]
    assert [tensor.data_type for tensor in tables] == [onnx.TensorProto.FLOAT16]


@pytest.mark.parametrize("target", ["onnx", "ort-cuda", "trt-10.9", "trt-11.0"])
def test_every_target_stores_it_once(tmp_path: Path, target: str) -> None:
    result = fix(write_decoder(tmp_path / "given", TINY), feeds(TINY, tokens=6), out=tmp_path / "out", target=target)
    assert result.typed is not None and result.met
    typed = onnx.load(result.typed.path)
    assert sum(sorted(tensor.dims) == [TINY.width, TINY.vocabulary] for tensor in typed.graph.initializer) == 1


def test_branches_that_read_it_store_it_once(tmp_path: Path) -> None:
    """As a decoder whose prefill and step are the branches of one If."""

    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Gather", ["table", "ids"], [f"{name}.rows"]),
            helper.make_node(op, [f"{name}.rows"], [f"{name}.inner"]),
            helper.make_node("Transpose", ["table"], [f"{name}.turned"], perm=[1, 0]),
            helper.make_node("MatMul", [f"{name}.inner", f"{name}.turned"], [f"{name}.logits"]),
        ]
        given = helper.make_tensor_value_info(f"{name}.logits", onnx.TensorProto.FLOAT, [8, 300])
        return helper.make_graph(nodes, name, [], [given])

    table = np.random.default_rng(0).standard_normal((300, 64), np.float32)
    graph = helper.make_graph(
        [helper.make_node("If", ["step"], ["logits"], then_branch=branch("a", "Tanh"), else_branch=branch("b", "Erf"))],
        "merged",
        [
            helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [8]),
            helper.make_tensor_value_info("step", onnx.TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [8, 300])],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    rng = np.random.default_rng(1)
    samples = [{"ids": rng.integers(0, 300, 8), "step": np.array(index % 2 == 0)} for index in range(4)]
    result = fix(proto, samples, out=tmp_path / "out")
    assert result.typed is not None and result.met
    typed = onnx.load(result.typed.path)
    assert [tensor.data_type for tensor in typed.graph.initializer] == [onnx.TensorProto.FLOAT16]
    (choice,) = [node for node in typed.graph.node if node.op_type == "If"]
    assert not any(attribute.g.initializer for attribute in choice.attribute)


def test_a_tied_embedding_whose_stream_is_rescaled_is_stored_once(tmp_path: Path) -> None:
    sizes = Sizes(layers=2, width=128, heads=2, shared=1, inner=384, vocabulary=3000)
    model, inputs = load(write_decoder(tmp_path, sizes, planted=("massive",))), feeds(sizes, count=2, tokens=6)
    rule = NormOperator()
    norms = [(rule, repair) for repair in rule.find(model, ranges_of(model, inputs))]
    between, _ = repaired(model, norms)
    scales = [(RESCALE, repair) for repair in RESCALE.find(between, ranges_of(between, inputs))]
    after, done = repaired(model, [*norms, *scales])
    assert scales and len(done) == len(norms) + len(scales)
    assert max(ranges_of(after, inputs).high.values()) < 65504 < max(ranges_of(model, inputs).high.values())
    run = Emulator().session
    before, now = (run(Assignment(ModelSites(each), {})).run(inputs[0]) for each in (between, after))
    assert all(np.array_equal(before[name], now[name]) for name in before)
    typed = typed_proto(Assignment.all_narrow(ModelSites(after)))
    assert sum(tensor.dims[:1] == [3000] for tensor in typed.graph.initializer) == 1


def test_a_planted_stream_needs_no_fp32_node_and_few_runs(tmp_path: Path) -> None:
    """Its norms have to be others before it can be rescaled: tried one by one, neither is enough."""
    sizes = Sizes(layers=4, width=320, heads=5, shared=5, inner=896, vocabulary=300)
    model = write_decoder(tmp_path, sizes, planted=("massive",))
    result = fix(model, feeds(sizes, tokens=8))
    assert result.met and result.fp32_nodes == ()
    assert {repair.rule for repair in result.plan.repairs} == {"HW401", "HW402"}
    assert result.cost.model_runs < 40


def test_a_row_tells_what_was_measured() -> None:
    each = Measured("fix", 12.34, 20.0, 1.25, 0.5, 1.5, {"runs": 14.0, "nodes": 3, "says": True})
    assert row(0.24, each, 2.8) == ("0.24", "fix", "12.3", "20.0", "1.25", "0.50", "1.50", "2.80", "14.0", "3", "met")
    late = Measured("scan", 60.0, 1.0, 0.1, 0.0, 0.2, problem="stopped after 60 s")
    assert row(0.24, late, None)[-4:] == ("", "", "", "stopped after 60 s")


def test_the_time_that_was_told_stands_beside_the_truth() -> None:
    """As it is shown at a moment: it goes down behind what was told last."""
    said = [[1.0, None], [20.0, [20.0, 90.0, 0.5, True]], [60.0, [60.0, 180.0, 1.0, False]], [100.0, None]]
    fix = Measured("fix", 100.0, 1.0, 0.1, 0.1, 0.1, {"said": said})
    (told,) = time_told(0.24, {"fix": fix})
    pairs = ["10%: nothing, 90 s", "25%: at least 88 s, 75 s", "50%: at least 75 s, 50 s", "75%: about 3 min, 25 s"]
    assert told.partition("of 100 s: ")[2].split("; ") == pairs
    assert time_told(0.24, {"scan": fix}) == []


@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is asked of /proc")
def test_a_child_that_a_thread_started_is_measured() -> None:
    """As the one of `fix` which runs the model that was written."""
    child = "import time; held = bytes([1]) * 200_000_000; sum(range(3_000_000)); time.sleep(1)"
    code = f"""
import json, subprocess, sys, threading
thread = threading.Thread(target=lambda: subprocess.run([sys.executable, "-c", {child!r}]))
thread.start()
thread.join()
print(json.dumps({{}}))
"""
    found = measured("a process", [code], 60)
    assert not found.problem
    assert 0.2 < found.children < 0.3 and found.children < found.own
    assert found.cpu > measured("a process", ["print('{}')"], 60).cpu + 0.05


def test_growth_is_told_as_slopes() -> None:
    """Ten times the size: ten times as long, as much memory."""
    small, large = (Measured("fix", 2.0 * n, 3.0 * n, 0.5, 0.0, 1.0, {"runs": 8.0}) for n in (1, 10))
    found = growth([(0.1, {"fix": small}), (1.0, {"fix": large})], ["fix"])
    assert found == [("fix", "0.10", "1.00", "1.00", "1.00", "0.00", "8.0", "8.0")]


def test_of_several_rounds_the_medians_and_the_highest_peaks_are_told() -> None:
    rounds = [
        Measured("fix", seconds, cpu, own, 0.1, 2.0, {"runs": 8.0, "said": [seconds]})
        for seconds, cpu, own in ((3.0, 9.0, 0.5), (1.0, 4.0, 0.7), (2.0, 5.0, 0.6))
    ]
    found = medians(rounds)
    assert (found.seconds, found.cpu, found.own, found.told) == (2.0, 5.0, 0.7, {"runs": 8.0, "said": [2.0]})


def test_of_several_rounds_a_failure_is_told() -> None:
    rounds = [
        Measured("fix", 1.0, 1.0, 0.1, 0.1, 0.1, {"runs": 8.0}),
        Measured("fix", 9.0, 9.0, 0.1, 0.1, 0.1, problem="no"),
    ]
    assert medians(rounds).problem == "no"
