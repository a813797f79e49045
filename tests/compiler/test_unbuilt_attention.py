"""Of the Attention nodes that a compiler refuses, those of one form are found together."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import onnx
import pytest

from halfwise.compiler.audit import Audit
from halfwise.compiler.build import BuildError
from halfwise.compiler.unbuilt_attention import unbuilt_attention
from halfwise.core.formats import Format
from halfwise.model.model import load
from halfwise.precision.decision import Decision
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value

NAMES = ("n_a", "n_b", "n_c", "n_d")


def stack() -> onnx.ModelProto:
    """Four of two forms: every second one is causal."""
    read, nodes = "x", []
    for index, made in enumerate("abcd"):
        nodes.append(node("Attention", f"{read} {read} {read}", made, is_causal=index % 2))
        read = made
    return model(nodes, [value("x", shape=(1, 2, 8, 16))], [value("d", shape=None)], opset=23, ir_version=10)


class Compiler:
    """It refuses these operators."""

    def __init__(self, refused: Collection[str]) -> None:
        self.refused, self.builds = set(refused), 0

    def __call__(self, decision: Decision) -> Audit:
        self.builds += 1
        if self.refused & {site.name for site in decision.sites.all}:
            raise BuildError("no", failure="refused", log_path=__file__)  # type: ignore[arg-type]
        return cast(Audit, object())


@pytest.mark.parametrize("refused", [NAMES[::2], NAMES[1::2], NAMES])
def test_the_forms_that_it_refuses_are_found(refused: tuple[str, ...]) -> None:
    compiler = Compiler(refused)
    assert unbuilt_attention(Decision(Sites(load(stack())), {}, Format.FP32), compiler) == refused
    assert compiler.builds <= 4


def test_what_it_refuses_besides_takes_one_build() -> None:
    proto = stack()
    proto.graph.node.append(node("Tanh", "d", "y", name="other"))
    proto.graph.output[0].name = "y"
    compiler = Compiler(["other"])
    assert unbuilt_attention(Decision(Sites(load(proto)), {}, Format.FP32), compiler) == ()
    assert compiler.builds == 1


def test_a_node_in_fp32_is_so_in_all_its_steps() -> None:
    given = load(stack())
    seen = list[Decision]()

    def compiler(decision: Decision) -> Audit:
        seen.append(decision)
        return cast(Audit, object())

    unbuilt_attention(Decision(Sites(given), {given.node_by_name["n_b"]: Format.FP32}, Format.FP32), compiler)
    steps = {site.name for site in seen[0].sites.all if site.name.startswith("n_b/")}
    assert set(seen[0].wanted) == steps and steps
