"""A recipe: what is damaged, and how. The same recipe makes the same bytes on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from tools.fuzz.attack import HERE, Attack
from tools.fuzz.attacks import ATTACKS
from tools.fuzz.places import PLACE_MUTATIONS

__all__ = ["Recipe", "Unsuitable"]


class Unsuitable(Exception):
    """Mutations that leave no file, one after the other."""


@dataclass(frozen=True)
class Recipe:
    """An attack, the seed that it starts from, and the mutations by name and number."""

    attack: str
    seed: str
    mutations: tuple[tuple[str, int], ...]

    @classmethod
    def random(cls, attack: Attack, seeds: Sequence[str], key: str) -> Recipe:
        random = Random(key)
        names = (*attack.artifact.names(), *(tuple(PLACE_MUTATIONS) * 6 if attack.kept else ()))
        count = random.choice((1, 1, 1, 2, 2, 3, 5))
        mutations = tuple((random.choice(names), random.randrange(1 << 32)) for _ in range(count))
        return cls(attack.name, random.choice(seeds), mutations)

    @classmethod
    def from_json(cls, document: Any) -> Recipe:
        mutations = tuple((str(name), int(number)) for name, number in document["mutations"])
        return cls(document["attack"], document["seed"], mutations)

    def to_json(self) -> dict[str, Any]:
        return {"attack": self.attack, "seed": self.seed, "mutations": [list(each) for each in self.mutations]}

    def without(self, place: int) -> Recipe:
        return replace(self, mutations=self.mutations[:place] + self.mutations[place + 1 :])

    def write(self, folder: Path) -> tuple[str, ...]:
        """Make the files; gives the command line."""
        attack = ATTACKS[self.attack]
        made = attack.make(self.seed)
        try:
            for name, number in self.mutations:
                if name not in PLACE_MUTATIONS:
                    made.damaged.change(name, number)
            damaged = made.damaged.content()
        except Exception as error:
            raise Unsuitable from error
        file = made.name or attack.file
        for name, content in {**made.beside, file: damaged}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self._replace(folder, folder / file)
        return tuple(word.replace(HERE, str(folder)) for word in attack.words)

    def _replace(self, folder: Path, path: Path) -> None:
        """Put something else in its place; the second of two finds it as the first left it, or not at all."""
        for name, number in self.mutations:
            if name in PLACE_MUTATIONS:
                with suppress(OSError):
                    PLACE_MUTATIONS[name](folder, path, Random(number))

    def undamaged(self) -> Recipe:
        return replace(self, mutations=())
