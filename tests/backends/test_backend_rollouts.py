"""A rollout on a backend: ONNX Runtime's begin once, others once for every step, and the answers are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from halfwise.backends import BackendOptions, BackendRun
from halfwise.backends.backend import Feed, Traits
from halfwise.backends.child import run_in_child
from halfwise.backends.named import backend_named
from halfwise.backends.runner import run_on
from halfwise.core.notes import Note
from halfwise.model.inputs.rollout import Rollout
from tests.models.build import model, node, value, weight

STEPS, TEXTS, START = 5, 3, 0.5
ROLLOUT = Rollout(STEPS, (("grown", "past"),))


@dataclass
class StepByStep:
    """A backend of somebody else, which knows nothing of states."""

    name: str = "theirs"
    cautions: tuple[Note, ...] = ()
    traits: Traits = field(default_factory=Traits)
    calls: int = 0

    def run(self, model: Path, feeds: Sequence[Feed]) -> BackendRun:
        self.calls += 1
        return backend_named("ort-cpu").run(model, feeds)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that grows by one each step, and the sum of all that is in it."""
    nodes = [node("Concat", "past x", "grown", axis=0), node("ReduceSum", "grown zero", "sum", keepdims=0)]
    proto = model(nodes, [value("past", shape=["n"]), value("x", shape=[1])],
                  [value("grown", shape=["m"]), value("sum", shape=[])], [weight("zero", np.array([0]))])  # fmt: skip
    onnx.save(proto, tmp_path / "cache.onnx")
    return tmp_path / "cache.onnx"


def steps() -> list[dict[str, Any]]:
    """Each text begins with one number in the cache."""
    rng = np.random.default_rng(1)
    past = np.array([START], np.float32)
    return [{"past": past, "x": rng.integers(0, 9, 1).astype(np.float32)} for _ in range(STEPS * TEXTS)]


def check(run: BackendRun) -> None:
    given = np.array([step["x"][0] for step in steps()]).reshape(TEXTS, STEPS)
    np.testing.assert_array_equal([answer["sum"] for answer in run.outputs], (START + given.cumsum(1)).reshape(-1))
    for index, answer in enumerate(run.outputs):
        text, step = divmod(index, STEPS)
        np.testing.assert_array_equal(answer["grown"], [START, *given[text, : step + 1]])


def test_onnx_runtime_begins_once_for_all_steps(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    session = onnxruntime.InferenceSession

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal begun
        begun += [given] * (given[0] == str(cache))  # not what is asked of the runtime itself
        return session(*given, **named)

    monkeypatch.setattr(onnxruntime, "InferenceSession", counted)
    check(run_on(backend_named("ort-cpu"), cache, steps(), ROLLOUT))
    assert len(begun) == 1


def test_a_backend_of_somebody_else_runs_step_by_step(cache: Path) -> None:
    backend = StepByStep()
    check(run_on(backend, cache, steps(), ROLLOUT))
    assert backend.calls == STEPS  # all texts side by side


def test_a_child_hands_the_state_on_itself(cache: Path) -> None:
    serve = "halfwise.backends.runtime_session:serve"
    check(run_in_child(serve, "ort-cpu", cache, steps(), BackendOptions(time_limit_s=60), ROLLOUT))
