"""`halfwise fleet`: many models, every night: what broke, what got better, which fix to commit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfwise.cli.options import Full, Interrupted, Json
from halfwise.cli.reporting import answer
from halfwise.core.errors import InputError

__all__ = ["group"]

FILE = "fleet.toml"

group = typer.Typer(add_completion=False, rich_markup_mode=None)

FleetFile = Annotated[Path, typer.Argument(metavar="[FLEET.toml]", help="The fleet's file.", show_default=FILE)]


@group.callback()
def fleet() -> None:
    """Scan, fix and gate many models with one command; keep every result; see what broke since the last run."""


@group.command("init", short_help="Write a fleet.toml for the models in a folder.")
def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Folder with ONNX models.")] = Path(),
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")] = Path(FILE),
) -> None:
    """Write a fleet.toml that names the models of a folder and explains itself."""
    from halfwise.core.whole_files import write_text
    from halfwise.fleet.template import template

    if out.exists():
        raise InputError(f"{out} is there already: edit it, or give another name with --out")
    text = template(folder, out.parent)
    try:
        write_text(out, text)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from None
    typer.echo(f"wrote {out}; next: halfwise fleet check {out}")


@group.command("check", short_help="Find the mistakes in a fleet.toml.")
def check(file: FleetFile = Path(FILE)) -> None:
    """Name every mistake with its line and column, without running anything. Exit code 1: there is one."""
    from halfwise.core.wording import counted
    from halfwise.fleet.check import check_file
    from halfwise.report.text import safe

    jobs, told = check_file(file)
    for line in told:
        typer.echo(safe(line))
    if told:
        raise typer.Exit(1)
    models = {job.model for job in jobs}
    typer.echo(f"{file}: no mistakes; {counted(len(jobs), 'job')} for {counted(len(models), 'model')}")


@group.command("run", short_help="Run what the file says; goes on where it stopped.")
def run(
    context: typer.Context,
    file: FleetFile = Path(FILE),
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="ADDRESS", help="Run on this Ray cluster (auto, or host:port).", show_default=False
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="HTML page.", show_default="RESULTS/index.html")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.", show_default=False)
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option("--sarif", metavar="FILE", help="Also write SARIF 2.1.0.", show_default=False)
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option("--markdown", metavar="FILE", help="Also write a Markdown summary.", show_default=False),
    ] = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Run every job that is not done yet, one process each. Exit code 1: a job failed or its answer is no.

    A job is done when the same model bytes, inputs, settings and version gave an answer before.
    """
    from halfwise.cli.fleet_progress import watching
    from halfwise.fleet.run import run_fleet
    from halfwise.fleet.settings import read_settings
    from halfwise.fleet.show import show_run
    from halfwise.fleet.write import write_all
    from halfwise.report.files import check_writable

    settings = read_settings(file)
    check_writable(junit, sarif, markdown, page, reads=[file])
    try:
        with watching(f"fleet {file.name}") as watcher:
            if ray is None:
                result = run_fleet(settings, context.obj, watcher)
            else:
                from halfwise.fleet.on_ray import OnRay

                result = run_fleet(settings, context.obj, watcher, OnRay(ray))
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; what was done is kept: the same command goes on ({settings.results})"
        ) from None
    written = write_all(settings.results, result, page=page, junit=junit, sarif=sarif, markdown=markdown)
    answer(
        result.to_json,
        lambda screen: show_run(screen, result, written),
        as_json=as_json,
        full=full,
        good=result.good,
    )


@group.command("show", short_help="The last run again, or one model over time.")
def show(
    file: FleetFile = Path(FILE),
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="One model over all runs.", show_default=False)
    ] = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Show the last run from the store, or one model over time. Exit code 1: a job failed or its answer is no."""
    from halfwise.fleet.show import show_history, show_run
    from halfwise.fleet.stored import history_of, last_run

    results = _results(file)
    if model is None:
        result = last_run(results)
        answer(
            result.to_json,
            lambda screen: show_run(screen, result, ()),
            as_json=as_json,
            full=full,
            good=result.good,
        )
    history = history_of(results, model or "")
    answer(history.to_json, lambda screen: show_history(screen, history), as_json=as_json, full=full)


def _results(file: Path) -> Path:
    """A folder of results, or the one that a fleet's file names."""
    from halfwise.fleet.settings import read_settings

    return file if file.is_dir() else read_settings(file).results
