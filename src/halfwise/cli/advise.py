"""`halfwise advise`: the known precision defects of a target's version that this model or engine can meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from halfwise.advisories import Advisory

__all__ = ["command"]


def command(
    target: Annotated[str, typer.Option("--target", metavar="T", help="What will run it, e.g. trt-10.0.1@t4.")],
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL|ENGINE-LAYERS]", help="ONNX model, inspector JSON, layer dump or build log."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.advise/1).")] = False,
) -> None:
    """The known precision defects of that version which this model can meet, the most certain first."""
    from halfwise.advisories import facts_of_file, match, to_document
    from halfwise.target import Target

    parsed = Target.parse(target)
    advisories = match(parsed, facts_of_file(source) if source is not None else None)
    if as_json:
        document = to_document(parsed, advisories, str(source) if source is not None else None)
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    sure = [advisory for advisory in advisories if not advisory.open_questions]
    unsure = [advisory for advisory in advisories if advisory.open_questions]
    what = f" and {source}" if source is not None else ""
    typer.echo(f"{parsed}{what}: {len(sure)} advisories apply, {len(unsure)} may apply")
    for caution in parsed.cautions:
        typer.echo(f"note: {caution}")
    for advisory in sure:
        _show(advisory)
    if unsure:
        typer.echo("\nmay apply (--json has their work-arounds and sources)")
    for advisory in unsure:
        typer.echo(f"  {_title(advisory)}\n    {advisory.entry.symptom}\n    {'; '.join(advisory.open_questions)}")


def _show(advisory: Advisory) -> None:
    entry = advisory.entry
    typer.echo(f"\n{typer.style(_title(advisory), fg=typer.colors.YELLOW)}")
    typer.echo(f"  {entry.symptom}")
    typer.echo(f"  why: {advisory.why}")
    typer.echo(f"  do:  {entry.workaround}")
    typer.echo(f"  see: {', '.join(entry.source)}")


def _title(advisory: Advisory) -> str:
    entry = advisory.entry
    fixed = f"fixed in {entry.fixed_in}" if entry.fixed_in else "no fix known"
    return f"{entry.id} ({entry.kind}, confidence {entry.confidence}, {fixed})"
