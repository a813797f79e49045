"""What nothing reads while a flag has one value may have any size then: the placeholder of a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from halfwise import fix
from halfwise.core.errors import InputError
from halfwise.model.model import load
from tests.models.build import graph, model, node, value, weight
from tests.support.rescaled import normal

_GIVEN = [value(name, shape=("n", "s", 4)) for name in ("x", "past")] + [value("cached", TensorProto.BOOL, [])]


def merged(*, also: str = "Identity x same", negated: bool = False) -> onnx.ModelProto:
    """With a cache the sum of both; `also` stands in front."""
    more = graph([node("Add", "x past", "sum")], [], [value("sum", shape=None)], name="more")
    first = graph([node("Neg", "x", "alone")], [], [value("alone", shape=None)], name="first")
    op, inputs, made = also.split()
    flag = [node("Not", "cached", "flag")] if negated else []
    branches = {"then_branch": more, "else_branch": first}
    chosen = node("If", "flag" if negated else "cached", "h", **branches)
    nodes = [node(op, inputs, made), *flag, chosen, node("MatMul", "h w", "y")]
    return model(nodes, _GIVEN, [value("y", shape=None)], [weight("w", normal(1, 4, 4))])


def feed(cached: bool, tokens: int = 3, held: int = 1) -> dict[str, Any]:
    past = normal(3, 1 if held == 1 else 2, held, 4)
    return {"x": normal(2, 2, tokens, 4), "past": past, "cached": np.array(cached)}


def test_a_placeholder_may_have_any_size_while_nothing_reads_it() -> None:
    found = fix(merged(), [feed(False), feed(True, held=3), feed(False, held=0), feed(False, 5)])
    assert found.met


@pytest.mark.parametrize(
    ("proto", "cached"),
    [
        (merged(), True),  # the branch that reads it
        (merged(also="ReduceSum past total"), False),  # read outside, too
        (merged(negated=True), False),  # of a flag that is computed, nobody knows the value
    ],
)
def test_what_may_be_read_has_to_fit(proto: onnx.ModelProto, cached: bool) -> None:
    with pytest.raises(InputError, match="'n' is 2"):
        fix(proto, [feed(cached)])


def test_inputs_say_what_leaves_them_unread() -> None:
    assert [each.unread for each in load(merged()).inputs] == [None, ("cached", False), None]
