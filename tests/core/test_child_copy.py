"""The child that is kept is a copy of a process that has loaded what it needs, and as far from it as a fresh one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from halfwise.core.child.black_box import attached, guarded
from halfwise.core.child.serve import Answer, Request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no copy elsewhere")

BEGINS = (
    "import os, sys; sys.path[:] = {path!r}\n"
    "import numpy as np, onnxruntime\n"
    "from halfwise.core.child import kept\n"
    "kept.copied()\n"
    "kind = lambda: [type(each._lines.child).__name__ for each in kept._workers.values()]\n"
    "def asked(name, *arrays, **data):\n"
    "    told = kept.ask({module!r} + ':' + name, data, arrays, time_limit_s=60)\n"
    "    return told.data, told.arrays\n"
)


def half(request: Request) -> Answer:
    return Answer({"pid": os.getpid()}, tuple({name: each / 2 for name, each in one.items()} for one in request.arrays))


def end(request: Request) -> Answer:
    print("last words", flush=True)
    if "signal" in request.data:
        os.kill(os.getpid(), request.data["signal"])
    os._exit(request.data["code"])


def streams(request: Request) -> Answer:
    print("noise", flush=True)
    os.write(1, b"more noise\n")
    return Answer({"read": sys.stdin.read()})


def box(request: Request) -> Answer:
    with guarded(b"of the child"):
        return Answer({"attached": attached()})


def said(lines: str, folder: Path, **environment: str) -> str:
    """What a process of its own prints, which leaves no file behind."""
    code = BEGINS.format(path=sys.path, module=__name__) + lines
    surroundings = {**os.environ, "TMPDIR": str(folder), "OPENBLAS_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=surroundings, cwd=folder)
    assert done.stderr == "" and done.returncode == 0
    assert list(folder.glob("halfwise-*")) == []
    return done.stdout


def test_it_answers_and_ends_with_its_process(tmp_path: Path) -> None:
    lines = (
        "data, arrays = asked('half', {'x': np.arange(3.0)})\n"
        "print(*kind(), *arrays[0]['x'], data['pid'] != os.getpid(), data == asked('half')[0], data['pid'])"
    )
    *told, pid = said(lines, tmp_path).split()
    assert told == ["Copy", "0.0", "0.5", "1.0", "True", "True"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


@pytest.mark.parametrize(("how", "told"), [("signal=11", "SIGSEGV"), ("code=3", "exit code 3"), ("code=0", "code 0")])
def test_its_end_is_told_and_the_next_one_answers(how: str, told: str, tmp_path: Path) -> None:
    lines = (
        "from halfwise.core.child.worker import ChildDied\n"
        f"try: asked('end', {how})\n"
        "except ChildDied as died: print(died, died.tail)\n"
        "print(len(asked('half')[0]))"
    )
    first, last = said(lines, tmp_path).splitlines()
    assert told in first and "('last words',)" in first and last == "1"


def test_what_it_prints_goes_to_its_log_and_it_finds_nothing_to_read(tmp_path: Path) -> None:
    lines = "print(asked('streams')[0]['read'], *(each._log_path.read_text() for each in kept._workers.values()))"
    assert said(lines, tmp_path).split() == ["noise", "more", "noise"]


def test_it_tells_nothing_in_the_place_of_its_process(tmp_path: Path) -> None:
    lines = (
        "from halfwise.core.child.black_box import BlackBox, attach, guarded\n"
        "box = BlackBox(); attach(box); kept._workers.popitem()[1].close(); kept.copied()\n"
        "with guarded(b'of the process'): print(*kind(), asked('box')[0], box.read())"
    )
    assert said(lines, tmp_path).split() == ["Copy", "{'attached':", "False}", "b'of", "the", "process'"]


def test_where_no_copy_is_safe_nothing_is_started(tmp_path: Path) -> None:
    assert said("print(kind(), len(asked('half')[0]), *kind())", tmp_path, HALFWISE_MEMORY_LIMIT="8G") == "[] 1 Popen\n"


def test_it_is_ended_before_it_has_begun(tmp_path: Path) -> None:
    """It leads no group yet."""
    lines = (
        "import time\n"
        "kept._workers.popitem()[1].close()\n"
        "os.setsid = lambda: time.sleep(600)\n"
        "kept.copied(); print(*kind()); kept._workers.popitem()[1].close()"
    )
    assert said(lines, tmp_path) == "Copy\n"


def test_where_files_run_out_it_is_one_line_and_none_stays_open(tmp_path: Path) -> None:
    """What reads a child that has ended ends a moment later. A copy is refused while another thread runs."""
    lines = (
        "import threading, time\n"
        "from resource import RLIMIT_NOFILE, getrlimit, setrlimit\n"
        "from halfwise.core.errors import MissingBackend\n"
        "def limit(spare): setrlimit(RLIMIT_NOFILE, (numbers + spare, getrlimit(RLIMIT_NOFILE)[1]))\n"
        "def settled():\n"
        "    end = time.monotonic() + 30\n"
        "    while threading.active_count() > 1 or len(os.listdir('/proc/self/fd')) != numbers:\n"
        "        assert time.monotonic() < end, os.listdir('/proc/self/fd')\n"
        "        time.sleep(0.01)\n"
        "kept._workers.popitem()[1].close()\n"
        "while threading.active_count() > 1: time.sleep(0.01)\n"
        "numbers, told = len(os.listdir('/proc/self/fd')), set()\n"
        "for spare in range(1, 12):\n"
        "    settled(); limit(spare)\n"
        "    try: kept.copied(); told.update(kind()); kept._workers.popitem()[1].close()\n"
        "    except MissingBackend as error: told.add(str(error).rpartition(': ')[2])\n"
        "    limit(64)\n"
        "settled()\n"
        "print(*sorted(told - {'Popen'}), sep='; ')"
    )
    assert said(lines, tmp_path) == "Copy; Too many open files\n"
