"""`halfwise fix`: from an FP32 model to a verified FP16 one with the fewest FP32 nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfwise.cli.input_options import takes_inputs
from halfwise.cli.options import (
    Feedback,
    Full,
    Interrupted,
    Json,
    MetricSpec,
    ModelPath,
    Reference,
    Steps,
    Tolerances,
    user_metric,
)
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer, command_line
from halfwise.core.errors import InputError

if TYPE_CHECKING:
    from halfwise.report.terminal import Terminal

__all__ = ["command"]


@takes_inputs
def command(
    model: ModelPath,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the typed model and the plan.", show_default=False)
    ],
    inputs: list[Any] | None = None,
    tol: Tolerances = None,
    metric: MetricSpec = None,
    rollout: Steps = None,
    feedback: Feedback = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="T",
            help="Runtime that will run the model, e.g. trt-10.9@t4, rtx-1.7, ort-cuda.",
            show_default="onnx",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="P",
            help="Rounding profile to emulate: strict, ort-cuda, tensorrt, tensorrt-fp16-accumulate, or a file that "
            "prove wrote; each together with strict.",
            show_default="the target's, else strict",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            "--margin",
            metavar="X",
            help="Safety margin: share by which a real error may exceed the emulated one.",
            show_default="what the profile states",
        ),
    ] = None,
    max_runs: Annotated[
        float | None,
        typer.Option(
            "--max-runs",
            metavar="N",
            help="Budget of the whole job in model runs (passes over the search inputs), the verdict included.",
            show_default="40 for saving FP32 nodes (100 for small models), and what keeps the tolerance",
        ),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(
            "--cost",
            metavar="FILE|roofline",
            help="Keep the fastest set, by the times in a file of prove --time or the data sheet of the target's GPU.",
            show_default=False,
        ),
    ] = None,
    io_types: Annotated[
        str | None,
        typer.Option("--io-types", metavar="fp32|fp16", help="Type of float inputs and outputs.", show_default="fp32"),
    ] = None,
    io_formats: Annotated[
        list[str] | None,
        typer.Option(
            "--io-formats",
            metavar="[NAME=]FMT",
            help="Memory layout of float inputs and outputs in the engine: chw, chw2, hwc8, chw16 ...; repeatable.",
            show_default="chw",
        ),
    ] = None,
    allow: Annotated[
        str | None,
        typer.Option("--allow", metavar="bf16", help="Allow BF16 for nodes that only lack range.", show_default=False),
    ] = None,
    repairs: Annotated[
        list[str] | None,
        typer.Option(
            "--repairs",
            metavar="none|all|RULE,...",
            help="Exact rewrites to try before keeping nodes in FP32. clip-weights is not exact and must be named.",
            show_default="all",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="SELECTOR",
            help="Nodes that must stay in FP32; repeatable: op:Softmax, 'scope:/head/*', name:NODE, pattern:layernorm, "
            "pattern:attention, policy:torch-autocast.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        list[str] | None,
        typer.Option(
            "--force",
            metavar="SELECTOR",
            help="Nodes that must not stay in FP32; the same selectors.",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="PLAN", help="Apply and verify this plan without a search.", show_default=False),
    ] = None,
    reference: Reference = None,
    layers: Annotated[
        Path | None,
        typer.Option(
            "--engine",
            metavar="LAYERS.json",
            help="With --plan: layer list of the engine built from it. The verdict then covers its kernels, too.",
            show_default=False,
        ),
    ] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Also show the error against the FP32 cost.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show each repair: its nodes, its algebra and the FP32 nodes it saves.")
    ] = False,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", min=1.0, help="Time limit of each TensorRT-RTX build.")
    ] = 300.0,
    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm",
            metavar="BACKEND",
            help="Also run the result on this backend (as in bisect) and compare it with the prediction.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", metavar="cpu|cuda", help="Device that emulates whole models.")
    ] = "cpu",
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Also write a Markdown summary.", show_default=False),
    ] = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Find the fewest FP32 nodes that keep the tolerance; write the typed model and its plan. Exit code 1: not kept,
    or refused by the target's compiler.

    The verdict is measured on inputs that the search did not use. The same command resumes an interrupted search.
    """
    if io_types not in (None, "fp32", "fp16"):
        raise InputError(f"--io-types {io_types}: write fp32 or fp16")
    if allow not in (None, "bf16"):
        raise InputError(f"--allow {allow}: only bf16 can be allowed")
    from halfwise.report.files import check_writable, write

    check_writable(markdown, reads=[model, plan, reference, layers])
    from halfwise.backends import as_written
    from halfwise.core.child.kept import copied
    from halfwise.report.html.fix_report import with_report
    from halfwise.verbs.fix.fix import JOURNAL, fix
    from halfwise.verbs.fix.results_folder import WALKS

    copied(as_written.__name__)  # it runs the written model; of a process that shows progress there is no copy
    result = None
    try:
        with progress(f"fix {model.name}") as shown:
            result = fix(
                model,
                inputs,
                out=out,
                tolerance=tol or (),
                metric=user_metric(metric),
                rollout=rollout,
                feedback=feedback or (),
                target=target,
                profile=profile,
                margin=margin,
                max_runs=max_runs,
                cost=cost,
                io_types=io_types,
                io_formats=io_formats or (),
                allow_bf16=allow is not None,
                repairs=repairs or ("all",),
                keep=keep or (),
                force=force or (),
                plan=plan,
                reference=reference,
                layers=layers,
                curve=curve,
                time_limit_s=time_limit,
                device=device,
                confirm=confirm,
                notify=shown.step,
            )
            result = with_report(result, command=command_line(), notify=shown.step)
    except KeyboardInterrupt:
        if result is not None:
            raise Interrupted(f"interrupted before the report was written; the model and plan are in {out}") from None
        kept = next((place for place in (out / JOURNAL, out / WALKS) if place.exists()), None)
        raise Interrupted(
            f"interrupted; run the same command to resume from {kept}"
            if kept is not None
            else "interrupted before anything was measured; nothing was written"
        ) from None

    if markdown is not None:
        from halfwise.report.markdown import fix_markdown

        write(markdown, fix_markdown(result))

    def screen(terminal: Terminal) -> None:
        from halfwise.report.confirm import show_confirmation
        from halfwise.report.fix import show_fix

        show_fix(terminal, result, command_line(), explain=explain)
        if result.confirmation is not None:
            show_confirmation(terminal, result.confirmation)

    answer(result.to_json, screen, as_json=as_json, full=full, good=result.good)
