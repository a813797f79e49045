"""One run of a recipe, and what is to be said of it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import NoReturn

from tools.fuzz.attack import PYTHON
from tools.fuzz.attacks import ATTACKS
from tools.fuzz.large import small_counts_as_large
from tools.fuzz.outcome import Outcome
from tools.fuzz.places import OTHER
from tools.fuzz.recipe import Recipe, Unsuitable

__all__ = ["MEMORY", "prepare", "run"]

_PROGRESS = re.compile(r"[^:]+: (\d+ s(: .*)?|\d+ jobs?, \d+ done before)")  # of a run that takes its time
MEMORY = 6 << 30  # bytes of address space that a run may take
_MOST_NODES = 20_000  # with functions in place; what is larger takes its time, whatever it is


def run(recipe: Recipe) -> Outcome:
    """What the command says of the files of a recipe, and whether it keeps its word."""
    outcome, answer = _tried(recipe)
    if outcome.kind == "answered" and ATTACKS[recipe.attack].same and answer != _undamaged(recipe.undamaged()):
        return Outcome("differs", recipe.attack, repr(sorted(answer))[:400])
    return outcome


@cache
def _undamaged(recipe: Recipe) -> Mapping[str, str]:
    return _tried(recipe)[1]


def _tried(recipe: Recipe) -> tuple[Outcome, Mapping[str, str]]:
    """What is to be said of it, and the hashes of the results."""
    large = small_counts_as_large() if ATTACKS[recipe.attack].large else nullcontext()
    with TemporaryDirectory(prefix="halfwise-fuzz-") as folder, _inside(folder), large:
        try:
            words = recipe.write(Path(folder))
        except Unsuitable:
            return Outcome("unmade"), {}
        before, others = _files(), _others()
        code, out, err, where = _call(words)
        outcome = _judged(words, code, out, err, where or _failed_job(), sorted(_files() - before))
        if _others() != others:
            outcome = Outcome("wrote", f"into {OTHER}, which is another's")
        return outcome, _results()


def _others() -> bytes | None:
    """What a link leads to is not to be written to."""
    return Path(OTHER).read_bytes() if Path(OTHER).is_file() and Path(OTHER).stat().st_size < 1 << 20 else None


def _failed_job() -> str:
    """What a job of a fleet said that ended in an error nobody expected."""
    for log in Path().glob("out/*/*/log.txt"):
        for line in log.read_text(errors="replace").splitlines() if log.is_file() else ():
            if "internal error" in line:
                return line[:100]
    return ""


def _results() -> dict[str, str]:
    """The models and plans that were written, by their hashes."""
    found = (path for end in ("onnx", "json") for path in Path().glob(f"out/m.*.{end}") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def _judged(words: tuple[str, ...], code: int, out: str, err: str, where: str, made: list[str]) -> Outcome:
    told = err.strip()[-400:]
    if where:
        return Outcome("internal", where, told)
    if code not in (0, 1, 2, 3):
        return Outcome("code", f"exit code {code}", told)
    if code in (2, 3):
        if made:
            return Outcome("wrote", f"{made[0]} with exit code {code}", told)
        lines = [line for line in err.split("\n")[:-1] if not _PROGRESS.fullmatch(line)]
        if len(lines) != 1 or out:
            return Outcome("lines", f"{len(lines)} lines, {len(out)} bytes on stdout", told)
        return Outcome("refused", "", told)
    if "--json" in words:
        try:
            json.loads(out, parse_constant=_no_constant)
        except ValueError as error:
            return Outcome("json", str(error)[:80], out[:200])
    return Outcome("answered")


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _call(words: tuple[str, ...]) -> tuple[int, str, str, str]:
    """Exit code, stdout, stderr, and where an error that nobody expected came from."""
    main: Callable[[], None] = partial(_python, *words[1:]) if words[0] == PYTHON else _main()
    sys.argv = ["halfwise", *words]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            main()
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 0, out.getvalue(), err.getvalue(), ""
        except BaseException as error:
            return -1, out.getvalue(), _text(error), _where(error)
    return -1, out.getvalue(), err.getvalue(), "main returned"


@cache
def _main() -> Callable[[], None]:
    """The entry point, with its commands built once: that takes longer than most of what is run."""
    import typer

    from halfwise.cli import main as command_line
    from halfwise.search import failures

    command_line.app = typer.main.get_command(command_line.app)  # type: ignore[assignment]
    failures.traceback = SimpleNamespace(print_exception=_silent)  # type: ignore[assignment, attr-defined]  # for developers
    return command_line.main


def _python(name: str, *given: str) -> NoReturn:
    """A public function, its answer and its errors told as the command line tells them."""
    import halfwise

    try:
        getattr(halfwise, name)(*given)
    except halfwise.HalfwiseError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except MemoryError:
        print("out of memory", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)


def _silent(error: BaseException, file: object = None) -> None:
    """Instead of the traceback of what a command did without: the fuzzer runs with HALFWISE_DEBUG, users do not."""


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:400]


def _where(error: BaseException) -> str:
    """The type of an error and the innermost place in halfwise."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/halfwise/" in f.filename]
    place = f"{frames[-1].filename.rpartition('/halfwise/')[2]} {frames[-1].name}" if frames else "nowhere"
    return f"{type(error).__name__} in {place}"


def _files() -> set[str]:
    return {str(path) for path in Path().rglob("*")}


def prepare() -> None:
    """What takes longest in a run, once for all; the limit of nodes, too, for a run has little time."""
    from halfwise.core import limits
    from halfwise.report.html.write import page_templates

    limits.MOST_NODES = _MOST_NODES
    _main()
    pages = page_templates()
    for name in pages.list_templates(["html"]):
        pages.get_template(name)


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
