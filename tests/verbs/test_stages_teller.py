"""How far a run through stages is, and how long the rest takes."""

from __future__ import annotations

from halfwise.core.told import Told
from halfwise.verbs.stages.teller import StageTeller
from tests.support.says import Says


def test_a_stage_tells_how_long_those_left_take(says: Says) -> None:
    now, said = [0.0], list[str]()
    teller = StageTeller(said.append, 4, since=0.0, clock=lambda: now[0])
    for index, name in enumerate(("stem", "body", "neck", "head")):
        now[0] = 10.0 * index
        tell = teller.of(index, name)
        now[0] += 2.0
    tell("looking for the culprits")
    left = [stand.left.seconds if stand.left else None for stand in map(Told.stand_of, said)]
    assert left == [None, 30.0, 20.0, 10.0, 10.0]
    says(said)
