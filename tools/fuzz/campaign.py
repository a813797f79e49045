"""Recipes one after the other: counts what became of them, and keeps of every new finding the shortest recipe."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.fuzz.attack import Attack
from tools.fuzz.attacks import ATTACKS
from tools.fuzz.child import Child
from tools.fuzz.outcome import Outcome
from tools.fuzz.recipe import Recipe
from tools.fuzz.seeds import case_names

__all__ = ["Campaign", "Finding", "Told", "recipes"]


@dataclass(frozen=True)
class Finding:
    recipe: Recipe
    outcome: Outcome

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        where = "".join(letter if letter.isalnum() else "_" for letter in self.outcome.where)[:80]
        path = folder / f"{self.recipe.attack}-{self.outcome.kind}-{where}.json"
        text = json.dumps({**self.recipe.to_json(), "was": self.outcome.to_json()}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")
        return path


def recipes(attacks: Sequence[Attack], seed: str, *, cases: bool = False) -> Iterator[Recipe]:
    """Endless, the same for the same seed."""
    names = case_names() if cases else ()
    count = 0
    while True:
        attack = attacks[count % len(attacks)]
        seeds = (*attack.seeds * (1 + len(names) // len(attack.seeds)), *names) if attack.of_model else attack.seeds
        yield Recipe.random(attack, seeds, f"{seed} {count}")
        count += 1


@dataclass(frozen=True)
class Told:
    """What became of the recipes."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # by attack and kind of outcome
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)

    def __add__(self, other: Told) -> Told:
        return Told(self.counts + other.counts, other.findings | self.findings)

    def table(self) -> list[str]:
        kinds = sorted({kind for _, kind in self.counts})
        lines = [f"{'attack':16}{'runs':>8}" + "".join(f"{kind:>10}" for kind in kinds)]
        for attack in (name for name in ATTACKS if any(name == each for each, _ in self.counts)):
            row = [self.counts[attack, kind] for kind in kinds]
            lines.append(f"{attack:16}{sum(row):8}" + "".join(f"{count:10}" for count in row))
        return lines


@dataclass
class Campaign:
    """Runs recipes until told to stop."""

    child: Child
    notify: Callable[[str], None]
    told: Told = field(default_factory=Told)

    def run(self, tried: Iterator[Recipe], until: float) -> None:
        for recipe in tried:
            if time.monotonic() >= until:
                return
            outcome = self.child.run(recipe)
            if outcome.kind == "over":  # may be the machine's: asked again
                outcome = self.child.run(recipe)
            self.told.counts[recipe.attack, outcome.kind] += 1
            if outcome.bad and outcome.key not in self.told.findings:
                self.told.findings[outcome.key] = finding = Finding(self.shortest(recipe, outcome, until), outcome)
                self.notify(f"{recipe.attack}: {outcome.kind}: {outcome.where}: {outcome.told} {finding.recipe}")

    def shortest(self, recipe: Recipe, outcome: Outcome, until: float) -> Recipe:
        """Without the mutations that the finding does not need, as far as there is time to tell."""
        place = 0
        while place < len(recipe.mutations) and len(recipe.mutations) > 1 and time.monotonic() < until:
            less = recipe.without(place)
            if self.child.run(less).key == outcome.key:
                recipe = less
            else:
                place += 1
        return recipe
