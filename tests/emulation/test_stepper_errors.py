"""What a node by itself cannot do is told with the model's own names."""

from __future__ import annotations

import numpy as np
import pytest

from halfwise.core.errors import InputError
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.models.build import model, node, value


def test_a_node_that_refuses_its_inputs_is_named() -> None:
    proto = model([node("MatMul", "left right", "y")], [value("left"), value("right")], [value("y", shape=None)])
    fp32 = Assignment(Sites(load(proto)), {})
    stepper = Stepper(Emulator())
    store = Store(stepper.emulator, fp32, {"left": np.ones(4, np.float32), "right": np.ones(3, np.float32)})
    with pytest.raises(InputError, match="node 'n_y' by itself") as caught:
        list(stepper.walk(store))
    assert "halfwise:" not in str(caught.value)


def test_inputs_left_out_at_the_end_are_not_written() -> None:
    proto = model([node("Dropout", "x - -", "d"), node("Relu", "d", "y")], [value("x")], [value("y")])
    written = typed_proto(Assignment.all_narrow(Sites(load(proto))))
    assert [len(each.input) for each in written.graph.node if each.op_type == "Dropout"] == [1]
