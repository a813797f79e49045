"""Where a model whose nodes tell no modules is cut, and how its nodes are counted."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.core.english import say_all
from halfwise.core.notes import NoteKind
from halfwise.verbs.stages import stages
from tests.models.build import f32, model, node, value, weight
from tests.support.command_line import CommandLine
from tests.support.says import Says


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.delenv("COLUMNS", raising=False)
    return CommandLine(monkeypatch, capsys)


def test_without_modules_the_narrowest_places_near_equal_shares_are_cut(says: Says) -> None:
    """Three blocks of two branches each: one tensor passes between blocks, two within."""
    nodes = []
    for block in range(3):
        left, right, into, out = f"l{block}", f"r{block}", f"b{block}", f"b{block + 1}"
        nodes += [node("Relu", into, f"{left}a"), node("Sigmoid", into, f"{right}a")]
        nodes += [node("Tanh", f"{left}a", left), node("Sin", f"{right}a", right), node("Add", f"{left} {right}", out)]
    proto = model(nodes, [value("b0")], [value("b3")])
    result = stages(proto, [{"b0": f32(1, 2, 3, 4)}])
    assert [(stage.name, stage.nodes, stage.outputs) for stage in result.stages] == [
        ("to b1", 5, ("b1",)),
        ("to b2", 5, ("b2",)),
        ("to the outputs", 5, ("b3",)),
    ]
    says(say_all(result.notes))
    alone = stages(model([node("Relu", "x", "y")], [value("x")], [value("y")]), [{"x": f32(1, 2, 3, 4)}])
    assert [stage.name for stage in alone.stages] == ["to the outputs"]
    assert [note.kind for note in alone.notes] == [NoteKind.NOT_CUT]


def test_the_screen_counts_every_node_of_a_stage(halfwise_cli: CommandLine, tmp_path: Path) -> None:
    """A Reshape that is to stay in FP32 was among 0 nodes."""
    nodes = [node("Exp", "x", "a"), node("Reshape", "a shape", "y")]
    shape = weight("shape", np.array([2, 2], np.int64))
    onnx.save(model(nodes, [value("x")], [value("y", shape=(2, 2))], [shape]), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=f32(1, 2, 3, 12))
    ended = halfwise_cli("stages", tmp_path / "m.onnx", "--inputs", tmp_path / "x.npz", "--cut", "a")
    rows = [re.split(r" {2,}", line)[:2] for line in ended.out.splitlines()]
    assert ["to a", "1"] in rows and ["to the outputs", "1"] in rows
