"""The fuzzer: what it found once, a fixed seed, and that it sees what it looks for."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tools.fuzz.attacks import ATTACKS
from tools.fuzz.campaign import Campaign, recipes
from tools.fuzz.child import Child
from tools.fuzz.outcome import Outcome
from tools.fuzz.recipe import Recipe, Unsuitable
from tools.fuzz.seeds import CASE

KEPT = sorted(Path(__file__).with_name("kept").glob("*.json"))
CHEAP = (
    "scan scan scan layers log outputs checkpoint index result-compare inputs journal-forged walk-told fleet-shown"
).split()


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.close()


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_was_found_once(path: Path, child: Child) -> None:
    outcome = child.run(Recipe.from_json(json.loads(path.read_text())))
    assert not outcome.bad, outcome
    assert outcome.kind in ("answered", "refused")


def test_what_was_found_once_is_made_anew_with_every_version() -> None:
    """Which node cases ONNX has hangs on its version."""
    seeds = {path.stem: json.loads(path.read_text())["seed"] for path in KEPT}
    assert [stem for stem, seed in seeds.items() if seed.startswith(CASE)] == []


def test_a_fixed_seed(child: Child) -> None:
    campaign = Campaign(child, lambda text: None)
    campaign.run(islice(recipes([ATTACKS[name] for name in CHEAP], "20"), 100), float("inf"))
    assert not campaign.told.findings, campaign.told.findings
    kinds = {kind for _, kind in campaign.told.counts}
    assert {"answered", "refused"} <= kinds


def test_the_same_seed_makes_the_same_files(tmp_path: Path) -> None:
    for recipe in islice(recipes([ATTACKS[name] for name in ("scan", "layers", "inputs", "checkpoint")], "3"), 12):
        written = []
        for folder in (tmp_path / "a", tmp_path / "b"):
            folder.mkdir(exist_ok=True)
            try:
                recipe.write(folder)
            except Exception as error:  # mutations that leave no file
                written.append(repr(error))
            else:
                written.append((folder / ATTACKS[recipe.attack].file).read_bytes())
        assert written[0] == written[1]


class Saying(Child):
    """Instead of runs, what a function says of recipes."""

    def __init__(self, says: Any) -> None:
        super().__init__()
        self.run = says


def test_a_finding_is_cut_to_what_it_needs(tmp_path: Path) -> None:
    def says(recipe: Recipe) -> Outcome:
        names = [name for name, _ in recipe.mutations]
        return Outcome("internal", "KeyError in x.py f") if "guilty" in names else Outcome("answered")

    campaign = Campaign(Saying(says), lambda text: None)
    mutations = (("a", 1), ("guilty", 2), ("b", 3), ("c", 4))
    campaign.run(iter([Recipe("scan", "norm", mutations), Recipe("scan", "norm", (("a", 5),))]), float("inf"))
    (finding,) = campaign.told.findings.values()
    assert finding.recipe.mutations == (("guilty", 2),)
    assert campaign.told.counts == {("scan", "internal"): 1, ("scan", "answered"): 1}
    again = Recipe.from_json(json.loads(finding.write(tmp_path).read_text()))
    assert again == finding.recipe


def test_ends_of_the_process_and_files_that_are_left_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import tools.fuzz.worker as worker

    recipe = Recipe("scan", "norm", ())
    for write, code, kind in ((True, 2, "wrote"), (False, 2, "lines"), (False, 9, "code")):

        def main(write: bool = write, code: int = code) -> None:
            if write:
                Path("left").touch()
                print("one line", file=sys.stderr)
            sys.exit(code)

        monkeypatch.setattr(worker, "_main", lambda main=main: main)
        assert worker.run(recipe).kind == kind


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for the process")
def test_a_process_that_dies_is_a_finding(child: Child) -> None:
    assert child._process is not None
    (runner,) = Path(f"/proc/{child._process.pid}/task/{child._process.pid}/children").read_text().split()
    os.kill(int(runner), signal.SIGKILL)
    sound = Recipe("scan", "norm", ())
    assert child.run(sound) == Outcome("death", "SIGKILL")
    assert child.run(sound).kind == "answered"


def test_another_answer_than_without_the_damage_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import tools.fuzz.worker as worker

    answered = Outcome("answered")
    for now, kind in (({"out/m.plan.json": "a"}, "answered"), ({"out/m.plan.json": "b"}, "differs"), ({}, "differs")):
        answers = {0: {"out/m.plan.json": "a"}, 1: now}
        monkeypatch.setattr(worker, "_tried", lambda recipe, told=answers: (answered, told[len(recipe.mutations)]))
        worker._undamaged.cache_clear()
        assert worker.run(Recipe("journal", "norm", (("line_gone", 1),))).kind == kind
    worker._undamaged.cache_clear()
    assert worker.run(Recipe("journal-forged", "norm", (("json_gone", 1),))).kind == "answered"


@pytest.mark.skipif(sys.platform == "win32", reason="links as POSIX has them")
def test_what_stands_in_the_place_of_a_file_is_the_same_again(tmp_path: Path) -> None:
    for recipe in islice(recipes([ATTACKS["journal"], ATTACKS["lock"]], "5"), 40):
        seen = []
        for name in ("a", "b"):
            folder = tmp_path / recipe.attack / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with suppress(Unsuitable):
                recipe.write(folder)
            seen.append(sorted((str(path.relative_to(folder)), path.lstat().st_mode) for path in folder.rglob("*")))
        assert seen[0] == seen[1]
