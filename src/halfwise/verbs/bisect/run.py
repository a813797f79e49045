"""`bisect`: from a model that a real backend gets wrong in FP16 to the nodes that must be FP32 there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import onnx

from halfwise.backends import Backend, BackendOptions
from halfwise.backends.named import installed_backend
from halfwise.backends.saved import SavedBackend
from halfwise.core.errors import InputError
from halfwise.core.held_folder import held
from halfwise.core.measures.named import with_measure
from halfwise.core.metrics import OutputMetric
from halfwise.core.tolerance import Tolerance
from halfwise.core.whole_files import scratch_folder
from halfwise.model.fp32_model import fp32_model
from halfwise.model.inputs.rollout import rollout_of
from halfwise.model.model import Model, load_to_run
from halfwise.precision.plan import Plan
from halfwise.verbs.bisect.asked import Asked
from halfwise.verbs.bisect.check import Checker
from halfwise.verbs.bisect.culprits import Answer, Found, find_culprits
from halfwise.verbs.bisect.result import BisectResult
from halfwise.verbs.bisect.telling import result_of
from halfwise.verbs.bisect.trials import Trials
from halfwise.verbs.fix.original import put_back

__all__ = ["bisect"]


def bisect(
    model: str | Path | onnx.ModelProto | Model,
    backend: str | Backend | None,
    inputs: str | Path | Iterable[Any] | None = None,
    *,
    out: str | Path | None = None,
    tolerance: str | Sequence[str] | Tolerance = (),
    metric: OutputMetric | str | None = None,
    check: str | None = None,
    plan: Plan | None = None,
    builds: int | None = None,
    rollout: int | None = None,
    feedback: str | Sequence[str] = (),
    reference: str | Path | onnx.ModelProto | Model | None = None,
    options: BackendOptions | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> BisectResult:
    """Find every node that `backend` needs in FP32, with few builds; write the typed model and the plan into `out`.

    The all-FP16 model is tried first (with `plan`: the planned one), then the all-FP32 one. `check` is a command that
    judges instead of the tolerance; with it, `backend` may be None, and the command runs the model itself. `builds`
    limits how many models are built. With `rollout`, the samples in order are the steps of a stream, and so many in a
    row take the state that the same build gave before: `feedback` names each as "OUTPUT=INPUT". `reference` is the
    FP32 original of a model that is typed already: its weights are taken. The same call goes on where an interrupted
    one stopped, if `out` is given.
    """
    options = options or BackendOptions()
    tolerance, metric = with_measure(tolerance, metric)
    if backend is None and check is None:
        raise InputError("bisect needs --backend, which runs the model, or --check, a command that judges it")
    runner = installed_backend(backend, options) if isinstance(backend, str) else backend
    if isinstance(runner, SavedBackend):
        raise InputError(f"{runner.name}: saved outputs are of one model; bisect has to build others")
    checker = Checker(check) if check is not None else None
    if checker is not None:
        checker.words()
    given, told = put_back(fp32_model(model if isinstance(model, Model) else load_to_run(model)), reference)
    with tempfile.TemporaryDirectory(prefix="halfwise-bisect-") as scratch:
        asked = Asked(
            given,
            told,
            runner,
            inputs,
            Path(out) if out is not None else None,
            Path(scratch if out is None else out),
            (tolerance,) if isinstance(tolerance, str) else tolerance,
            metric,
            checker,
            plan,
            builds,
            rollout_of(rollout, feedback, given.output_names),
            options,
            notify,
        )
        return _run(asked)


def _run(asked: Asked) -> BisectResult:
    if not asked.nodes:
        raise InputError("no node of the model may be FP16, or the plan keeps all of them in FP32: nothing to bisect")
    with held(asked.folder), scratch_folder(asked.folder) as scratch:
        return _run_in_folder(asked, scratch)


def _run_in_folder(asked: Asked, scratch: Path) -> BisectResult:
    asked.notify("running the FP32 model")
    folder, references, question = asked.folder, asked.references, asked.question
    if question is not None:
        _ = asked.lost  # refused before anything is built
    if asked.journal.resumed:
        asked.notify(f"resuming an interrupted search ({asked.journal.resumed} entries kept)")
    trials = Trials(
        asked.sites, asked.nodes, asked.planned(), asked.io, folder, scratch, asked.journal, asked.backend,
        asked.checker, question, asked.samples.feeds, asked.rollout, references, asked.builds,
        asked.options.time_limit_s, asked.notify,
    )  # fmt: skip
    try:
        found = _search(asked, trials)
        asked.given.stamps.check()
    except Exception:
        if not trials.steps:  # nothing to go on from
            asked.journal.discard()
        raise
    result = result_of(asked, found, trials, question, folder)
    asked.journal.discard()
    return result


def _search(asked: Asked, trials: Trials) -> Found:
    search = find_culprits(len(asked.nodes))
    narrow = next(search)
    while True:
        try:
            narrow = search.send(_ask(asked, trials, narrow))
        except StopIteration as end:
            return cast(Found, end.value)


def _ask(asked: Asked, trials: Trials, narrow: frozenset[int]) -> Answer | None:
    """The ranking is not needed, and so not made, for the first two builds."""
    if len(narrow) in (0, len(asked.nodes)):
        return trials.ask(frozenset(asked.nodes if narrow else ()))
    return trials.ask(frozenset(asked.order[rank] for rank in narrow))
