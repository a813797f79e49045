"""`halfwise advise`: the known precision defects of a target's version that this model or engine can meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfwise.cli.reporting import answer
from halfwise.core.errors import HalfwiseError

if TYPE_CHECKING:
    from halfwise.compiler.attention_regions import Fp32Region
    from halfwise.deploy.advisories import Advisory

__all__ = ["command"]


def command(
    target: Annotated[
        str, typer.Option("--target", metavar="T", help="Version and GPU that will run the model, e.g. trt-10.0.1@t4.")
    ],
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL|ENGINE-LAYERS]", help="ONNX model, inspector JSON, layer dump or build log."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", min=1.0, help="Time limit of each TensorRT-RTX build.")
    ] = 300.0,
    full: Annotated[
        bool, typer.Option("--full", help="Also show workarounds and sources of advisories that may apply.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.advise/1).")] = False,
) -> None:
    """List the known precision defects of a version that this model can meet, the most certain first."""
    from halfwise.core.targets import Target
    from halfwise.deploy.advisories import AdviseDocument, facts_of_file, match

    parsed = Target.parse(target)
    facts = facts_of_file(source) if source is not None else None
    advisories = match(parsed, facts)
    region, note = None, ""
    if source is not None and facts is not None and facts.nodes is not None:
        region, note = _region(source, advisories, time_limit)
    about = str(source) if source is not None else ""
    document = AdviseDocument(
        target=str(parsed),
        source=about or None,
        advisories=[advisory.document() for advisory in advisories],
        region=region.document() if region is not None else None,
    )
    from halfwise.report.advise import show_advisories

    answer(
        document.to_json,
        lambda screen: show_advisories(screen, parsed, about, advisories, region, note),
        as_json=as_json,
        full=full,
    )


def _region(source: Path, advisories: Sequence[Advisory], time_limit_s: float) -> tuple[Fp32Region | None, str]:
    """Where a fused attention kernel is the suspect: the FP32 region that keeps it out, or why none is shown."""
    from halfwise.deploy.advisories.suspect_kernels import suspect_kernels

    suspects = suspect_kernels(advisories, ("defect", "report"))
    if not suspects:
        return None, ""
    from halfwise.compiler.attention_advice import keep_kernel_out

    try:
        return keep_kernel_out(source, suspects, time_limit_s), ""
    except HalfwiseError as error:
        return None, f"how to keep {' or '.join(suspects)} out is not shown: {error}"
