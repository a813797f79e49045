"""A wheel and an sdist that hold all of the package, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import halfwise
from tests.support.paths import ROOT

PACKAGE = Path(halfwise.__file__).parent


def test_the_changelog_knows_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## {halfwise.__version__} " in text
    assert f'\nversion = "{halfwise.__version__}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_nothing_promises_a_package_index() -> None:
    """Until it is there: a checkout or the URL of a repository is what pip gets."""
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.yml"),
        ROOT / "action.yml",
    ]
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages}
    promised = {name: re.findall(r"pip install (?:-\S+ )*[\"']?halfwise.*", text) for name, text in texts.items()}
    assert not any(promised.values()), promised


@pytest.mark.skipif(find_spec("hatchling") is None, reason="the build backend is not installed (pip install hatchling)")
def test_what_is_built_holds_the_whole_package_and_no_tests(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    wanted = {
        f"halfwise/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"halfwise/py.typed", "halfwise/report/html/assets/page.js"} <= wanted
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        told = archive.read(points).decode()
    assert names == wanted
    assert "halfwise = halfwise.__main__:main" in told and "halfwise = halfwise.pytest_plugin" in told
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"CHANGELOG.md", "README.md", "LICENSE", "pyproject.toml", *(f"src/{name}" for name in wanted)} <= held
    assert not any(name.startswith(("tests", "benchmarks", ".")) for name in held - {".gitignore"})
