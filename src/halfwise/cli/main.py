"""The entry point: gathers the verbs, and turns errors into one line and an exit code."""

from __future__ import annotations

import sys
from importlib import import_module

import click
import typer

from halfwise.errors import HalfwiseError

__all__ = ["app", "main"]

# Each verb lives in halfwise.cli.<module> as a function called `command`; heavy imports happen inside it.
VERBS = ("demo", "scan", "trace", "fix", "verify")

app = typer.Typer(
    name="halfwise",
    help="Find why a neural network goes wrong in FP16, repair it with the fewest FP32 layers, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _verb in VERBS:
    app.command(_verb)(import_module(f"halfwise.cli.{_verb}").command)


def _version(wanted: bool) -> None:
    if wanted:
        from halfwise import __version__

        typer.echo(f"halfwise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run the command line; exit codes: 0 good, 1 the answer is no, 2 bad input, 3 missing backend, 130 interrupted."""
    try:
        code = app(standalone_mode=False)
    except HalfwiseError as error:
        typer.echo(f"halfwise: {error}", err=True)
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        typer.echo("halfwise: interrupted", err=True)
        code = 130
    except BrokenPipeError:
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
