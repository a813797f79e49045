"""A child may do anything: the parent gets a plain answer, and nothing of the child is left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.core.child import process
from halfwise.core.errors import InputError, MissingBackend
from tests.support.says import Says

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups are POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")

# A process that holds the pipe open for as long as it lives.
HOLD = "import os, time; os.open({pipe!r}, os.O_WRONLY); {then}; time.sleep(60)"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "child.log"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A named pipe and its reading end."""
    name = str(tmp_path / "alive")
    os.mkfifo(name)
    reader = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
    yield name, reader
    os.close(reader)


def closed(reader: int) -> bool:
    """Whether every process that held the pipe open has ended, or does within some seconds."""
    return bool(select.select([reader], [], [], 10)[0]) and os.read(reader, 1) == b""


def test_what_the_child_prints_goes_to_the_log_in_order(log: Path) -> None:
    log.write_text("before\n", encoding="utf-8")
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr); print(repr(sys.stdin.read()))"
    ended = process.run(python(code), log_path=log, time_limit_s=60)
    assert ended.ok and (ended.returncode, ended.timed_out) == (0, False) and ended.seconds > 0
    assert log.read_text(encoding="utf-8").split() == ["before", "out", "err", "''"]


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(3)",
        "raise MemoryError",
        pytest.param("import os; os.abort()", marks=posix),
        pytest.param("import os; os.kill(os.getpid(), 11)", marks=posix),
        pytest.param("import os; os.kill(os.getpid(), 9)", marks=posix),
    ],
)
def test_every_bad_end_is_told_in_words(log: Path, code: str, says: Says) -> None:
    ended = process.run(python(code), log_path=log, time_limit_s=60)
    assert not ended.ok
    says(ended.describe())


def test_a_crash_on_windows_is_called_so() -> None:
    assert process.Ended(0xC0000005, 1.0, 9.0, False).describe() == "crashed (exit code 0xc0000005)"


@posix
def test_the_time_limit_ends_the_child_and_its_children(log: Path, pipe: tuple[str, int], says: Says) -> None:
    name, reader = pipe
    grandchild = HOLD.format(pipe=name, then="pass")
    code = (
        "import subprocess, sys, time; "
        f"subprocess.Popen([sys.executable, '-c', {grandchild!r}]); {HOLD.format(pipe=name, then='pass')}"
    )
    ended = process.run(python(code), log_path=log, time_limit_s=1)
    assert ended.timed_out and not ended.ok
    says(ended.describe())
    assert closed(reader)


@posix
def test_an_interrupt_ends_the_child_and_goes_on(log: Path, pipe: tuple[str, int]) -> None:
    name, reader = pipe
    child = HOLD.format(pipe=name, then="os.kill(os.getppid(), 2)")
    parent = (
        f"from pathlib import Path; from halfwise.core.child import process; import signal, sys\n"
        f"signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job would ignore it
        f"try: process.run([sys.executable, '-c', {child!r}], log_path=Path({str(log)!r}), time_limit_s=60)\n"
        f"except KeyboardInterrupt: print('interrupted')"
    )
    done = subprocess.run(python(parent), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "interrupted\n"
    assert closed(reader)


@posix
def test_an_interrupt_while_the_child_starts_ends_it_too(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, begun = subprocess.Popen.__init__, []

    def pressed(child: Any, *args: Any, **kwargs: Any) -> None:
        begin(child, *args, **kwargs)
        begun.append(child)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "__init__", pressed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            process.run(python("import time; time.sleep(60)"), log_path=log, time_limit_s=60)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert [child.returncode for child in begun] == [-signal.SIGKILL]


@linux
def test_a_child_ends_with_a_parent_that_was_killed(log: Path, pipe: tuple[str, int]) -> None:
    name, reader = pipe
    guard = "from halfwise.core.child.serve import guard_child; guard_child()"
    child = HOLD.format(pipe=name, then=f"{guard}; os.kill(os.getppid(), 9)")
    parent = (
        "from pathlib import Path; from halfwise.core.child import process; import sys; "
        f"process.run([sys.executable, '-c', {child!r}], log_path=Path({str(log)!r}), time_limit_s=60)"
    )
    done = subprocess.run(python(parent), timeout=60, check=False)
    assert done.returncode == -9
    assert closed(reader)


@linux
def test_the_kernel_takes_a_guarded_child_before_its_parent(log: Path) -> None:
    code = (
        "from pathlib import Path; from halfwise.core.child.serve import guard_child; guard_child(); "
        "print(Path('/proc/self/oom_score_adj').read_text())"
    )
    assert process.run(python(code), log_path=log, time_limit_s=60).ok
    assert log.read_text(encoding="utf-8").split() == ["1000"]


def test_a_command_that_is_not_there_is_a_missing_backend(log: Path, says: Says) -> None:
    with says.raises(MissingBackend):
        process.run(["no-such-tool"], log_path=log, time_limit_s=1)


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_time_limit_must_be_positive(log: Path, limit: float, says: Says) -> None:
    with says.raises(InputError):
        process.run(python("pass"), log_path=log, time_limit_s=limit)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30), max_size=30), st.integers(1, 9))
def test_the_tail_is_the_last_lines_that_say_anything(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], count: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "log"
    path.write_text("\n".join(lines), encoding="utf-8", newline="\n")
    assert list(process.log_tail(path, lines=count)) == [line.rstrip() for line in lines if line.strip()][-count:]


def test_the_tail_of_a_huge_log_is_read_from_its_end(log: Path) -> None:
    log.write_bytes(b"x" * 1_000_000 + b"\nlast but one\n\n\xff last\n")
    assert process.log_tail(log, lines=2) == ("last but one", "\ufffd last")
    assert process.log_tail(log.with_name("absent")) == ()
