"""Verbs that look for FP32 nodes, on models whose quantisers make whole steps of TF32's rounding, too: none are listed
that only avoid such steps, and what FP32 misses the tolerance by is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from halfwise.backends import BackendRun, backend_named
from halfwise.core.notes import NoteKind
from halfwise.verbs.bisect.run import bisect
from halfwise.verbs.doctor import doctor
from halfwise.verbs.stages import stages
from tests.models.build import model, node, value, weight
from tests.models.quantised import layers, quantised, samples
from tests.support.bisections import Fake, narrow_nodes
from tests.support.messages import only

WIDTH = 32


def stepping(step: float = 0.1) -> onnx.ModelProto:
    """Six layers whose quantisers are so coarse that one step more or less misses the tolerance."""
    return quantised(layers(6, WIDTH), step=step)


def overflowing() -> onnx.ModelProto:
    """The same behind a product that FP16 has no room for."""
    proto = stepping()
    names = ["loud", "back", "up", "down"]
    first = next(each for each in proto.graph.node if each.input[0] == "x")
    first.input[0] = "back"
    ends = node("Mul", "x up", "loud"), node("Mul", "loud down", "back")
    for place, each in enumerate(ends):
        proto.graph.node.insert(place, each)
    held = weight(names[2], np.float32(3e6)), weight(names[3], np.float32(1 / 3e6))
    proto.graph.initializer.extend(held)
    return proto


class _ALittle(Fake):
    """Off by 2% where anything is FP16."""

    def run(self, model: Path, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> BackendRun:
        done = super().run(model, feeds)
        outputs = tuple({name: array - 1.0 for name, array in each.items()} for each in done.outputs)
        if not narrow_nodes(model):
            return replace(done, outputs=backend_named("ort-cpu").run(model, feeds).outputs)
        return replace(done, outputs=tuple({n: a * np.float32(1.02) for n, a in each.items()} for each in outputs))


def test_stages_list_no_nodes_that_only_avoid_steps() -> None:
    result = stages(stepping(), samples(WIDTH), cut=["d3"])
    first = result.stages[0]
    assert (first.finding, first.culprits) == ("wrong by itself", ())
    assert only(result.notes, NoteKind.QUANTISERS_STEP).values["names"] == ["to d3"]


def test_stages_list_nodes_that_overflow_beside_steps() -> None:
    result = stages(overflowing(), samples(WIDTH), cut=["d3"])
    assert {culprit.name for culprit in result.stages[0].culprits} & {"n_loud", "n_back"}
    assert len(result.stages[0].culprits) <= 2


def test_a_bisection_says_that_fp32_takes_the_steps_too(tmp_path: Path) -> None:
    result = bisect(stepping(), _ALittle(bool), samples(WIDTH), out=tmp_path, builds=4)
    assert only(result.notes, NoteKind.QUANTISERS_MOVE).values["ratio"] > 1.0


def test_a_bisection_of_fine_quantisers_says_nothing_of_them(tmp_path: Path) -> None:
    result = bisect(quantised(layers(2), step=0.002), Fake(bool), samples(), out=tmp_path, builds=4)
    assert NoteKind.QUANTISERS_MOVE not in {note.kind for note in result.notes}


def in_eight_bits() -> onnx.ModelProto:
    """A product with a 4-bit weight whose kernel on a CPU multiplies in INT8."""
    rng = np.random.default_rng(0)
    packed = helper.make_tensor(
        "b", TensorProto.UINT8, (16, 2, 16), rng.integers(0, 256, 512, np.uint8).tobytes(), True
    )
    sizes = {"K": 64, "N": 16, "bits": 4, "block_size": 32, "accuracy_level": 4}
    product = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], "product", domain="com.microsoft", **sizes)
    held = [packed, weight("s", np.full(32, 0.1, np.float32))]
    return model([product], [value("x", shape=(4, 64))], [value("y", shape=(4, 16))], held, opset=21, ir_version=10)


def test_a_bisection_names_the_kernel_that_multiplies_in_int8() -> None:
    """FP32 is wrong on the CPU, and not for a defect, for TF32 or for the inputs."""
    result = bisect(in_eight_bits(), "ort-cpu", samples(64), tolerance="rel_l2<=1e-4")
    assert result.ending == "control"
    assert only(result.notes, NoteKind.DELIVERED_MISSES_IN_FP32).values["why"].kind is NoteKind.INT8_PRODUCTS


def test_doctor_names_the_nodes_of_an_error_beyond_the_steps(tmp_path: Path) -> None:
    """FP32 misses the tolerance once its quantisers' inputs move; what FP16 misses it by is 100 times as much."""
    proto = stepping()
    last = proto.graph.output[0].name
    names = ["apart", "near", "far"]
    for each in (node("Add", f"{last} far", "apart"), node("Sub", "apart far", "near")):
        proto.graph.node.append(each)
    proto.graph.initializer.append(weight(names[2], np.float32(3000.0)))
    proto.graph.output[0].name = "near"
    onnx.save(proto, tmp_path / "model.onnx")
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    for index, feed in enumerate(samples(WIDTH)):
        np.savez(inputs / f"{index}.npz", **feed)
    found = {finding.rule: finding for finding in doctor([tmp_path / "model.onnx", inputs]).findings}
    assert "HW620" not in found
    assert set(found["HW612"].numbers["nodes"]) & {"n_apart", "n_near"}
