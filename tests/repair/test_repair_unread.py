"""What a repair leaves unread is no reader for the next one, and is found without a look at the whole graph."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir
import pytest

from halfwise.model.model import load
from halfwise.repair import Ranges, apply, repaired, rules_named
from tests.models.zoo import SHAPES, ZooModel, norm_log_head, transformer

MODELS = [transformer(6), norm_log_head(), SHAPES["if_with_norms"](), SHAPES["local_function"]()]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The looks at the whole graph."""
    seen, whole = list[int](), apply.RemoveUnusedNodesPass

    class Counted(whole):  # type: ignore[misc, valid-type]
        def call(self, model: ir.Model) -> object:
            seen.append(1)
            return super().call(model)

    monkeypatch.setattr(apply, "RemoveUnusedNodesPass", Counted)
    yield seen


@pytest.mark.parametrize("zoo", MODELS, ids=lambda zoo: zoo.name)
def test_all_at_once_is_one_after_the_other(zoo: ZooModel, passes: list[int]) -> None:
    """One after the other each model is cleaned as a whole."""
    given = load(zoo.model)
    values = [value.name or "" for node in given.nodes for value in node.outputs]
    ranges = Ranges(dict.fromkeys(values, 1e5), dict.fromkeys(values, 1e-9))
    wanted = [(rule, repair) for rule in rules_named(["all"]) for repair in rule.find(given, ranges)]
    model, done = repaired(given, wanted)
    assert len(passes) == 1 and len(done) > 0
    single, made = given, []
    for entry in wanted:
        single, one = repaired(single, [entry])
        made += one
    assert tuple(made) == done
    assert [(node.op_type, node.name) for node in single.nodes] == [(node.op_type, node.name) for node in model.nodes]
