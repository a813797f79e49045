"""Inputs that nobody gave, made from those given: as much louder and quieter as others may be."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from halfwise import fix
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.model.inputs.feed import Feed
from halfwise.model.inputs.samples import Samples
from halfwise.model.model import load
from halfwise.search.references import References
from halfwise.search.unseen_bound import spread
from halfwise.search.variants import of_few, of_other_size
from tests.models.build import model, node, value, weight

SQUARES = model([node("Mul", "x x", "y")], [value("x", shape=(1, 64))], [value("y", shape=(1, 64))])
ANY = cast(References, SimpleNamespace(of=lambda _: [], model=load(SQUARES), interface={}))  # takes all


def made(*feeds: dict[str, NDArray[Any]]) -> tuple[Feed, ...]:
    given = tuple(Feed(index, feed) for index, feed in enumerate(feeds))
    return of_other_size(Samples(given[::2], given[1::2], "given"), ANY)


def noise(loudness: float, seed: int = 0) -> NDArray[np.float32]:
    return np.asarray(loudness * np.random.default_rng(seed).standard_normal(500), np.float32)


def test_the_loudest_is_louder_and_the_quietest_quieter_by_what_the_given_tell() -> None:
    sizes = [1.0, 2.0, 0.5, 1.5]
    louder, quieter = made(*({"x": noise(size)} for size in sizes))
    assert np.allclose(louder["x"], noise(2.0) * spread(sizes), rtol=1e-3)
    assert np.allclose(quieter["x"], noise(0.5) / spread([1 / size for size in sizes]), rtol=1e-3)
    assert 1.05 < spread(sizes) <= 3.0


def test_a_number_names_the_same_variant_however_the_inputs_are_split() -> None:
    """A held-out input that joins the search changes the order of all; FP32's answers are known by number."""
    feeds = [Feed(index, {"x": noise(1.0, seed=index)}) for index in range(6)]
    before = of_few(Samples(tuple(feeds[:3]), tuple(feeds[3:]), "given"), ANY)
    moved = (feeds[0], feeds[1], feeds[2], feeds[5])
    after = of_few(Samples(moved, (feeds[3], feeds[4]), "given"), ANY)
    assert [(feed.id, feed.source) for feed in before] == [(feed.id, feed.source) for feed in after]
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(before, after, strict=True))


def test_fp32_takes_all_but_one() -> None:
    """All are asked about at once; then one by one, for one that fails is no reason to look at none."""
    asked = list[tuple[int, ...]]()

    def answers(feeds: Sequence[Feed]) -> list[dict[str, NDArray[Any]]]:
        asked.append(tuple(feed.id for feed in feeds))
        if any(feed.source == 1 for feed in feeds):
            raise InputError("an index is out of bounds")
        return []

    given = tuple(Feed(index, {"x": noise(1.0, seed=index)}) for index in range(4))
    strict = cast(References, SimpleNamespace(of=answers, model=ANY.model, interface={}))
    found = of_few(Samples(given[:2], given[2:], "given"), strict)
    assert sorted(feed.source or 0 for feed in found) == [0, 0, 2, 2, 3, 3]
    assert asked[0] == tuple(each for ids in asked[1:] for each in ids) and {len(ids) for ids in asked[1:]} == {1}


def test_what_all_share_stays() -> None:
    assert made({"x": noise(1.0)}, {"x": -noise(1.0)}) == ()
    flags = np.array([0, 1, 1, 0], np.float32)
    louder, _ = made({"x": noise(1.0), "mask": flags}, {"x": noise(3.0), "mask": flags[::-1].copy() * 1})
    assert np.array_equal(louder["mask"], flags[::-1])
    ends = np.array([0, 255], np.float32)
    louder, _ = made({"x": np.r_[ends, 10, 20]}, {"x": np.r_[ends, 190, 80.5]})
    assert louder["x"].max() == 255


def test_what_a_vector_quieter_than_those_given_would_lose_is_told() -> None:
    """Its squares vanish in FP16 a little below what was given, where all is well."""
    nodes = [node("Mul", "x x", "q"), node("ReduceSum", "q axis", "sum", keepdims=1), node("Sqrt", "sum", "d"),
             node("Div", "x d", "y")]  # fmt: skip
    made = model(nodes, [value("x", shape=(1, 64))], [value("y", shape=(1, 64))], [weight("axis", np.array([1]))])
    given = [{"x": (size * noise(1.0, seed)[:64])[None]} for seed, size in enumerate((1.2e-3, 6e-3, 3e-4, 1.4e-3))]
    result = fix(made, given, tolerance="y:rel_l2<=0.05")
    assert result.met
    assert {NoteKind.UNSEEN_MAY_MISS, NoteKind.UNSEEN_SCATTERS, NoteKind.UNSEEN_SIZE} & {
        note.kind for note in result.notes
    }
    assert result.promise is not None and not result.promise.carried


def test_a_users_measure_is_asked_about_none() -> None:
    given = [{"x": np.full((1, 64), size, np.float32)} for size in (20.0, 250.0, 60.0, 120.0)]
    seen = set[float]()

    def measure(reference: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> float:
        seen.add(round(float(np.sqrt(reference["y"].max()))))
        return float(np.abs(reference["y"] - other["y"]).max() / reference["y"].max())

    assert fix(SQUARES, given, metric=measure, tolerance="metric<=0.01").met
    assert max(seen) <= 253 and min(seen) >= 19
