"""What a third search heeds: what the second did not, where its answer misses by that alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from halfwise.emulation.profiles import ENGINE, STRICT, WIDE, Profile
from halfwise.verbs.fix import feedback

OWN = replace(STRICT, name=ENGINE)


@dataclass(frozen=True)
class _Sight:
    """A context that knows who judges."""

    profiles: tuple[Profile, ...]

    @property
    def also(self) -> list[Any]:
        return [SimpleNamespace(profile=profile) for profile in self.profiles]

    def under(self, profile: Profile) -> _Sight:
        return _Sight((*(each for each in self.profiles if each.name != profile.name), profile))


@pytest.mark.parametrize(
    ("heeded", "compiled", "missed", "further"),
    [
        ([WIDE], True, {ENGINE}, [WIDE.name, ENGINE]),
        ([WIDE], False, {WIDE.name}, None),
        ([OWN], True, {WIDE.name}, [ENGINE, WIDE.name]),
        ([OWN], True, {ENGINE}, None),  # it was in sight, as the engine before made it
        ([], False, {WIDE.name}, [WIDE.name]),
        ([], True, {WIDE.name, ENGINE}, None),
        ([WIDE], True, {ENGINE, STRICT.name}, None),
        ([WIDE], True, set(), None),
    ],
)
def test_a_third_search_heeds_what_alone_the_second_missed(
    monkeypatch: pytest.MonkeyPatch, heeded: list[Profile], compiled: bool, missed: set[str], further: list[str] | None
) -> None:
    def by_profile(context: _Sight) -> dict[str, Any]:
        names = [STRICT.name, *(each.name for each in context.profiles)]
        return {name: SimpleNamespace(met=name not in missed) for name in names}

    monkeypatch.setattr(feedback, "engine_view", lambda *_: (OWN if compiled else None, ()))
    first: Any = SimpleNamespace(in_sight=_Sight(tuple(heeded)), context=_Sight((WIDE,)))
    second: Any = SimpleNamespace(compiled=None, by_profile=by_profile)
    found: Any = feedback.in_further_sight(first, second, STRICT.name)
    assert (found and [each.name for each in found.profiles]) == further


def test_without_a_second_answer_there_is_no_third() -> None:
    first: Any = SimpleNamespace(in_sight=_Sight(()), context=_Sight((WIDE,)))
    assert feedback.in_further_sight(first, None, STRICT.name) is None
