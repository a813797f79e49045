"""`halfwise profiles`: the rounding profiles, built in and learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfwise.cli.options import Full, Json
from halfwise.cli.reporting import answer

__all__ = ["command"]


def command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH...]", help="Machine files, or folders of them.", show_default="this folder"),
    ] = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """List the rounding profiles: what each rests on, and what was learned with `halfwise prove`."""
    from halfwise.report.profiles import show_profiles
    from halfwise.verbs.profiles import profiles

    found = profiles(paths or ())
    answer(found.to_json, lambda screen: show_profiles(screen, found), as_json=as_json, full=full)
