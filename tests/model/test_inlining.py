"""Functions are put where they are called, under the library's names; what calls of calls would make is refused."""

from __future__ import annotations

import time

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from onnx_ir.passes.common import InlinePass

from halfwise.core import limits
from halfwise.core.errors import InputError
from halfwise.model.inlining import inline_functions
from halfwise.model.model import load, load_to_run
from tests.models.build import node, value
from tests.support.says import Says


def function(name: str, *body: onnx.NodeProto) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], body, imports)


def call(name: str, read: str, made: str) -> onnx.NodeProto:
    return helper.make_node(name, [read], [made], domain="own")


READS = helper.make_graph([node("Add", "a w", "inside")], "body", [], [onnx.ValueInfoProto(name="inside")])


def of_functions(nodes: list[onnx.NodeProto], *functions: onnx.FunctionProto) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)


def doubling(levels: int) -> onnx.ModelProto:
    """Each function calls the next one twice."""
    functions = [function(f"F{i}", call(f"F{i + 1}", "a", "m"), call(f"F{i + 1}", "m", "b")) for i in range(levels)]
    return of_functions([call("F0", "x", "y")], *functions, function(f"F{levels}", node("Exp", "a", "b")))


def chain(levels: int) -> onnx.ModelProto:
    functions = [function(f"F{i}", call(f"F{i + 1}", "a", "b")) for i in range(levels - 1)]
    return of_functions([call("F0", "x", "y")], *functions, function(f"F{levels - 1}", node("Exp", "a", "b")))


def row(calls: int) -> onnx.ModelProto:
    nodes = [call("F", f"t{i}" if i else "x", f"t{i + 1}" if i + 1 < calls else "y") for i in range(calls)]
    return of_functions(nodes, function("F", node("Exp", "a", "m"), node("Log", "m", "b")))


def test_calls_that_double_are_counted_before_they_are_made(says: Says) -> None:
    assert len(load(doubling(10)).nodes) == 1 << 10
    with says.raises(InputError):
        load(doubling(40))


def test_functions_that_nothing_calls_are_not_made() -> None:
    proto = doubling(40)
    proto.graph.node[0].CopyFrom(node("Exp", "x", "y"))
    assert len(load(proto).nodes) == 1


def test_levels_of_calls(says: Says) -> None:
    assert len(load(chain(limits.DEEPEST_FUNCTIONS)).nodes) == 1
    with says.raises(InputError):
        load(chain(limits.DEEPEST_FUNCTIONS + 1))


def branches(levels: int) -> onnx.ModelProto:
    """Each function calls the next one in a branch."""

    made = [onnx.ValueInfoProto(name="m")]
    which = node("Constant", "", "c", value=numpy_helper.from_array(np.array(True)))

    def branch(held: onnx.NodeProto) -> list[onnx.NodeProto]:
        body, other = (helper.make_graph([each], "body", [], made) for each in (held, node("Neg", "a", "m")))
        return [which, node("If", "c", "b", then_branch=body, else_branch=other)]

    functions = [function(f"F{i}", *branch(call(f"F{i + 1}", "a", "m"))) for i in range(levels)]
    return of_functions([call("F0", "x", "y")], *functions, function(f"F{levels}", node("Exp", "a", "b")))


def test_bodies_in_one_another(says: Says) -> None:
    model = load(branches(limits.DEEPEST_BODIES))
    assert ir.from_proto(ir.to_proto(model.ir)).graph
    with says.raises(InputError):
        load(branches(limits.DEEPEST_BODIES + 1))


def test_names_that_calls_repeat(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    proto = row(10)
    read = sum(
        len(node.name) + sum(map(len, node.output)) for node in (*proto.graph.node, *list(proto.functions[0].node) * 10)
    )
    monkeypatch.setattr(limits, "MOST_CHARACTERS", read)
    assert len(load(proto).nodes) == 20
    monkeypatch.setattr(limits, "MOST_CHARACTERS", read - 1)
    with says.raises(InputError):
        load(proto)


def test_functions_that_call_one_another_in_a_circle(says: Says) -> None:
    with says.raises(InputError):
        load(
            of_functions([call("F", "x", "y")], function("F", call("G", "a", "b")), function("G", call("F", "a", "b")))
        )


@pytest.mark.parametrize(
    ("nodes", "body"),
    [
        ([call("F", "x", "y")], [node("Exp", "a", "c")]),
        ([call("F", "x", "y")], [node("Add", "a w", "b")]),
        ([call("F", "x", "y")], [node("If", "a", "b", then_branch=READS, else_branch=READS)]),
        ([helper.make_node("F", ["x", "x"], ["y"], "n", domain="own")], [node("Exp", "a", "b")]),
        ([helper.make_node("F", ["x"], ["y", "z"], "n", domain="own")], [node("Exp", "a", "b")]),
    ],
)
def test_a_function_and_its_calls_fit(nodes: list[onnx.NodeProto], body: list[onnx.NodeProto], says: Says) -> None:
    proto = of_functions(nodes, function("F", *body))
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(1), "w"))
    with says.raises(InputError):
        load(proto)


def test_names_are_those_of_the_library() -> None:
    """With names that are taken, none at all, and such as the library makes, also in a body."""
    inner = helper.make_graph([node("Exp", "a", "t"), node("Log", "t", "z_2")], "body", [], [value("z_2")])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["c"], ["m"], then_branch=inner, else_branch=inner),
        helper.make_node("Neg", ["m"], ["m_2"], name="same"),
        helper.make_node("Abs", ["m_2"], ["b"], name="same"),
    ]
    twice = function("G", call("F", "a", "t"), call("F", "t", "b"))
    outer = [call("G", "x", "m"), call("F", "m", "t_3"), call("G", "t_3", "y")]
    proto = of_functions(outer, function("F", *nodes), twice)
    own, known = ir.from_proto(proto), ir.from_proto(proto)
    inline_functions(own)
    InlinePass()(known)
    assert ir.to_proto(own).graph == ir.to_proto(known).graph and len(own.graph) == 20


def test_each_call_takes_as_long_as_the_first() -> None:
    def seconds(calls: int) -> float:
        model = ir.from_proto(row(calls))
        begun = time.process_time()
        inline_functions(model)
        return time.process_time() - begun

    assert seconds(4000) < 24 * min(seconds(500) for _ in range(3))


def test_calls_of_what_nobody_has_are_refused_before_they_are_put_in_place(
    monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    """2^17 of them took half a minute to be read."""
    monkeypatch.setattr("halfwise.model.model.normalise", lambda _: pytest.fail("it is read"))
    proto = doubling(17)
    del proto.functions[-1]
    with says.raises(InputError):
        load_to_run(proto)


def test_what_is_not_called_need_not_be_known() -> None:
    proto = of_functions([node("Exp", "x", "y")], function("F", call("Odd", "a", "b")))
    assert [each.op_type for each in load_to_run(proto).nodes] == ["Exp"]
    body = helper.make_graph([call("Odd", "x", "inside")], "body", [], [onnx.ValueInfoProto(name="inside")])
    proto = of_functions([node("If", "c", "y", then_branch=body, else_branch=body)])
    with pytest.raises(InputError, match="no operator Odd of own"):
        load_to_run(proto)
