"""Runs a written model as anybody would: ONNX Runtime's CPU provider, optimised as by default, in a child process.

Native code may crash on a model, and a crash there is an answer here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from halfwise.backends.backend import BackendFailure
from halfwise.backends.bf16_values import run_session
from halfwise.backends.mapped_file import mapped
from halfwise.backends.runtime_path import named
from halfwise.backends.seeded_file import Sessions, seeded
from halfwise.core.child.kept import ask
from halfwise.core.child.serve import Answer, Request
from halfwise.core.child.worker import ChildDied, ChildFailed
from halfwise.core.errors import NoRoom
from halfwise.core.exhausted import no_temporary_room, ran_short

if TYPE_CHECKING:  # the child has no use for them
    import onnx_ir as ir

    from halfwise.model.inputs.feed import Feed
    from halfwise.precision.sites import Sites

__all__ = ["NoKernel", "run_as_written", "serve", "typed_as"]

Array = NDArray[Any]

_NO_KERNEL = ("NOT_IMPLEMENTED", "Could not find an implementation", "pthread_create failed")
_NUMPY = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_LARGE_BYTES = 1 << 26  # of weights in FP32
_TOLD = 300  # letters of what the runtime says


class NoKernel(BackendFailure):
    """The provider has no kernel for some node in the types that it has, or the system no thread, memory or room on the
    disk; another may have."""


def run_as_written(
    model: Path,
    feeds: Sequence[Feed],
    time_limit_s: float,
    sites: Sites | None = None,
    without: Sequence[str] = (),
    integer_kernels: bool = True,
) -> tuple[dict[str, Array], ...]:
    """The outputs for every sample, or step of a stream, with the state that the file itself gave; random nodes of the
    `sites` that it was written of draw what they draw in an emulation. `without`: optimizers that leave it alone.
    `integer_kernels`: products between quantisers run in integers, as this provider computes them.

    Raises NoKernel, or BackendFailure where it cannot be loaded or run.
    """
    from halfwise.model.inputs.rollout import steps_of

    nodes = sites.model.nodes if sites is not None else ()
    steps, rollout = steps_of(feeds)
    asked = {
        "model": str(model.resolve()),
        "random": sites is not None and sites.random is not None,
        "packed": any(map(_packed_otherwise, nodes)),
        "without": [*without, *(() if integer_kernels else _holding_all(sites))],
        "integer_kernels": integer_kernels,
        "rollout": None if rollout is None else asdict(rollout),
    }
    try:
        told = ask(f"{__name__}:serve", asked, steps, time_limit_s=time_limit_s)
    except ChildDied as died:
        raise (NoKernel if died.ended.killed else BackendFailure)(f"it {died.ended.describe()}") from died
    except ChildFailed as failed:
        text = " ".join(str(failed).split())[:_TOLD]
        lacks = ran_short(text) or any(words in text for words in _NO_KERNEL)
        raise (NoKernel if lacks else BackendFailure)(text) from failed
    except (OSError, NoRoom) as error:
        raise NoKernel(str(error) if isinstance(error, NoRoom) else no_temporary_room(error.strerror)) from error
    return tuple(dict(each) for each in told.arrays)


def _packed_otherwise(node: ir.Node) -> bool:
    """Whether the provider may compute it otherwise once it has packed its weight, as products of 4-bit tables."""
    return bool(node.domain) or node.op_type == "DequantizeLinear"


def _holding_all(sites: Sites | None) -> tuple[str, ...]:
    """What would hold large dequantised weights side by side: outside of integer kernels they count as constants."""
    large = sites is not None and sites.model.unpacked_bytes - sites.model.emulated_bytes > _LARGE_BYTES
    return ("ConstantFolding",) if large else ()


def serve(request: Request) -> Answer:
    """What the child does."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False  # with it, dequantised weights have memory side by side
    if not request.data["packed"]:  # it takes longer than the few runs
        options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait take no core meanwhile
    given = request.data
    if not given["integer_kernels"]:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    sessions = _begun(Path(given["model"]), options, random=given["random"], without=given["without"])
    names, each = [value.name for value in sessions.first.get_outputs()], sessions.each()

    def run(_: int, feed: Mapping[str, Array]) -> Mapping[str, Array]:
        session = next(each)
        given = {value.name: typed_as(feed[value.name], value.type) for value in session.get_inputs()}
        return dict(zip(names, map(_without_keys, run_session(session, names, given)), strict=True))

    if request.data["rollout"] is None:
        return Answer({}, map(run, count(), request.arrays))
    from halfwise.backends.child import rollout_asked
    from halfwise.model.inputs.rollout import chained

    return Answer({}, chained(rollout_asked(request), request.arrays, run))


def _begun(model: Path, options: Any, *, random: bool, without: Sequence[str]) -> Sessions:
    """With its weights mapped, where that goes; what the runtime refuses is refused of the file itself."""
    import onnxruntime as ort

    def begun(content: str | bytes) -> Sessions:
        more = {"providers": ["CPUExecutionProvider"], "disabled_optimizers": list(without), "enable_fallback": 0}
        return Sessions.begun(lambda: ort.InferenceSession(content, options, **more), random=random)

    if random:
        return begun(seeded(model, options))
    content = mapped(model, options)
    if content is not None:
        with suppress(Exception):
            return begun(content)
    return begun(named(model))


def _without_keys(held: Any) -> Any:
    """A list of maps of class labels as the tensor that it was made of."""
    maps = isinstance(held, list) and bool(held) and isinstance(held[0], dict)
    return np.array([list(each.values()) for each in held], dtype=np.float32) if maps else held


def typed_as(array: Any, declared: str) -> Any:
    """Samples are of the types of the model as given; a typed model's float inputs may be of another.

    A copy, because the runtime may write running statistics over what it is handed.
    """
    kind = _NUMPY.get(declared)
    return np.array(array, dtype=kind, order="C") if kind is not None and isinstance(array, np.ndarray) else array
