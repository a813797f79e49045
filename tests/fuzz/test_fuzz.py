"""The fuzzer: what it found once, a fixed seed, and that it sees what it looks for."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tools.fuzz.attacks import ATTACKS
from tools.fuzz.campaign import Campaign, recipes
from tools.fuzz.child import Child
from tools.fuzz.outcome import Outcome
from tools.fuzz.recipe import Recipe

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
