"""`halfwise gate`: for CI, does a committed plan still hold for this model?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from halfwise.cli.input_options import takes_inputs
from halfwise.cli.options import Feedback, Full, Json, Reference, Sarif, Steps, user_metric
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer, command_line, write_sarif
from halfwise.core.errors import InputError

__all__ = ["command"]


@takes_inputs
def command(
    words: Annotated[
        list[Path],
        typer.Argument(metavar="[PLAN] MODEL", help="ONNX model, retrained or not; a plan may come before it."),
    ],
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="PLAN", help="The committed plan that `fix` wrote.", show_default=False),
    ] = None,
    inputs: list[Any] | None = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME|PKG.MOD:FN",
            help="The function that the plan's tolerance bounds; the plan names a ready measure itself.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", metavar="P", help="Rounding profile to judge by, as in fix.", show_default="the plan's"
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="FINDINGS.json",
            help="Committed output of `halfwise scan MODEL --json`: new findings fail the gate.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Path | None,
        typer.Option(
            "--engine",
            metavar="LAYERS.json|BUILD.log",
            help="Engine layers or build log to audit. Without it, strongly typed TensorRT targets are compiled with "
            "TensorRT-RTX, if installed.",
            show_default=False,
        ),
    ] = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Write PLAN and FINDINGS.json anew where they no longer hold; exit code 1 where no plan holds.",
        ),
    ] = False,
    reference: Reference = None,
    rollout: Steps = None,
    feedback: Feedback = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.", show_default=False)
    ] = None,
    sarif: Sarif = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Also write a Markdown summary.", show_default=False),
    ] = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Check whether a committed plan still holds for this model. Exit code 1: it does not.

    New weights for the same graph are fine: the plan is applied and its tolerance measured again.
    """
    *before, model = words
    if len(before) + (plan is not None) != 1:
        raise InputError("gate takes one plan and one model: `halfwise gate MODEL --plan PLAN`")
    plan = plan or before[0]
    from halfwise.report.files import check_writable, write
    from halfwise.verbs.gate import gate
    from halfwise.verbs.gate_update import gate_updated

    reads = [model, plan, baseline, engine, reference]
    check_writable(junit, sarif, markdown, reads=reads)
    check_writable(*((plan, baseline) if update else ()))
    with progress(f"gate {model.name}") as shown:
        result = (gate_updated if update else gate)(
            plan,
            model,
            inputs,
            metric=user_metric(metric),
            profile=profile,
            baseline=baseline,
            engine=engine,
            reference=reference,
            rollout=rollout,
            feedback=feedback or (),
            notify=shown.step,
        )

    if junit is not None:
        from halfwise.report.junit import junit_xml

        write(junit, junit_xml(result))
    write_sarif(sarif, result.problems, model)
    if markdown is not None:
        from halfwise.report.markdown import gate_markdown

        write(markdown, gate_markdown(result))
    from halfwise.report.gate import show_gate

    answer(
        result.to_json,
        lambda screen: show_gate(screen, result, command_line()),
        as_json=as_json,
        full=full,
        good=result.holds,
    )
