"""A backend in a child process: a model file and samples go in, outputs and the record of the run come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.backends.backend import BackendFailure, BackendOptions, BackendRecord, BackendRun
from halfwise.core.child.serve import Answer, Request
from halfwise.core.child.worker import ChildDied, ChildFailed, call
from halfwise.core.document import read
from halfwise.core.errors import InputError
from halfwise.core.files.absent import absent
from halfwise.model.inputs.rollout import Rollout

__all__ = ["answer", "rollout_asked", "run_in_child"]

Feed = Mapping[str, NDArray[Any]]

# How a child runs a model: the backend's name, the file, the samples and how to run them.
Run = Callable[[str, Path, Sequence[Feed], BackendOptions], BackendRun]


def run_in_child(
    function: str,
    backend: str,
    model: Path,
    feeds: Sequence[Feed],
    options: BackendOptions,
    rollout: Rollout | None = None,
) -> BackendRun:
    """Have `function`, such as "module:name", run the model; whatever it does, this process lives."""
    if not model.is_file():
        raise absent(model)
    for index, feed in enumerate(feeds):
        _check(feed, f"sample {index + 1}")
    # The child's environment is its own: this is what cuBLAS, cuDNN and TensorRT heed, whatever a provider asks for.
    environment = {} if options.tf32 else {"NVIDIA_TF32_OVERRIDE": "0"}
    asked: dict[str, Any] = {"backend": backend, "model": str(model.resolve()), "options": asdict(options)}
    if rollout is not None:
        asked["rollout"] = asdict(rollout)
    try:
        told = call(function, asked, feeds, time_limit_s=options.time_limit_s, environment=environment)
    except ChildDied as died:
        raise BackendFailure(f"{backend} {died.tell(f'running {model.name}')}") from died
    except ChildFailed as failed:
        raise BackendFailure(str(failed)) from failed
    return BackendRun(
        tuple(dict(each) for each in told.arrays), read(told.data, BackendRecord, "what the child answered")
    )


def rollout_asked(request: Request) -> Rollout | None:
    """The child's side of it."""
    asked = request.data.get("rollout")
    return (
        None
        if asked is None
        else Rollout(asked["steps"], tuple((output, state) for output, state in asked["feedback"]))
    )


def answer(request: Request, run: Run) -> Answer:
    """What the child does with that request."""
    asked = request.data
    done = run(asked["backend"], Path(asked["model"]), request.arrays, BackendOptions(**asked["options"]))
    for index, outputs in enumerate(done.outputs):
        _check(outputs, f"the outputs of sample {index + 1}")
    return Answer(done.record.to_json(), done.outputs)


def _check(arrays: Mapping[str, Any], what: str) -> None:
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"{what}: {name!r} is no tensor, and a backend takes and gives tensors only")
