"""The targets there are: each has its object, and nothing else asks which runtime it is."""

from __future__ import annotations

import ast
from pathlib import Path

import halfwise
from halfwise.core.targets import RUNTIMES, Target
from halfwise.deploy.targets import KINDS, kind_of
from halfwise.emulation.profiles import PROFILES

PACKAGE = Path(halfwise.__file__).parent
ASKED_IN = ("core/targets/", "deploy/targets/")


def test_every_runtime_has_its_object_and_its_profile() -> None:
    assert KINDS.keys() == RUNTIMES.keys()
    for name, runtime in RUNTIMES.items():
        kind = kind_of(Target.parse(runtime.examples[0]))
        assert kind is KINDS[name] and kind.runtime is runtime
        assert PROFILES[runtime.profile] is kind.profile


def test_no_other_module_names_a_runtime() -> None:
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(ASKED_IN):
            continue
        modules = {
            each.module for each in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(each, ast.ImportFrom)
        }
        assert "halfwise.core.targets.runtimes" not in modules, place
