"""Compares any two runners output by output: a model, a typed model under a profile, or saved outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from halfwise.emulate import Emulator, carry_feeds
from halfwise.errors import InputError
from halfwise.metrics import Metrics, OutputMetric, compare, is_float, worst
from halfwise.model import Model
from halfwise.precision import Assignment
from halfwise.profiles import STRICT, Profile
from halfwise.sites import Sites
from halfwise.tolerance import Tolerance, Verdict

__all__ = ["EmulatedRunner", "Runner", "SavedOutputs", "Verification", "verify"]

Array = NDArray[Any]
Feed = Mapping[str, Array]


class Runner(Protocol):
    """Something that answers a sample with outputs by name."""

    def run(self, index: int, feed: Feed) -> dict[str, Array]: ...


class EmulatedRunner:
    """A model as it stands, its FP16 and BF16 tensors rounded honestly under a profile."""

    def __init__(self, model: Model, profile: Profile = STRICT) -> None:
        self._types = {spec.name: spec.dtype for spec in model.inputs}
        self._session = Emulator(profile).session(Assignment(Sites(model), {}))

    def run(self, index: int, feed: Feed) -> dict[str, Array]:
        missing = [name for name in self._types if name not in feed]
        if missing:
            raise InputError(f"sample {index + 1} has no input {missing[0]!r}, which the second model wants")
        typed = {name: np.asarray(feed[name]).astype(dtype, copy=False) for name, dtype in self._types.items()}
        return self._session.run(carry_feeds(typed))


class SavedOutputs:
    """Outputs that something else computed: one `.npz` file a sample, in the order of the samples."""

    def __init__(self, path: Path) -> None:
        self.files = [path] if path.is_file() else sorted(path.glob("*.npz"), key=lambda p: p.name)
        if not self.files:
            raise InputError(f"{path}: no .npz files with saved outputs in it")

    def run(self, index: int, feed: Feed) -> dict[str, Array]:
        if index >= len(self.files):
            raise InputError(f"there are {len(self.files)} saved outputs but more samples; save one file a sample")
        try:
            with np.load(self.files[index], allow_pickle=False) as saved:
                return {name: saved[name] for name in saved.files}
        except Exception as error:
            raise InputError(f"{self.files[index]} cannot be read as saved outputs: {error}") from None


@dataclass(frozen=True)
class Verification:
    """The verdict on B, with A as the reference."""

    tolerance: Tolerance
    verdict: Verdict
    outputs: Mapping[str, Metrics]
    samples: int
    inputs: str

    @property
    def met(self) -> bool:
        return self.verdict.met

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "halfwise.verify/1",
            "status": "met" if self.met else "not-met",
            "tolerance": self.tolerance.to_json(),
            "inputs": {"origin": self.inputs, "samples": self.samples},
            "outputs": {name: metrics.to_json() for name, metrics in self.outputs.items()},
        }


def verify(
    reference: Runner,
    other: Runner,
    feeds: Sequence[Feed],
    *,
    tolerance: Callable[[Mapping[str, Array]], Tolerance] | Tolerance,
    metric: OutputMetric | None = None,
    origin: str = "given",
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Run both on every sample. A tolerance may be made from the reference's outputs."""
    each: list[dict[str, Metrics]] = []
    users: list[float] = []
    floats: set[str] = set()
    stated: Tolerance | None = tolerance if isinstance(tolerance, Tolerance) else None
    for index, feed in enumerate(feeds):
        wanted = reference.run(index, feed)
        got = other.run(index, feed)
        if stated is None:
            assert not isinstance(tolerance, Tolerance)
            stated = tolerance(wanted)
        missing = [name for name in wanted if name not in got]
        if missing:
            raise InputError(f"the second runner has no output {missing[0]!r}; its outputs are {', '.join(got)}")
        floats = {name for name, array in wanted.items() if is_float(array.dtype)}
        each.append({name: compare(array, got[name]) for name, array in wanted.items()})
        if metric is not None and stated.uses_user_metric:
            users.append(float(metric(wanted, {name: got[name] for name in wanted})))
        notify(index + 1, len(feeds))
    assert stated is not None
    together = {name: worst([metrics[name] for metrics in each]) for name in each[0]}
    verdict = stated.verdict(together, floats, max(users) if users else None)
    return Verification(stated, verdict, together, len(feeds), origin)
