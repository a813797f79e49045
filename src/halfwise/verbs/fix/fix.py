"""The main job: from an FP32 model to a verified typed FP16/FP32 model, with its plan and its reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from halfwise.backends import Backend, as_written, backend_named
from halfwise.backends.confirm import confirm as confirm_fix
from halfwise.backends.saved import SavedBackend
from halfwise.compiler.compiled import TIME_LIMIT_S
from halfwise.core.child.kept import ready
from halfwise.core.formats import Format
from halfwise.core.measures.named import with_measure
from halfwise.core.metrics import OutputMetric
from halfwise.core.targets import Target
from halfwise.core.tolerance import Tolerance
from halfwise.model.fp32_model import fp32_model
from halfwise.model.inputs.all_samples import all_samples
from halfwise.model.inputs.rollout import rollout_of
from halfwise.model.model import Model, load_to_run
from halfwise.precision.plan import Plan
from halfwise.precision.selectors import choices_of
from halfwise.repair import rules_for, rules_named
from halfwise.verbs.fix.arguments import (
    check_by_engine,
    check_confirmed,
    check_given,
    check_search,
    checked_margin,
    checked_max_runs,
    checked_time_limit,
    device_named,
    io_types_of,
    path_of,
    plan_of,
    target_of,
    texts_of,
)
from halfwise.verbs.fix.budget import MOST_BYTES_RUN
from halfwise.verbs.fix.original import with_original
from halfwise.verbs.fix.own_operators import read_by
from halfwise.verbs.fix.request import FixRequest
from halfwise.verbs.fix.result import Cost, FixResult
from halfwise.verbs.fix.results_folder import JOURNAL
from halfwise.verbs.fix.run import run
from halfwise.verbs.fix.speed import speed_of
from halfwise.verbs.fix.typed_file import kept_interface

__all__ = ["JOURNAL", "Cost", "FixResult", "fix"]


def fix(
    model: str | Path | onnx.ModelProto | Model,
    inputs: str | Path | Iterable[Any] | None = None,
    *,
    out: str | Path | None = None,
    tolerance: str | Sequence[str] | Tolerance = (),
    metric: OutputMetric | str | None = None,
    target: str | Target | None = None,
    profile: str | None = None,
    io_types: str | Format | None = None,
    io_formats: str | Sequence[str] = (),
    allow_bf16: bool = False,
    repairs: str | Sequence[str] = ("all",),
    keep: str | Sequence[str] = (),
    force: str | Sequence[str] = (),
    plan: str | Path | Plan | None = None,
    reference: str | Path | onnx.ModelProto | Model | None = None,
    judge_on_all: bool = False,
    curve: bool = False,
    time_limit_s: float = TIME_LIMIT_S,
    margin: float | None = None,
    max_runs: float | None = None,
    device: str = "cpu",
    confirm: str | Backend | None = None,
    layers: str | Path | None = None,
    rollout: int | None = None,
    feedback: str | Sequence[str] = (),
    cost: str | Path | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> FixResult:
    """Find the fewest FP32 nodes that keep the tolerance, write the typed model and the plan, and verify both.

    `inputs` are files or folders, or samples as dictionaries of arrays; none makes synthetic ones. With `plan`, nothing
    is searched: that plan is applied and verified, with `judge_on_all` on every input. With `out`, the model and the
    plan are written into that folder, and an interrupted search goes on from there. What is not stated is the plan's
    where there is one; else the target is any ONNX runtime, the profile the target's, and inputs and outputs keep their
    types.
    `plan` is a plan or its file, `io_types` a format or its name, as in "fp16". One text is as good as a list of one.
    `keep` and `force` state nodes that must stay in FP32 or must not, as in "op:Softmax", "scope:/head/*", "name:NODE",
    "pattern:layernorm" or "policy:torch-autocast".
    `reference` is the FP32 original of a model that is typed already: its outputs judge, and its weights are taken
    where the model's are their rounding.
    `margin` is by how much a real error may exceed the emulated one, by default what the target's profile states.
    `max_runs` bounds the passes over the search inputs of the whole job, the verdict's among them: the best answer so
    far is taken, a note says what was left untried, and with `out` the same call with more of them goes on. Without it,
    40 may go into saving FP32 nodes, and what keeps the tolerance is looked for beyond them.
    `time_limit_s` is for each build with a compiler. `device` is where whole models are emulated. The model that was
    written into `out` is run on the backend `confirm`, and compared with what was predicted. `layers` names a list of
    the layers of an engine that was built from `plan`, in any form that `audit` reads: its kernels then judge, too.
    With `rollout`, the samples in order are the steps of a stream; so many in a row are judged, with the state that the
    narrow model itself comes to: `feedback` names each as "OUTPUT=INPUT". A plan keeps it, and is judged so again.
    `cost` is a file that `prove` wrote with times, or "roofline" for the data sheet of the target's GPU: the fastest
    set is kept rather than the smallest.
    """
    tolerance, metric = with_measure(tolerance, metric)
    plan, folder, engine = plan_of(plan), path_of("out", out), path_of("layers", layers)
    types, emulated_on = io_types_of(io_types), device_named(device)
    margin, time_limit_s = checked_margin(margin), checked_time_limit(time_limit_s)
    max_runs = checked_max_runs(max_runs)
    keep, force = texts_of("keep", keep), texts_of("force", force)
    if confirm is not None:
        check_confirmed(confirm, folder, plan, notify)
    chosen = target_of(target, plan)
    emulated = profile or (plan.profile if plan is not None else chosen.profile)
    if plan is None:
        check_search(judge_on_all=judge_on_all, layers=engine is not None)
    else:
        check_given(plan, stated=profile is not None, changed=bool(keep or force))
    if engine is not None:
        check_by_engine(emulated)
    loaded = fp32_model(model if isinstance(model, Model) else load_to_run(model))
    if folder is not None and loaded.weight_bytes <= MOST_BYTES_RUN:
        ready(as_written.__name__)  # what runs the written model loads its libraries beside all that comes before
    original = None if reference is None else with_original(loaded, reference)
    if original is not None:
        loaded = original.weights.model
    loaded, widened = kept_interface(chosen, loaded)
    stored = loaded
    loaded, said = read_by(chosen, stored)
    request = FixRequest(
        loaded,
        inputs,
        folder,
        (tolerance,) if isinstance(tolerance, str) else tolerance,
        metric,
        chosen,
        emulated,
        types or (plan.io_types if plan is not None else Format.FP32),
        texts_of("io_formats", io_formats),
        allow_bf16,
        rules_for(chosen, rules_named(texts_of("repairs", repairs))),
        choices_of(loaded, keep, force, stored),
        plan,
        judge_on_all,
        curve,
        time_limit_s,
        margin,
        max_runs,
        engine,
        original,
        emulated_on,
        rollout_of(rollout, feedback, loaded.output_names) or (plan.rollout if plan is not None else None),
        notify,
        speed_of(cost, chosen),
        (*widened, *said),
        stored if loaded is not stored else None,
    )
    return run(request, lambda result: _confirmed(result, confirm, inputs, metric, notify))


def _confirmed(
    result: FixResult,
    confirm: str | Backend | None,
    inputs: Any,
    metric: OutputMetric | None,
    notify: Callable[[str], None],
) -> FixResult:
    """With what a backend says of the model that was written."""
    if result.typed is None or confirm is None:
        return result
    confirmation = confirm_fix(
        result.model,
        result.typed.path,
        _confirming(result, confirm, inputs),
        confirm,
        tolerance=result.plan.tolerance,
        profile=result.plan.profile,
        metric=metric,
        decision=result.assignment,
        notify=notify,
    )
    return replace(result, confirmation=confirmation)


def _confirming(result: FixResult, confirm: str | Backend, inputs: Any) -> Sequence[Mapping[str, Any]]:
    """The held-out inputs; of outputs that were saved, all in the order in which they are given."""
    backend = backend_named(confirm) if isinstance(confirm, str) else confirm
    if not isinstance(backend, SavedBackend):
        return result.samples.validation
    return all_samples(result.model.inputs, inputs, most=1 << 30).feeds
