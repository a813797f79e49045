"""`halfwise stages`: a model cut at its modules, each stage alone in FP16 and chained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from halfwise.cli.input_options import takes_inputs
from halfwise.cli.options import Full, Html, Json, ModelPath, Reference, Tolerances
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer, command_line, write_page
from halfwise.core.errors import InputError

__all__ = ["command"]


@takes_inputs
def command(
    model: ModelPath,
    inputs: list[Any] | None = None,
    cut: Annotated[
        list[str] | None,
        typer.Option(
            "--cut",
            metavar="T1,T2,...",
            help="Cut at these tensors instead of at modules; repeatable, also for names with commas.",
            show_default=False,
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth",
            metavar="N",
            help="Depth of the cut: 1 (the default) is the first level of modules.",
            show_default=False,
        ),
    ] = None,
    upto: Annotated[
        str | None,
        typer.Option(
            "--upto",
            metavar="STAGE",
            help="Also make the plan (for `fix --plan`) that leaves everything after this stage in FP32.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write each stage as an ONNX model with its FP32 inputs beside it, and the plan of --upto.",
            show_default=False,
        ),
    ] = None,
    tol: Tolerances = None,
    profile: Annotated[
        str,
        typer.Option("--profile", metavar="P", help="Rounding profile to emulate: strict, ort-cuda, or prove's file."),
    ] = "strict",
    reference: Reference = None,
    html: Html = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Find which modules fail in FP16 alone, and which only in combination with the modules before them.

    Each module runs in FP16 on FP32 inputs, and on the FP16 outputs of the modules before it. Names the nodes that
    cause an error. Exit code 1: the whole model in FP16 misses the tolerance.
    """
    if cut and depth is not None:
        raise InputError("--cut names the places to cut at, --depth says how deep the modules are: give one of them")
    from halfwise.report.files import check_writable
    from halfwise.verbs.stages import stages

    check_writable(html, reads=[model])

    with progress(f"stages {model.name}") as shown:
        result = stages(
            model,
            inputs,
            cut=cut or (),
            depth=1 if depth is None else depth,
            tolerance=tol or (),
            profile=profile,
            reference=reference,
            out=out,
            upto=upto,
            notify=shown.step,
        )

    if html is not None:
        from halfwise.core.english import say_all
        from halfwise.report.stages import culprit_table

        tables = culprit_table(result)
        write_page(html, f"Stages of {model.name}", result, tables=tables, noun="stage", notes=say_all(result.notes))
    from halfwise.report.stages import show_stages

    answer(
        result.to_json,
        lambda screen: show_stages(screen, result, str(model), command_line()),
        as_json=as_json,
        full=full,
        good=result.met,
    )
