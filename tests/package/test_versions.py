"""The versions that development is held to are ones that the project allows."""

from __future__ import annotations

import re

from tools.versions import LOCK, oldest


def test_every_dependency_has_its_version_in_the_lock() -> None:
    held = dict(line.split("==") for line in LOCK.read_text(encoding="utf-8").splitlines() if "==" in line)
    for requirement in oldest():
        name, least = re.split("==", requirement.partition(";")[0])
        if ";" not in requirement:  # else for another Python
            assert _number(held[re.sub(r"[-_.]+", "-", name).lower()]) >= _number(least)


def test_the_lock_names_no_place() -> None:
    assert "://" not in LOCK.read_text(encoding="utf-8")


def _number(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
