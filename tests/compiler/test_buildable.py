"""Where the target's own compiler does not build a typed model, the nodes are found with which it does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from halfwise import fix
from halfwise.compiler.audit import Audit
from halfwise.compiler.build import BuildError, Refusal
from halfwise.compiler.buildable import buildable
from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.model.model import load
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from tests.models.numbered_graph import NumberedGraph
from tests.support.deployed import needs_rtx
from tests.support.messages import kinds, only

NAMES = tuple(f"n{i}" for i in range(9))


def chain() -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("t0", f"t{len(NAMES)}"))
    nodes = [helper.make_node("Tanh", [f"t{i}"], [f"t{i + 1}"], name) for i, name in enumerate(NAMES)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 17)])


class Compiler:
    """It builds what has these nodes in FP32."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted, self.builds = set(wanted), 0

    def __call__(self, decision: Decision) -> Audit:
        self.builds += 1
        if not self.wanted <= set(decision.wanted):
            raise BuildError("no", failure="crashed", log_path=Path("log"))
        return cast(Audit, object())


@pytest.mark.parametrize("wanted", [("n0",), ("n8",), ("n2", "n6"), ("n3", "n4", "n5")])
def test_the_nodes_that_it_takes_are_found(wanted: tuple[str, ...]) -> None:
    compiler = Compiler(wanted)
    decision = Decision(Sites(load(chain())), {}, Format.FP32)
    found = buildable(decision, compiler, "it crashed", ())
    assert found is not None
    assert set(found[0].decision.wanted) == {node.name for node in found[0].added} == set(wanted)
    assert all(kinds(node.because) == [NoteKind.KEEPS_BUILDABLE] for node in found[0].added)
    assert set(only(found[0].notes, NoteKind.BUILT_WITH_MORE).values["nodes"]) == set(wanted)


class Naming(Compiler):
    """It names the first node that it refuses, or another."""

    def __init__(self, wanted: Sequence[str], blames: str = "") -> None:
        super().__init__(wanted)
        self.blames = blames

    def refusal(self, decision: Decision) -> tuple[Refusal, ...]:
        left = sorted(self.wanted - set(decision.wanted))
        return tuple(Refusal(self.blames or name, "Tanh", "no") for name in left[:1])

    def __call__(self, decision: Decision) -> Audit:
        try:
            return super().__call__(decision)
        except BuildError as error:
            error.refusals = self.refusal(decision)
            raise


@pytest.mark.parametrize("wanted", [("n4",), ("n0", "n2", "n5", "n8")])
def test_a_compiler_that_names_what_it_refuses_is_asked_no_more_than_that(wanted: tuple[str, ...]) -> None:
    compiler = Naming(wanted)
    decision = Decision(Sites(load(chain())), {}, Format.FP32)
    found = buildable(decision, compiler, "refused", (), {wanted[0]})
    assert found is not None and set(found[0].decision.wanted) == set(wanted)
    assert compiler.builds == len(wanted)


def test_where_it_names_another_node_they_are_sought_by_halves() -> None:
    compiler = Naming(("n2", "n6"), blames="n4")
    found = buildable(Decision(Sites(load(chain())), {}, Format.FP32), compiler, "refused", (), {"n4"})
    assert found is not None and set(found[0].decision.wanted) == {"n2", "n6"}


def test_what_fp32_does_not_mend_takes_one_build() -> None:
    compiler = Compiler(["none"])
    assert buildable(Decision(Sites(load(chain())), {}, Format.FP32), compiler, "it crashed", ()) is None
    assert compiler.builds == 1


def test_nodes_that_the_user_forces_stay() -> None:
    compiler = Compiler(["n4"])
    assert buildable(Decision(Sites(load(chain())), {}, Format.FP32), compiler, "it crashed", ("n4",)) is None


def crashing() -> onnx.ModelProto:
    """Masked scores are chosen behind their sum: TensorRT-RTX 1.7 builds that in FP32, and crashes on it in FP16."""
    g = NumberedGraph(17)
    q, k, v = (g.input(name, [2, 4, 48, 32]) for name in "qkv")
    seen = g.op("Cast", [g.input("mask", [2, 1, 1, 48])], "", to=TensorProto.BOOL)
    triangle = g.op("Cast", [g.number(np.tril(np.ones((48, 48))))], "", to=TensorProto.BOOL)
    mask = g.op("Where", [g.op("And", [triangle, seen], ""), g.number(0.0), g.number(-32768.0)], "")
    scores = g.op("MatMul", [q, g.op("Transpose", [k], "", perm=[0, 1, 3, 2])], "")
    below = g.op("Less", [mask, g.number(-16384.0)], "")
    masked = g.op("Where", [below, mask, g.op("Add", [scores, mask], "")], "")
    g.output(g.op("MatMul", [g.op("Softmax", [masked], "", axis=-1), v], ""), "y", [2, 4, 48, 32])
    return g.model()


def feeds() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    mask = (np.arange(48) < 40).astype(np.float32) * np.ones((2, 1, 1, 1), np.float32)
    return [{**{n: rng.standard_normal((2, 4, 48, 32)).astype(np.float32) for n in "qkv"}, "mask": mask} for _ in "ab"]


@needs_rtx
@pytest.mark.parametrize("target", ["rtx-1.7", "trt-10.9"])
def test_a_crash_of_the_targets_own_compiler_is_mended(target: str, tmp_path: Path) -> None:
    """That another release's compiler crashes says nothing."""
    result = fix(crashing(), feeds(), target=target, out=tmp_path)
    assert result.good
    assert bool(result.fp32_nodes) == (target == "rtx-1.7")
    told = NoteKind.BUILT_WITH_MORE if target == "rtx-1.7" else NoteKind.NOT_PROVEN
    assert "crashed" in only(result.notes, told).values["error"]
