"""A repair that mends one of several causes is taken: what others need stays in FP32."""

from __future__ import annotations

from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight
from tests.support.rescaled import normal, rows

_WIDTH = 8


def test_one_overflow_is_repaired_beside_one_that_no_rule_repairs() -> None:
    nodes = [
        node("MatMul", "x up", "loud"), node("Relu", "loud", "kept"), node("MatMul", "kept down", "one"),
        node("MatMul", "x up", "bent"), node("Softplus", "bent", "curve"), node("MatMul", "curve down", "other"),
        node("Add", "one other", "y"),
    ]  # fmt: skip
    up, down = (normal(seed, _WIDTH, _WIDTH, scale=scale) for seed, scale in ((1, 3e4), (2, 3e-4)))
    ends = [value("x", shape=(2, _WIDTH))], [value("y", shape=(2, _WIDTH))]
    proto = model(nodes, *ends, [weight("up", up), weight("down", down)])
    found = fix(proto, rows(6, 2, _WIDTH, scale=2.0))
    assert found.met and {*found.fp32_nodes} == {"n_bent", "n_curve", "n_other"}
