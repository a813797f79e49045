"""A job on a Ray cluster lets idle cores of other nodes answer some of its inputs: a long pole is split.

The job's process asks the cluster as a client of its own, and only where its node saw idle cores. Weights travel by
content, once a node. A helper on another kind of machine, whose bits may differ, does not answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from halfwise.core.own_code import code_identity
from halfwise.core.put_off import tell_libraries
from halfwise.emulation.ort import Answer
from halfwise.emulation.shared import Recipe, attach
from halfwise.emulation.weights import RoundedWeights
from halfwise.precision.rewrite import Weight

__all__ = ["HELPED", "Cluster", "helped"]

HELPED = "helped.json"  # in the folder of a job: which nodes answered how many inputs, and the seconds that this saved


@dataclass(frozen=True)
class Cluster:
    """Where helpers are: `idle` is a file in which the node says how many cores of the cluster are, now and then."""

    address: str
    idle: str
    memory: int  # bytes that a helper takes, beside the weights in the store of its node


@contextmanager
def helped(cluster: Cluster, folder: Path) -> Iterator[None]:
    """While it lasts, the inputs of this process's sessions are shared with the cluster."""
    helpers = _Helpers(cluster)
    attach(helpers)
    try:
        yield
    finally:
        if helpers.answered:
            told = {"nodes": helpers.answered, "saved_s": round(sum(helpers.seconds), 1)}
            (folder / HELPED).write_text(json.dumps(told, sort_keys=True), encoding="utf-8")


@dataclass(frozen=True, eq=False)
class _Helpers:
    """Weights that were sent are held, so that each is sent once."""

    cluster: Cluster
    answered: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    _sent: dict[tuple[Any, Any], Any] = field(default_factory=dict)

    def saved(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def idle(self) -> int:
        try:
            seen = int(Path(self.cluster.idle).read_text(encoding="ascii"))
            return int(self._ray.available_resources().get("CPU", 0.0)) if seen and self._ray is not None else 0
        except (OSError, ValueError):
            return 0

    def ask(self, recipe: Recipe, feeds: Sequence[Mapping[str, Any]]) -> _Pending:
        weights = {weight.name: self._put(weight, recipe.rounded) for weight in recipe.weights}
        values = None if recipe.values is None else {n: v.SerializeToString() for n, v in recipe.values.items()}
        asked = self._remote.remote(recipe.proto.SerializeToString(), weights, values, list(feeds), _kind_here())
        return _Pending(self._ray, asked, self.answered)

    def _put(self, weight: Weight, rounded: RoundedWeights) -> Any:
        key = rounded.key(weight)
        if key not in self._sent:
            self._sent[key] = self._ray.put(np.asarray(rounded.of(weight), order="C"))
        return self._sent[key]

    @cached_property
    def _ray(self) -> Any:
        """None where the cluster does not take this process."""
        ray = import_module("ray")
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            try:
                ray.init(address=self.cluster.address, log_to_driver=False, logging_level="critical")
            except Exception:
                return None
        return ray

    @cached_property
    def _remote(self) -> Any:
        asks = {"num_cpus": 1, "memory": self.cluster.memory, "max_retries": 0}
        return self._ray.remote(**asks)(_answered_there)


@dataclass(frozen=True, eq=False)
class _Pending:
    ray: Any
    asked: Any
    counted: Counter[str]

    def answers(self, wait_s: float) -> Sequence[Answer] | None:
        try:
            node, found = self.ray.get(self.asked, timeout=wait_s)
        except Exception:  # of the cluster, or too late: it is answered here
            with suppress(Exception):
                self.ray.cancel(self.asked)
            return None
        if found is not None:
            self.counted[node] += len(found)
        return found  # type: ignore[no-any-return]


@cache
def _kind_here() -> str:
    """What the bits of an answer depend on: code, versions, the processor, and the threads of one operator."""
    processor = ""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        processor = "".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    runtime = import_module("onnxruntime").__version__
    said = (code_identity(), runtime, np.__version__, platform.machine(), processor, platform.processor())
    return hashlib.sha256(repr(said).encode()).hexdigest()


def _answered_there(
    proto: bytes,
    weights: Mapping[str, Any],
    values: Mapping[str, bytes] | None,
    feeds: Sequence[Mapping[str, Any]],
    kind: str,
) -> tuple[str, list[Answer] | None]:
    """At a helper: the node's name, and its answers."""
    tell_libraries()
    ray = import_module("ray")
    node = ray.get_runtime_context().get_node_id()
    if kind != _kind_here():
        return node, None
    arrays = dict(zip(weights, ray.get(list(weights.values())), strict=True))
    given = tuple(Weight(name, ir.Tensor(array), None) for name, array in arrays.items())
    declared = None if values is None else {n: onnx.ValueInfoProto.FromString(v) for n, v in values.items()}
    session = Recipe(onnx.ModelProto.FromString(proto), given, RoundedWeights(), declared).session()
    return node, list(session.answers(feeds))
