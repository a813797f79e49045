"""Kills a command after each of its writes, renames and removals: what is there then is whole, and the command goes on.

python -m tools.fuzz.kills fix                      every point of `halfwise fix`
python -m tools.fuzz.kills bisect fleet --points 5
"""

from __future__ import annotations

import argparse
import builtins
import io
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from halfwise.core.child import kept
from halfwise.core.child.forks import Processes
from halfwise.core.child.guard import end_with_parent
from halfwise.core.child.serve import Answer, Request
from halfwise.core.errors import InputError
from halfwise.fleet import processes
from halfwise.fleet.store import STORE
from halfwise.fleet.stored import last_run
from tools.fuzz.nursery import LOADED
from tools.fuzz.seeds import seed_model
from tools.fuzz.worker import prepare

__all__ = ["COMMANDS", "Killed", "kill_all"]

MODEL = "m.onnx"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "fix": ("fix", MODEL, "--out", "out"),
    "cost": ("fix", MODEL, "--out", "out", "--target", "trt-10.9@t4", "--cost", "roofline"),
    "stages": ("stages", MODEL, "--out", "out", "--cut", "square"),
    "bisect": ("bisect", MODEL, "--check", "sh check.sh", "--out", "out"),
    "gate": (
        "gate", MODEL, "--plan", "out/p.json", "--update",
        "--junit", "out/g.xml", "--sarif", "out/g.sarif", "--markdown", "out/g.md",
    ),
    "fleet": ("fleet", "run", "fleet.toml", "--junit", "out/f.xml", "--markdown", "out/f.md"),
}  # fmt: skip
# Good where the norm's MatMul is in FP32, which the search has to find out.
_CHECK = 'grep -q "y_fp16" "$1" && exit 1\nexit 0\n'
_PLAN = '{"schema": "halfwise.plan/1", "fp32_nodes": [], "tolerance": {"*:rel_l2": 1e-5}}'  # that does not hold
_FLEET = f"""[fleet]
results = "out"
processes = 1
[defaults]
do = ["scan", "fix"]
[[models]]
name = "m"
path = "{MODEL}"
"""
# Of before, where they get written.
_RESULTS = dict.fromkeys(("m.fp16.onnx", "m.plan.json", "g.xml", "g.sarif", "g.md"), b"of before")
_RESULTS["p.json"] = _PLAN.encode()
_STORED = "what the store says"
# What tells when it was made or how long it took, and the files of SQLite's own.
_TIMED = (".html", ".md", ".xml", ".txt", ".sqlite", ".sqlite-shm", ".sqlite-wal", ".lock", "answer.json")


@dataclass
class _Points:
    """Counts what changes the folder, and ends the process at one of the points."""

    folder: str
    fatal: int
    seen: int = 0

    def pass_(self, path: object) -> None:
        if self.holds(path):
            self.count()

    def holds(self, path: object) -> bool:
        name = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        return bool(name) and str(Path(name).absolute()).startswith(self.folder)

    def count(self) -> None:
        if self.seen == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen += 1


class _Torn:
    """A file whose writes come in two halves, with a point between them."""

    def __init__(self, file: Any, points: _Points, path: object) -> None:
        self._file, self._points, self._path = file, points, path

    def write(self, data: Any) -> Any:
        if len(data) > 1 and isinstance(data, (str, bytes)):
            middle = len(data) // 2
            self._file.write(data[:middle])
            self._file.flush()
            self._points.pass_(self._path)
            self._file.write(data[middle:])
        else:
            self._file.write(data)
        return len(data)

    def __enter__(self) -> _Torn:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Any:
        return iter(self._file)

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
            self._points.pass_(self._path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _watch(points: _Points) -> None:
    """From here on every change of the folder by Python is a point."""
    opened = io.open

    def opening(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
        found = opened(file, mode, *more, **named)
        return _Torn(found, points, file) if set(mode) & set("wax+") and points.holds(file) else found

    builtins.open = io.open = opening
    for name in ("rename", "replace", "unlink", "remove", "mkdir", "rmdir", "fsync"):
        _counted(name, points)
    connect = sqlite3.connect

    def connected(*where: Any, **named: Any) -> sqlite3.Connection:
        database: sqlite3.Connection = connect(*where, **named)
        database.set_trace_callback(lambda statement: points.count())
        return database

    sqlite3.connect = connected  # type: ignore[assignment]


class _Inline:
    """Instead of the child that runs written models: that would take most of the time, and writes nothing."""

    alive = True

    def __init__(self, modules: Sequence[str] = ()) -> None:
        pass  # all is loaded already

    def ask(self, function: str, data: Any, arrays: Any = (), *, time_limit_s: float) -> Answer:
        module, _, name = function.partition(":")
        answer: Answer = getattr(import_module(module), name)(Request(data, tuple(arrays), print))
        return answer


class _Jobs(Processes):
    """Instead of a fleet's processes: forked from here. A job has no points, for those are its command's."""

    def __init__(self, points: _Points) -> None:
        self._points = points

    def start(self, function: str, data: Any) -> int:
        process = os.fork()
        if not process:
            end_with_parent()
            self._points.fatal = -1
            module, _, name = function.partition(":")
            os._exit(getattr(import_module(module), name)(data))
        return process

    def ended(self, timeout: float) -> dict[int, int]:
        process, status = os.waitpid(-1, 0)
        return {process: os.waitstatus_to_exitcode(status)}

    def kill(self, number: int) -> None:
        os.kill(number, signal.SIGKILL)

    def close(self) -> None:
        pass


def _counted(name: str, points: _Points) -> None:
    does: Callable[..., Any] = getattr(os, name)

    def counted(path: Any, *more: Any, **named: Any) -> Any:
        answer = does(path, *more, **named)
        points.pass_(more[0] if name in ("rename", "replace") else path)
        return answer

    setattr(os, name, counted)


def _forked(folder: Path, words: Sequence[str], fatal: int = -1) -> tuple[int, int]:
    """Runs the command in a process of its own; its status, and how many points it passed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.chdir(folder)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        points = _Points(str(folder / "out"), fatal)
        _watch(points)
        from halfwise.cli.main import main

        kept._worker = _Inline  # type: ignore[assignment]
        setattr(processes, "forked", lambda preload: _Jobs(points))  # noqa: B010
        sys.argv = ["halfwise", *words]
        code = 99
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            os.write(writing, str(points.seen).encode())
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as answer:
        seen = answer.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), int(seen or -1)


def _files(folder: Path) -> dict[str, bytes]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith(_TIMED))
    files = {str(path.relative_to(folder)): path.read_bytes() for path in found}
    if (folder / STORE).exists():
        files[_STORED] = _stored(folder)
    return files


def _stored(folder: Path) -> bytes:
    """Of the last run: each job with its answer."""
    try:
        results = last_run(folder).results
    except InputError as error:
        return b"nothing yet" if "holds no run" in str(error) else str(error).encode()
    return repr(
        [(each.key, each.subject, each.state, each.why, each.fp32_nodes, each.error) for each in results]
    ).encode()


@dataclass(frozen=True)
class Killed:
    """What a command left that was killed at one point, and what the same command made of it."""

    point: int
    torn: tuple[str, ...]  # files under their names that are neither the old nor the new ones
    code: int
    differ: tuple[str, ...]  # from what an undisturbed run leaves

    @property
    def good(self) -> bool:
        return not self.torn and self.code in (0, 1) and not self.differ


def _prepared(folder: Path, old: Mapping[str, bytes]) -> Path:
    (folder / MODEL).write_bytes(seed_model("norm").SerializeToString())
    for name, text in (("check.sh", _CHECK), ("fleet.toml", _FLEET)):
        (folder / name).write_text(text)
    (folder / "out").mkdir()
    for name, content in old.items():
        (folder / "out" / name).write_bytes(content)
    return folder


def kill_all(command: str, points: int | None = None) -> list[Killed]:
    """Kill the command at every point, or at so many of them, evenly spread, over results of before."""
    words = COMMANDS[command]
    before = {} if command == "fleet" else _RESULTS
    with TemporaryDirectory(prefix="halfwise-kills-") as place:
        undisturbed = _prepared(Path(place).resolve(), before)
        code, count = _forked(undisturbed, words)
        wanted = _files(undisturbed / "out")
    assert code in (0, 1) and count > 0, (code, count)
    steps = range(count) if points is None else sorted({(2 * i + 1) * count // (2 * points) for i in range(points)})
    return [_killed(words, before, wanted, point) for point in steps]


def _killed(words: Sequence[str], old: Mapping[str, bytes], wanted: Mapping[str, bytes], point: int) -> Killed:
    with TemporaryDirectory(prefix="halfwise-kills-") as place:
        folder = _prepared(Path(place).resolve(), old)
        code, _ = _forked(folder, words, point)
        assert code == -signal.SIGKILL, code
        left = {name: content for name, content in _files(folder / "out").items() if not name.startswith(".halfwise")}
        left = {name: content for name, content in left.items() if name in {*wanted, *old} - {_STORED}}
        torn = tuple(name for name, content in left.items() if content not in (old.get(name), wanted.get(name)))
        code, _ = _forked(folder, words)
        now = _files(folder / "out")
        return Killed(point, torn, code, tuple(n for n in {*now, *wanted} if now.get(n) != wanted.get(n)))


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tools.fuzz.kills", description=__doc__)
    options.add_argument("commands", nargs="+", choices=list(COMMANDS))
    options.add_argument("--points", type=int, default=None)
    given = options.parse_args()
    for module in LOADED:  # forked processes have it then
        import_module(module)
    prepare()
    bad = 0
    for command in given.commands:
        found = kill_all(command, given.points)
        wrong = [killed for killed in found if not killed.good]
        print(*wrong, f"{command}: killed at {len(found)} points, {len(found) - len(wrong)} of them good", sep="\n")
        bad += len(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
