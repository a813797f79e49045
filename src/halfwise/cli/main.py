"""The entry point: gathers the verbs, and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from halfwise.cli.help import Verb, Verbs
from halfwise.core.errors import HalfwiseError, interrupted
from halfwise.core.exhausted import FULL, no_temporary_room, out_of_memory, ran_short

__all__ = ["GROUPS", "VERBS", "app", "main", "run_words"]

# Each verb lives in halfwise.cli.<module> as a function called `command`; heavy imports happen inside it.
VERBS = {
    "demo": "The whole flow on a generated model.",
    "doctor": "Any files in hand: what they are, what is wrong.",
    "scan": "FP16 risks, found without running the model.",
    "trace": "Ranges of all tensors, error of each node.",
    "fix": "The main job: FP32 model in, verified FP16 out.",
    "stages": "Each module alone, and chained.",
    "verify": "Compare two models, or saved outputs.",
    "bisect": "The nodes that a real backend needs in FP32.",
    "audit": "The precision that an engine really ran in.",
    "log": "The precision messages of a build log.",
    "prove": "How a GPU's kernels round, learned from it.",
    "profiles": "Rounding profiles: built in and learned.",
    "advise": "Known precision defects of a target.",
    "gate": "For CI: check that a committed plan still holds.",
    "compare": "Two results side by side.",
    "schema": "The JSON Schema of a document.",
}

# Verbs with verbs of their own: halfwise.cli.<module> has them as a Typer application called `group`.
GROUPS = {"fleet": "Many models, every night: what broke, what got better."}

# Typer brings its own copy of click, or uses the one that is installed: this is that one's base of usage errors.
UsageProblem: type[Exception] = typer.BadParameter.__mro__[2]


class _Loaded(Verbs):
    """A verb is loaded when it is asked for: all of them take a third of the time that a command takes to start."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            return None
        module = import_module(f"halfwise.cli.{cmd_name}")
        if cmd_name in GROUPS:
            found = typer.main.get_command(module.group)
            found.name, found.short_help = cmd_name, GROUPS[cmd_name]
            return found
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(cmd_name, cls=Verb, short_help=VERBS[cmd_name])(module.command)
        return typer.main.get_command(alone)


def _later() -> None:
    """Stands for a verb that was not loaded."""


app = typer.Typer(
    name="halfwise",
    help="Find why a neural network goes wrong in FP16, repair it with the fewest FP32 layers, and prove it.",
    cls=_Loaded,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _verb, _summary in {**VERBS, **GROUPS}.items():
    app.command(_verb, short_help=_summary)(_later)


def _version(wanted: bool) -> None:
    if wanted:
        from halfwise._version import __version__

        typer.echo(f"halfwise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    pass


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run_words(sys.argv[1:]))


def run_words(words: Sequence[str]) -> int:
    """Run one command line; exit codes: 0 good, 1 the answer is no, 2 no answer, 3 missing backend, 130 interrupted."""
    debugging = bool(os.environ.get("HALFWISE_DEBUG"))
    if not debugging:
        warnings.simplefilter("ignore")  # of the libraries below, to their developers
    try:
        code = app(list(words) or ["--help"], prog_name="halfwise", standalone_mode=False, obj=run_words)
        if code == 130:  # Typer turns a Ctrl-C that no verb caught into this code, and says nothing
            raise KeyboardInterrupt
    except HalfwiseError as error:
        code = _end(str(error), error.exit_code)
    except UsageProblem as error:
        code = _end(_usage(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        code = _end("interrupted", 130)
    except OSError as error:  # a name that is too long, a folder that is closed or gone, a full disk
        if debugging and error.filename is None:
            raise
        code = _end(_scarce(error) or _failed(error), 2)
    except Exception as error:
        scarce = _scarce(error)
        if debugging and not scarce:
            raise
        code = _end("interrupted", 130) if interrupted(error) else _end(scarce or _internal(error), 2)
    return code if isinstance(code, int) else 0


def _failed(error: OSError) -> str:
    """Results say their names where they cannot be written, temporary files do not."""
    if error.filename is None and error.errno in FULL:
        return no_temporary_room(error.strerror)
    return f"{error.filename or 'a file'}: {error.strerror or error}"


def _scarce(error: Exception) -> str:
    """What the system has no more of; empty where that is not the error."""
    if out_of_memory(error) or (isinstance(error, ImportError) and ran_short(str(error))):
        return "out of memory; HALFWISE_MEMORY_LIMIT is a limit, where it is set"
    if str(error) == "can't start new thread":
        return "the system starts no more threads; end other processes, or raise the limit (ulimit -u)"
    return ""


def _internal(error: Exception) -> str:
    told = " ".join(str(error).split())[:300]
    of = f"{type(error).__name__}{': ' if told else ''}{told}"
    return f"internal error, please report it: {of} (HALFWISE_DEBUG=1 shows where)"


def _usage(error: Exception) -> str:
    text = getattr(error, "format_message", error.__str__)()
    context = getattr(error, "ctx", None)
    ended = text if text.endswith((".", "?")) else f"{text}."
    return f"{ended} See {context.command_path} --help." if context is not None else text


def _end(message: str, code: int) -> int:
    """One line on stderr, whatever names from a stranger's file it holds; a second Ctrl-C does not spoil it."""
    from halfwise.report.text import brief

    if code == 130:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    typer.echo(f"halfwise: {brief(' '.join(message.split()))}", err=True)
    return code
