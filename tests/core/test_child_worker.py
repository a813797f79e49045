"""Functions in a child process: every answer comes back whole, and whatever the child does, the parent is told."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from halfwise.core.child import kept
from halfwise.core.child.arrays import read_arrays, write_arrays
from halfwise.core.child.serve import Answer, Request
from halfwise.core.child.worker import ChildDied, ChildFailed, Worker, call
from halfwise.core.errors import InputError, MissingBackend, NoRoom
from tests.support.says import Says

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and process groups are POSIX")
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
LIMIT = 60.0


# -- functions for a child --------------------------------------------------------------------------------------------


def double(request: Request) -> Answer:
    return Answer(
        {"pid": os.getpid(), **request.data},
        tuple({name: array * 2 for name, array in each.items()} for each in request.arrays),
    )


def misbehave(request: Request) -> Answer:
    how = request.data["how"]
    print("last words", flush=True)
    if how == "missing":
        raise MissingBackend("no library")
    if how == "input":
        raise InputError("no such input")
    if how == "work":
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            pass
        return Answer({"done": True})
    if how == "disk":
        raise OSError(28, "No space left on device")
    if how == "disk of a file":
        raise OSError(28, "No space left on device", "/small/engine")
    if how == "answer":
        return Answer({}, [{"y": np.broadcast_to(np.zeros(1), (1 << 50,))}])
    if how == "memory":
        raise MemoryError("no room")
    if how == "exit":
        os._exit(int(request.data["code"]))
    if how == "signal":
        os.kill(os.getpid(), int(request.data["code"]))
    time.sleep(LIMIT)
    return Answer({})


def report_progress(request: Request) -> Answer:
    for step in range(3):
        request.notify(f"step {step}")
    return Answer({})


def chatter(request: Request) -> Answer:
    """What a native library does: prints to the output, reads the input."""
    os.write(1, b'{"answer": "not mine"}\n')
    print("to stdout")
    print("to stderr", file=sys.stderr)
    return Answer({"read": sys.stdin.read(), "file": os.read(0, 1).decode()})


def hold(request: Request) -> Answer:
    """Keeps a pipe open for as long as it lives, after it has signalled its parent."""
    os.open(request.data["pipe"], os.O_WRONLY)
    os.kill(os.getppid(), int(request.data["signal"]))
    time.sleep(LIMIT)
    return Answer({})


def here(name: str) -> str:
    return f"{__name__}:{name}"


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker() as made:
        yield made


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


# -- answers ----------------------------------------------------------------------------------------------------------


def test_one_child_answers_request_after_request(worker: Worker) -> None:
    pids = set()
    for number in range(3):
        arrays = ({"a/../b:0": np.arange(3.0) + number}, {})
        answer = worker.ask(here("double"), {"number": number}, arrays, time_limit_s=LIMIT)
        pids.add(answer.data["pid"])
        assert answer.data["number"] == number
        np.testing.assert_array_equal(answer.arrays[0]["a/../b:0"], (np.arange(3.0) + number) * 2)
        assert answer.arrays[1] == {}
    assert len(pids) == 1 and os.getpid() not in pids


def test_arrays_of_every_kind_keep_name_type_and_value(tmp_path: Path) -> None:
    arrays = {
        "names": np.array(["a", "grüße"], object),
        "": np.array([1.5, 65504], np.float16),
        "../x": np.array([True, False]),
        "empty": np.zeros((0, 3), np.int64),
        "scalar": np.array(3.5, np.float32),
    }
    write_arrays(tmp_path / "a.npz", {**arrays, "bf16": np.array([1.5, 3e38], ml_dtypes.bfloat16)})
    read = read_arrays(tmp_path / "a.npz")
    assert read.pop("bf16").dtype == np.float32
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(read[name], array)


def test_progress_is_told_in_order(worker: Worker) -> None:
    told: list[str] = []
    worker.ask(here("report_progress"), {}, time_limit_s=LIMIT, notify=told.append)
    assert told == ["step 0", "step 1", "step 2"]


def test_what_a_library_prints_goes_to_the_log_and_it_finds_no_input(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n", encoding="utf-8")
    answer = call(here("chatter"), {}, time_limit_s=LIMIT, log_path=log)
    assert answer.data == {"read": "", "file": ""}
    lines = log.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "before" and {'{"answer": "not mine"}', "to stdout", "to stderr"} == set(lines[1:])


def test_a_child_imports_what_its_parent_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library, working = tmp_path / "library", tmp_path / "here"
    library.mkdir()
    working.mkdir()
    (library / "only_here.py").write_text(
        "import colorsys\nfrom halfwise.core.child.serve import Answer\n"
        "def name(request): return Answer({'file': colorsys.__file__})",
        encoding="utf-8",
    )
    # The working directory must not come first: a user's colorsys.py or tensorrt.py is not the library.
    (working / "colorsys.py").write_text("raise SystemExit('the wrong colorsys')", encoding="utf-8")
    monkeypatch.syspath_prepend(str(library))
    monkeypatch.chdir(working)
    assert str(working) not in call("only_here:name", {}, time_limit_s=LIMIT).data["file"]


def test_the_environment_is_the_parents_and_what_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFWISE_TEST_KEPT", "kept")
    answer = call(here("environment"), {}, time_limit_s=LIMIT, environment={"HALFWISE_TEST_ADDED": "added"})
    assert answer.data == {"HALFWISE_TEST_KEPT": "kept", "HALFWISE_TEST_ADDED": "added"}
    assert "HALFWISE_TEST_ADDED" not in os.environ


def environment(request: Request) -> Answer:
    return Answer({name: value for name, value in os.environ.items() if name.startswith("HALFWISE_TEST_")})


# -- bad ends ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ("missing", MissingBackend, "no library"),
        ("input", ChildFailed, "no such input"),
        ("memory", ChildFailed, "MemoryError: no room"),
    ],
)
def test_a_function_that_fails_says_why_and_its_child_lives(
    worker: Worker, how: str, error: type[Exception], told: str
) -> None:
    before = worker.ask(here("double"), {}, time_limit_s=LIMIT).data["pid"]
    with pytest.raises(error) as caught:
        worker.ask(here("misbehave"), {"how": how}, time_limit_s=LIMIT)
    assert str(caught.value) == told
    assert worker.ask(here("double"), {}, time_limit_s=LIMIT).data["pid"] == before


@pytest.mark.parametrize("how", ["disk", "disk of a file"])
def test_a_full_disk_in_the_child_is_told_as_here(
    worker: Worker, how: str, says: Says, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What, where, and what to do; the child lives."""
    with says.raises(NoRoom):
        worker.ask(here("misbehave"), {"how": how}, time_limit_s=LIMIT)
    assert worker.ask(here("double"), {"by": 3}, [{"x": np.ones(2)}], time_limit_s=LIMIT).data


def test_an_answer_that_the_disk_cannot_take_is_told(worker: Worker) -> None:
    with pytest.raises(NoRoom, match=r"^no room .*TMPDIR\): it takes 9.01e\+06 GB, and .* are left; make room, or"):
        worker.ask(here("misbehave"), {"how": "answer"}, time_limit_s=LIMIT)


def test_a_request_that_the_disk_cannot_take_is_told(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=3_000_000))
    with says.raises(NoRoom):
        worker.ask(here("double"), {}, [{"x": np.zeros(1_000_000)}], time_limit_s=LIMIT)


@pytest.mark.parametrize("function", ["no_such_module:f", "json:no_such_function"])
def test_a_function_that_is_not_there_is_a_failure(worker: Worker, function: str) -> None:
    with pytest.raises(ChildFailed):
        worker.ask(function, {}, time_limit_s=LIMIT)


@pytest.mark.parametrize(
    "how",
    [
        {"how": "exit", "code": 0},
        {"how": "exit", "code": 3},
        pytest.param({"how": "signal", "code": signal.SIGSEGV}, marks=posix),
        pytest.param({"how": "signal", "code": 9}, marks=posix),
        pytest.param({"how": "signal", "code": getattr(signal, "SIGBUS", 7)}, marks=posix),
        {"how": "hang"},
    ],
)
def test_a_child_that_dies_is_told_in_one_line_with_its_last_words(
    worker: Worker, how: dict[str, int], says: Says
) -> None:
    worker.ask(here("double"), {}, time_limit_s=LIMIT)  # so that the time limit below is not for starting Python
    with pytest.raises(ChildDied) as caught:
        worker.ask(here("misbehave"), how, time_limit_s=2 if how["how"] == "hang" else LIMIT)
    says(caught.value.ended.describe())
    says(caught.value.tell("counting"))
    with pytest.raises(ChildDied):  # and this child is of no more use
        worker.ask(here("double"), {}, time_limit_s=LIMIT)


def test_a_child_that_never_starts_to_answer_is_told_too() -> None:
    with Worker(environment={"PYTHONHOME": "/nowhere"}) as worker, pytest.raises(ChildDied) as caught:
        worker.ask(here("double"), {}, time_limit_s=LIMIT)
    assert caught.value.ended.returncode != 0 and caught.value.tail


@pytest.mark.skipif(sys.platform != "linux", reason="the times of threads are Linux's")
def test_a_child_that_computes_nothing_any_more_is_ended(worker: Worker, says: Says) -> None:
    """As a library that waits for a thread which never began."""
    with pytest.raises(ChildDied) as caught:
        worker.ask(here("misbehave"), {"how": "wait"}, time_limit_s=LIMIT, idle_limit_s=0.5)
    assert caught.value.ended.idle and not caught.value.ended.killed and not caught.value.ended.timed_out
    says(caught.value.ended.describe().replace(f"{caught.value.ended.seconds:.0f} s", "1 s"))


def test_a_child_that_computes_is_not_idle(worker: Worker) -> None:
    assert worker.ask(here("misbehave"), {"how": "work"}, time_limit_s=LIMIT, idle_limit_s=0.3).data == {"done": True}


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_time_limit_must_be_positive(limit: float, says: Says) -> None:
    with says.raises(InputError):
        call(here("double"), {}, time_limit_s=limit)


@posix
def test_an_interrupt_ends_the_child_and_goes_on(pipe: tuple[str, int]) -> None:
    name, reader = pipe
    parent = (
        f"import signal, sys; sys.path[:] = {sys.path!r}; from halfwise.core.child.worker import call\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job would ignore it
        f"try: call({here('hold')!r}, {{'pipe': {name!r}, 'signal': 2}}, time_limit_s=60)\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "interrupted\n"
    assert closed(reader)


@linux
def test_a_child_ends_with_a_parent_that_was_killed(pipe: tuple[str, int]) -> None:
    name, reader = pipe
    parent = (
        f"import sys; sys.path[:] = {sys.path!r}; from halfwise.core.child.worker import call; "
        f"call({here('hold')!r}, {{'pipe': {name!r}, 'signal': 9}}, time_limit_s=60)"
    )
    assert subprocess.run([sys.executable, "-c", parent], timeout=60, check=False).returncode == -9
    assert closed(reader)


def test_a_worker_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Worker() as worker:
        worker.ask(here("double"), {}, ({"a": np.ones(2)},), time_limit_s=LIMIT)
    with pytest.raises(ChildDied):
        call(here("misbehave"), {"how": "exit", "code": 1}, time_limit_s=LIMIT)
    assert list(tmp_path.iterdir()) == []


# -- the child that is kept -------------------------------------------------------------------------------------------


def test_one_child_is_kept_and_a_dead_one_is_replaced() -> None:
    first = kept.ask(here("double"), {}, time_limit_s=LIMIT).data["pid"]
    assert kept.ask(here("double"), {}, time_limit_s=LIMIT).data["pid"] == first
    with pytest.raises(ChildFailed):
        kept.ask(here("misbehave"), {"how": "memory"}, time_limit_s=LIMIT)
    assert kept.ask(here("double"), {}, time_limit_s=LIMIT).data["pid"] == first
    with pytest.raises(ChildDied):
        kept.ask(here("misbehave"), {"how": "exit", "code": 1}, time_limit_s=LIMIT)
    assert kept.ask(here("double"), {}, time_limit_s=LIMIT).data["pid"] != first


def test_the_kept_child_outlives_the_thread_that_started_it_and_ends_with_the_process(tmp_path: Path) -> None:
    code = (
        f"import os, sys, threading; sys.path[:] = {sys.path!r}; from halfwise.core.child import kept\n"
        f"pids = []; ask = lambda: pids.append(kept.ask({here('double')!r}, {{}}, time_limit_s=60).data['pid'])\n"
        "for _ in range(2): thread = threading.Thread(target=ask); thread.start(); thread.join()\n"
        "print(*pids)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    first, second = done.stdout.split()
    assert first == second and done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(first), 0)
    assert list(tmp_path.glob("halfwise-*")) == []


def test_a_child_that_did_not_start_is_not_closed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended in a traceback behind the one line."""

    def cannot(*_: object, **__: object) -> None:
        raise MissingBackend("cannot start python: Permission denied")

    monkeypatch.setattr(kept, "_workers", {})
    monkeypatch.setattr(kept, "Worker", cannot)
    with pytest.raises(MissingBackend):
        kept.ready()
    kept._close(os.getpid())
