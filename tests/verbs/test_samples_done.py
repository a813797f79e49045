"""How far it is with samples that a large model runs together."""

from __future__ import annotations

from halfwise.verbs.samples_done import SamplesDone


def test_the_parts_of_walks_tell_of_samples_and_none_is_told_twice() -> None:
    told: list[tuple[int, int]] = []
    done = SamplesDone(lambda samples, total: told.append((samples, total)))
    done.walked(0, 8)  # what runs before it is known how many samples there are
    done.expect(4, walks=3)
    for walk in range(2):
        for part in range(1 - walk, 8):
            done.walked(part, 8)
    assert told == [(1, 4), (2, 4)]
    done.walked(0, 2)
    done.walked(1, 2)
    for sample in range(1, 5):
        done.judged(sample)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
