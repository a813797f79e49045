"""Every profile speaks the opset of the model, whichever it is: valid nodes, and the answer that they had."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from halfwise.core.errors import InputError
from halfwise.emulation.emulate import emulate
from halfwise.emulation.ort import Session
from halfwise.emulation.profiles import PROFILES
from halfwise.emulation.stamp import newest_opset
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.models.build import value
from tests.models.old_operators import OLD, old_model, versions


@pytest.mark.parametrize("name", OLD)
def test_each_opset_is_spoken(name: str) -> None:
    tried = 0
    for opset in versions(name, newest_opset()):
        made = old_model(name, opset)
        if made is None:
            continue
        proto, feed = made
        try:
            want = Session(proto).run(feed)["y"]
        except InputError:  # a form that the runtime does not have
            continue
        tried += 1
        proto.graph.output[0].CopyFrom(value("y", shape=want.shape))  # where inference does not know it
        narrow = Assignment.all_narrow(Sites(load(proto)))
        onnx.checker.check_model(typed_proto(narrow))
        spelled = set()
        for profile in PROFILES.values():
            emulated = emulate(narrow, profile)
            content = emulated.SerializeToString()
            if content in spelled:  # another profile says the same
                continue
            spelled.add(content)
            onnx.checker.check_model(emulated)
            got = Session(emulated).run(feed)["y"]
            assert got.shape == want.shape, (opset, profile.name)
            error = np.linalg.norm(got - want) / (np.linalg.norm(want) or 1.0)
            assert error < 4e-3, (opset, profile.name, error)
    assert tried
