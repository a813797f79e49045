"""What is made of weights alone is made when it is read, wherever the file has it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from halfwise.emulation import emulate, streamed
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.late_constants import constants_late
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.emulation.streamed import StreamedSession
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.models.build import model, node, value, weight

LAYERS = 4
FEED = {"x": np.random.default_rng(7).standard_normal((3, 16)).astype(np.float32)}


def quantised() -> onnx.ModelProto:
    """Weights are dequantised before anything else, as ONNX Runtime's quantiser of weights writes it."""
    rng = np.random.default_rng(0)
    nodes = [node("DequantizeLinear", f"q{i} s", f"w{i}", axis=1) for i in range(LAYERS)]
    nodes += [node("MatMul", f"{f'p{i - 1}' if i else 'x'} w{i}", f"p{i}") for i in range(LAYERS)]
    held = [weight(f"q{i}", rng.integers(-127, 128, (16, 16)).astype(np.int8)) for i in range(LAYERS)]
    held.append(weight("s", np.full(16, 0.01, np.float32)))
    ends = [value("x", shape=(3, 16))], [value(f"p{LAYERS - 1}", shape=(3, 16))]
    return model(nodes, *ends, held, opset=21, ir_version=10)


def test_the_order_is_sound_and_late() -> None:
    """0 and 1 make constants, 1 of that of 0; nobody reads what 4 makes."""
    reads = [["a"], ["b", "c"], ["x"], ["y", "d"], ["a", "b"], [], ["z", "r", "b"]]
    makes = [["b"], ["d"], ["y"], ["z"], ["e"], ["r"], ["out"]]
    assert constants_late(reads, makes, {"a", "c"}) == [2, 0, 1, 3, 5, 6, 4]


def test_a_walk_holds_one_weight_at_a_time() -> None:
    sites, stepper = Sites(load(quantised())), Stepper(Emulator())
    made = [each.node.outputs[0] for each in sites.all if each.op == "DequantizeLinear"]
    store = Store(stepper.emulator, Assignment(sites, {}), FEED)
    held = [sum(each in store for each in made) for _ in stepper.walk(store)]
    assert len(held) == 2 * LAYERS and max(held) == 1


def test_segments_hold_one_weight_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    monkeypatch.setattr(emulate, "INLINE_ELEMENTS", 8)
    monkeypatch.setattr(streamed, "LARGE_BYTES", 1)
    session = Emulator().session(Assignment(Sites(load(quantised())), {}))
    assert isinstance(session, StreamedSession)
    held = []
    through = StreamedSession._through

    def seen(self: StreamedSession, segment: object, lanes: object, shared: dict[str, object], read: object) -> None:
        through(self, segment, lanes, shared, read)  # type: ignore[arg-type]
        held.append(len(shared))

    monkeypatch.setattr(StreamedSession, "_through", seen)
    streamed_answer = session.run(FEED)
    assert max(held) == 1
    monkeypatch.setattr(emulate, "LARGE_BYTES", 1 << 40)
    whole = Emulator().session(Assignment(Sites(load(quantised())), {})).run(FEED)
    assert all(np.allclose(streamed_answer[name], whole[name], rtol=1e-5) for name in whole)
