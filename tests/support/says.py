"""What the program says, held against `tests/golden`: a text file for each test module, with a heading for each test.

A test that asks for `says` asserts its data itself and hands over the sentences, which are compared whole:

    says(ended.told)                 # the text
    says(ended.out, "violation")     # the lines of it that hold this
    with says.raises(InputError):    # the error's message
        load(path)

In a golden file `…` stands for any text: another library's words, or a number that differs between machines. Folders
of the tests are written `{tmp}`, the repository's own `{root}`, the version of ONNX Runtime `{onnxruntime}`.
`pytest --renew-sentences` writes the files anew, but for sentences that still hold.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnxruntime
import pytest

from tests.support.paths import ROOT

__all__ = ["GOLDEN", "Says", "file_of", "holds", "read", "written"]

GOLDEN = ROOT / "tests" / "golden"
RENEW = "--renew-sentences"
RENEWED = pytest.StashKey[dict[Path, dict[str, list[str]]]]()

_VERSION = re.compile(rf"(?<![\d.]){re.escape(onnxruntime.__version__)}(?![\d.])")


class Says:
    """Takes the sentences of one test in their order."""

    def __init__(self, kept: list[str], renew: bool, folder: Path) -> None:
        self._kept, self._renew = kept, renew
        self._folder = re.compile(rf"{re.escape(str(folder))}(/[\w-]+)?")
        self.said: list[str] = []

    def __call__(self, text: object, *about: str) -> None:
        """`about`: only the lines that hold one of these."""
        __tracebackhide__ = True
        said = self._plain("\n".join(text) if isinstance(text, list) else str(text))
        if about:
            lines = [line for line in said.splitlines() if any(each in line for each in about)]
            if not lines:
                pytest.fail(f"no line holds {' or '.join(map(repr, about))}:\n{said}")
            said = "\n".join(lines)
        kept = self._kept[len(self.said)] if len(self.said) < len(self._kept) else None
        self.said.append(kept if kept is not None and holds(kept, said) else said)
        if not self._renew and self.said[-1] != kept:
            pytest.fail(f"said:   {said}\ngolden: {kept}\n(if it is right: pytest {RENEW})")

    @contextmanager
    def raises(self, kind: type[BaseException]) -> Iterator[pytest.ExceptionInfo[BaseException]]:
        __tracebackhide__ = True
        with pytest.raises(kind) as raised:
            yield raised
        self(raised.value)

    def finish(self) -> None:
        if not self._renew and len(self.said) < len(self._kept):
            pytest.fail(f"not said any more: {self._kept[len(self.said) :]} (if that is right: pytest {RENEW})")

    def _plain(self, text: str) -> str:
        text = self._folder.sub("{tmp}", text).replace(str(ROOT), "{root}")
        lines = map(str.rstrip, _VERSION.sub("{onnxruntime}", text).splitlines())
        return "\n".join(line for line in lines if line)


def holds(kept: str, said: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, kept.split("…"))), said, re.DOTALL) is not None


def file_of(module: Path) -> Path:
    """Where the sentences of a test module are kept."""
    return (GOLDEN / module.relative_to(ROOT / "tests")).with_suffix(".txt")


@functools.cache
def read(file: Path) -> dict[str, list[str]]:
    """Of each test the sentences: a line that begins with `- `, and more lines of it, indented."""
    tests: dict[str, list[str]] = {}
    sentences: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        if line.startswith("-"):
            sentences.append(line[2:])
        elif line.startswith("  "):
            sentences[-1] += "\n" + line[2:]
        elif line:
            sentences = tests.setdefault(line, [])
    return tests


def written(tests: dict[str, list[str]], source: str) -> str:
    """The text of a golden file: the tests that the module still has, in its order."""
    order = {name: place for place, name in enumerate(re.findall(r"def (test_\w+)", source))}
    kept = [name for name in tests if tests[name] and name.partition("[")[0] in order]
    kept.sort(key=lambda name: order[name.partition("[")[0]])
    return "\n".join(name + "\n" + "".join(_entry(each) for each in tests[name]) for name in kept)


def _entry(sentence: str) -> str:
    return f"- {sentence}".rstrip().replace("\n", "\n  ") + "\n"


# -- what pytest calls: tests/conftest.py hands these on -------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(RENEW, action="store_true", help="write tests/golden anew from what the tests that pass say")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    if config.getoption(RENEW) and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError(f"{RENEW} needs all tests in one process: leave out -n")


@pytest.fixture
def says(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Says:
    kept = read(file_of(request.path)).get(request.node.name, [])
    return Says(kept, request.config.getoption(RENEW), tmp_path_factory.getbasetemp())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield  # a test that fails or is skipped ends here
    taken = getattr(item, "funcargs", {}).get("says")
    if isinstance(taken, Says):
        taken.finish()
    if item.config.getoption(RENEW):
        said = taken.said if isinstance(taken, Says) else []
        item.config.stash.setdefault(RENEWED, {}).setdefault(item.path, {})[item.name] = said


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.getoption(RENEW):
        return
    for module, tests in session.config.stash.get(RENEWED, {}).items():
        file = file_of(module)
        text = written({**read(file), **tests}, module.read_text(encoding="utf-8"))
        if text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        else:
            file.unlink(missing_ok=True)
