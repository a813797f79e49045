"""Windows, as far as it can be played here: what only POSIX has is taken away before halfwise is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import halfwise

PLAYED = """
import importlib, pkgutil, shutil, signal, sys, sysconfig, os, types
import asyncio, concurrent.futures, ctypes, multiprocessing.connection, multiprocessing.forkserver, socket, sqlite3
import subprocess, tarfile, tempfile, uuid  # what asks for the platform while it is loaded
import jinja2, ml_dtypes, msgspec, numpy, onnx.reference, onnx_ir, onnxruntime, rich.progress, typer

sysconfig.get_config_vars()
GONE = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}


class Windows:
    def find_spec(self, name, path=None, target=None):
        if name in GONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


for name in GONE:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Windows())
for module, names in (
    (os, "fork forkpty killpg setsid getppid sched_getaffinity memfd_create getuid geteuid getpgid uname nice"),
    (os, "WIFEXITED WIFSIGNALED WEXITSTATUS WTERMSIG sysconf fchmod mkfifo getloadavg posix_fadvise"),
    (signal, "SIGALRM SIGHUP SIGUSR1 SIGCHLD SIGBUS SIGTRAP SIGPIPE pthread_sigmask setitimer alarm"),
    (signal, "ITIMER_REAL SIG_BLOCK SIG_SETMASK"),
):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=lambda file, mode, size: None)
sys.platform = "win32"

import halfwise

LEFT_OUT = ("halfwise.olive", "halfwise.pytest_plugin", "halfwise.verbs.torch", "halfwise.__main__")
for info in pkgutil.walk_packages(halfwise.__path__, "halfwise."):
    if not info.name.startswith(LEFT_OUT):
        importlib.import_module(info.name)
sys.argv = ["halfwise", "demo", "--out", sys.argv[1]]
from halfwise.__main__ import main

main()
"""


def test_every_call_that_opens_text_names_its_encoding() -> None:
    """A machine's own may be another than UTF-8."""
    words = [
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--preview",
        "--select",
        "PLW1514",
        str(Path(halfwise.__file__).parent),
    ]
    found = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="this is Windows")
def test_the_main_job_runs_without_what_only_posix_has(tmp_path: Path) -> None:
    """In a folder of its own for temporary files: its locks lock nothing, so that it clears away what others hold."""
    words = [sys.executable, "-c", PLAYED, str(tmp_path / "out")]
    apart = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(words, capture_output=True, text=True, env=apart)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "HW201" in ran.stdout and ran.stderr == ""
    written = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {"demo.fp16.onnx", "demo.plan.json", "demo.report.html"} <= written
