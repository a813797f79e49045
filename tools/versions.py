"""Versions of what the project stands on, from pyproject.toml and from the environment that the tool runs in.

python -m tools.versions oldest   requirements that name the oldest versions allowed
python -m tools.versions lock     writes constraints.txt: the version of every package that development needs, as
                                  installed here
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

__all__ = ["LOCK", "locked", "oldest"]

_ROOT = Path(__file__).parent.parent
LOCK = _ROOT / "constraints.txt"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def _listed(key: str) -> list[str]:
    """The strings of a list in pyproject.toml."""
    text = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf"^{key} = \[(.*?)\]$", text, re.M | re.S)
    assert found is not None, key
    return re.findall(r'"([^"]+)"', found[1])


def oldest() -> list[str]:
    return [requirement.replace(">=", "==", 1) for requirement in _listed("dependencies")]


def locked() -> list[str]:
    """Every package that the project and its development group need, and what those need."""
    found: dict[str, str] = {}
    waiting = [*_listed("dependencies"), *_listed("dev"), *_listed("requires")]
    while waiting:
        requirement = waiting.pop()
        named = _NAME.match(requirement)
        assert named is not None, requirement
        name = re.sub(r"[-_.]+", "-", named[0]).lower()
        if name in found or "extra ==" in requirement:
            continue
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # for another system or another Python
            continue
        waiting += metadata.requires(name) or []
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def main(words: Iterable[str]) -> int:
    if list(words) == ["oldest"]:
        print("\n".join(oldest()))
    elif list(words) == ["lock"]:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        head = f"# Made by `python -m tools.versions lock` with Python {python}.\n"
        LOCK.write_text(head + "\n".join(locked()) + "\n", encoding="utf-8")
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
