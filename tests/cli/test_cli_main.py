"""The entry point: help that loads nothing heavy, one line for every error, exit codes, JSON that is JSON."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from google.protobuf.message import EncodeError

import halfwise
from halfwise.cli import help as layout
from halfwise.cli import main as entry
from halfwise.core.errors import InputError, MissingBackend
from halfwise.report.shell import input_words
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, Ended, save
from tests.support.paths import ROOT
from tests.support.says import Says

NO_MEMORY = "halfwise: out of memory; HALFWISE_MEMORY_LIMIT is a limit, where it is set"
HEAVY = set("onnx onnx_ir onnxruntime numpy ml_dtypes msgspec rich jinja2 tensorrt_rtx_bindings torch".split())


@pytest.fixture
def halfwise_cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["fix", "--help"], ["bogus"], ["fix"]])
def test_help_and_bad_usage_load_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys; from halfwise.cli.main import main\n"
        f"sys.argv = ['halfwise', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('VERBS', *[name for name in sys.modules if name == 'halfwise.cli.fix'])\n"
        "print('MODULES', len(sys.modules), *{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, *names = done.stdout.rpartition("MODULES ")[2].split()
    assert HEAVY.isdisjoint(names)
    assert int(count) < 500
    assert ("VERBS halfwise.cli.fix" in done.stdout) == ("fix" in words)


def test_every_verb_is_listed_with_its_purpose(halfwise_cli: CommandLine) -> None:
    for words in ([], ["--help"]):
        ended = halfwise_cli(*words)
        assert ended.code == 0 and ended.err == ""
        for verb, summary in entry.VERBS.items():
            assert any(line.split(maxsplit=1) == [verb, summary] for line in ended.out.splitlines())


def test_version(halfwise_cli: CommandLine) -> None:
    assert halfwise_cli("--version") == Ended(0, f"halfwise {halfwise.__version__}\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ["bogus"],
        ["trace"],
        ["verify", "a.onnx"],
        ["fix", "m.onnx", "--out", "o", "--frob"],
        ["fix", "m.onnx", "--out"],
        ["fix", "m.onnx", "--out", ""],
        ["gate", "m.onnx", "--plan="],
        ["trace", __file__, "extra"],
    ],
)
def test_bad_usage_is_one_line(words: list[str], says: Says, halfwise_cli: CommandLine) -> None:
    ended = halfwise_cli(*words)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.told.startswith("halfwise: ")
    says(ended.told)
    assert "?." not in ended.told


@pytest.mark.parametrize("last", [False, True])
def test_files_that_a_shell_spelled_out_are_all_inputs(
    last: bool, halfwise_cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, inputs = save(SHAPES["healthy_mlp"](), tmp_path)
    monkeypatch.chdir(inputs)
    given = ["--inputs", *sorted(each.name for each in Path(inputs).glob("*.npz"))[:3], "--tol", "0.01"]
    words = [*given, model, model] if last else [model, model, *given]
    ended = halfwise_cli("verify", *words, "--json")
    assert ended.code == 0 and ended.document["inputs"]["samples"] == 3
    assert input_words(shlex.join(["halfwise", "verify", *map(str, words)])) == given[:4]


def test_the_base_of_usage_errors_is_the_one_meant() -> None:
    assert entry.UsageProblem.__name__ == "ClickException"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (InputError("m.onnx:\n  is no model"), 2, "halfwise: m.onnx: is no model"),
        (InputError("node 'a\x1b[2J' is odd"), 2, "halfwise: node 'a\\x1b[2J' is odd"),
        (MissingBackend("install halfwise[rtx]"), 3, "halfwise: install halfwise[rtx]"),
        (KeyboardInterrupt(), 130, "halfwise: interrupted"),
        (typer.Abort(), 130, "halfwise: interrupted"),
        (MemoryError(), 2, NO_MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 2, NO_MEMORY),
        (EncodeError("Failed to serialize proto"), 2, NO_MEMORY),
    ],
)
def test_errors_become_one_line_and_their_exit_code(
    error: BaseException, code: int, told: str, halfwise_cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(entry, "app", fails)
    monkeypatch.setattr(entry.signal, "signal", lambda *_: None)
    ended = halfwise_cli("scan", "m.onnx")
    assert (ended.code, ended.out, ended.told) == (code, "", told)


def test_a_ctrl_c_that_no_verb_caught_is_told(halfwise_cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def imports_for_long(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("halfwise.report.files.check_writable", imports_for_long)
    monkeypatch.setattr(entry.signal, "signal", lambda *_: None)
    ended = halfwise_cli("fix", __file__, "--out", "out")
    assert (ended.code, ended.out, ended.told) == (130, "", "halfwise: interrupted")


def test_a_defect_of_our_own_is_one_line_too(
    halfwise_cli: CommandLine, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(entry, "app", fails)
    monkeypatch.delenv("HALFWISE_DEBUG", raising=False)
    ended = halfwise_cli("scan", "m.onnx")
    assert ended.code == 2
    says(ended.told)


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(entry, "app", fails)
    monkeypatch.setenv("HALFWISE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        entry.main()


@pytest.mark.skipif(os.name == "nt", reason="POSIX pipes")
def test_a_reader_that_leaves_changes_neither_exit_code_nor_stderr(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", y=np.zeros(3, np.float32))
    np.savez(tmp_path / "b.npz", y=np.ones(3, np.float32))
    read_end, write_end = os.pipe()
    os.close(read_end)
    words = ["-m", "halfwise", "verify", str(tmp_path / "a.npz"), str(tmp_path / "b.npz"), "--json"]
    done = subprocess.run([sys.executable, *words], stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
def test_a_stdout_that_is_closed_does_not_matter(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", y=np.zeros(3, np.float32))
    words = [sys.executable, "-m", "halfwise", "verify", str(tmp_path / "a.npz"), str(tmp_path / "a.npz")]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_any_streams_may_be_closed(closed: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", y=np.zeros(3, np.float32))
    words = [sys.executable, "-m", "halfwise", "verify", str(tmp_path / "a.npz")]
    for name, code in (("a.npz", 0), ("missing.npz", 2)):
        ended = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *words, str(tmp_path / name)], capture_output=True
        )
        assert (ended.returncode, ended.stderr, bool(ended.stdout)) == (code, b"", code == 0 and closed == "2>&-")


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")
def test_no_file_gets_the_number_of_a_closed_stream() -> None:
    """Or what a library prints would be written into it."""
    code = "import os, tempfile; from halfwise.__main__ import _fill_closed_streams as fill; fill()\n"
    code += "os._exit(tempfile.TemporaryFile().fileno())"
    ended = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code])
    assert ended.returncode > 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_line_that_nobody_can_read_changes_no_exit_code(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "halfwise", "scan", str(tmp_path / "missing.onnx")]
        assert subprocess.run(words, stderr=full).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told(tmp_path: Path, says: Says) -> None:
    np.savez(tmp_path / "a.npz", y=np.zeros(3, np.float32))
    words = [sys.executable, "-m", "halfwise", "verify", str(tmp_path / "a.npz"), str(tmp_path / "a.npz")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    says(done.stderr)


def test_no_room_for_a_temporary_file_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    """What is written to names no file."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("halfwise.cli.main.app", full)
    monkeypatch.setattr("tempfile.tempdir", "/small")
    assert entry.run_words(["scan", "m.onnx"]) == 2
    says(capsys.readouterr().err)


def test_names_in_any_script_survive_a_terminal_with_few_letters(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", größe=np.zeros(3, np.float32))
    words = ["-m", "halfwise", "verify", str(tmp_path / "a.npz"), str(tmp_path / "a.npz")]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, *words], capture_output=True, env=environment)
    assert done.returncode == 0
    assert b"gr\\xf6\\xdfe" in done.stdout


def test_a_ctrl_c_of_which_a_library_made_an_error_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As modules in C do where they cannot be loaded for it."""

    def loads(*_: object, **__: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as pressed:
            raise ImportError("initialization failed") from pressed

    monkeypatch.setattr("halfwise.cli.main.app", loads)
    monkeypatch.setattr(entry.signal, "signal", lambda *_: None)
    assert entry.run_words(["scan", "m.onnx"]) == 130
    assert capsys.readouterr().err == "halfwise: interrupted\n"


def test_a_ctrl_c_while_the_command_line_is_loaded_is_told() -> None:
    code = (
        "import runpy, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "sys.argv = ['halfwise', '--help']\n"
        "runpy.run_module('halfwise', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "halfwise: interrupted\n")


def test_the_installed_command_starts_there_too() -> None:
    """What is loaded before the handler stands is little."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'halfwise = "halfwise.__main__:main"' in project
    code = "import sys; before = set(sys.modules); import halfwise.__main__; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} <= {"halfwise", *sys.stdlib_module_names}


def test_every_verb_has_a_group_and_an_example() -> None:
    grouped = [verb for verbs in layout.VERB_GROUPS.values() for verb in verbs]
    assert sorted(grouped) == sorted([*entry.VERBS, *entry.GROUPS])
    for verb, example in layout.EXAMPLES.items():
        assert example.split()[:2] == ["halfwise", verb or "fix"]
    assert set(layout.EXAMPLES) == {"", *entry.VERBS, *entry.GROUPS}


@pytest.mark.parametrize("words", [["-h"], ["fix", "-h"]])
def test_help_is_short_to_ask_for_and_begins_with_an_example(words: list[str], halfwise_cli: CommandLine) -> None:
    shown = halfwise_cli(*words).out
    assert shown == halfwise_cli(*words[:-1], "--help").out
    lines = shown.splitlines()
    assert lines[2] == "Example:" and lines[3].startswith("  halfwise fix model.onnx ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_verbs_and_options(shell: str) -> None:
    variables = {"_HALFWISE_COMPLETE": f"complete_{shell}", "COMP_WORDS": "halfwise ga", "COMP_CWORD": "1"}
    variables |= {"_TYPER_COMPLETE_ARGS": "halfwise ga", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    code = "import sys; from halfwise.cli.main import main; sys.argv = ['halfwise']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **variables})
    assert "gate" in done.stdout and "scan" not in done.stdout
