"""`halfwise schema`: the JSON Schema of a document."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from halfwise.cli.schemas import NAMES, schema

__all__ = ["command"]


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(NAMES)}.", show_default=False)],
) -> None:
    """Print the JSON Schema (draft 2020-12) of what a verb's --json prints, or of a plan."""
    from halfwise.report.terminal import write_out

    write_out(json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n")
