"""The ready measures, each against an implementation written another way."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import halfwise
from halfwise.core.errors import InputError
from halfwise.core.measures.boxes import Boxes, Detections, matched_boxes, overlaps, suppressed
from halfwise.core.measures.image import structure
from halfwise.core.measures.named import measure_named, metric_named, spec_of, with_measure
from halfwise.core.measures.text import edits
from tests.support.says import Says

Array = NDArray[Any]
measures = halfwise.measures


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# -- boxes ------------------------------------------------------------------------------------------------------------


def area_by_counting(a: Array, b: Array, both: bool) -> int:
    """Cells of a grid in both boxes, or in either; their corners are whole numbers."""
    y, x = np.mgrid[0:40, 0:40]
    inside = [(x >= k[0]) & (x < k[2]) & (y >= k[1]) & (y < k[3]) for k in (a, b)]
    return int(np.sum(inside[0] & inside[1] if both else inside[0] | inside[1]))


def some_boxes(rng: np.random.Generator, count: int) -> Array:
    corner = rng.integers(0, 30, (count, 2))
    return np.concatenate([corner, corner + rng.integers(1, 10, (count, 2))], axis=1).astype(np.float64)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_overlap_is_the_share_of_cells(seed: int) -> None:
    a, b = some_boxes(random(seed), 3), some_boxes(random(seed + 1), 4)
    counted = [[area_by_counting(x, y, True) / area_by_counting(x, y, False) for y in b] for x in a]
    assert overlaps(a, b) == pytest.approx(np.array(counted))


def test_boxes_that_swap_and_shift_are_matched() -> None:
    rng = random(1)
    boxes = some_boxes(rng, 12) * 10
    scores, labels = rng.uniform(0.5, 1, 12), rng.integers(0, 3, 12)
    order = rng.permutation(12)
    reference = {"boxes": boxes[None], "scores": scores[None], "labels": labels[None]}
    other = {"boxes": boxes[order][None] + 0.01, "scores": scores[order][None], "labels": labels[order][None]}
    found = measures.Boxes().details(reference, other)
    shifted = np.mean([overlaps(box[None], box[None] + 0.01)[0, 0] for box in boxes[scores > 1.02 * scores.min()]])
    assert found["lost"] == found["new"] == 0.0
    assert found["overlap"] == pytest.approx(1 - shifted)
    # What was certain and is gone counts; what sank from just above the threshold to just below it does not.
    gone = scores[order].copy()
    gone[0] = 0.0
    assert measures.Boxes()(reference, {**other, "scores": gone[None]}) == pytest.approx(1 / 12)
    edge, near = scores.copy(), scores[order].copy()
    edge[order[0]], near[0] = 0.26, 0.24
    assert measures.Boxes().details({**reference, "scores": edge[None]}, {**other, "scores": near[None]})["lost"] == 0


def test_matching_is_the_best_assignment_where_boxes_do_not_crowd() -> None:
    for seed in range(8):
        rng = random(seed)
        a = np.array([[60.0 * i, 0, 60.0 * i + 40, 40] for i in range(5)])
        b = a[rng.permutation(5)] + rng.uniform(-4, 4, (5, 4))
        ones, zeros = np.ones(5), np.zeros(5)
        found = sum(share for *_, share in matched_boxes(Detections(a, ones, zeros), Detections(b, ones, zeros), 0.5))
        shares = overlaps(a, b)
        assert found == pytest.approx(max(sum(shares[i, j] for i, j in enumerate(p)) for p in permutations(range(5))))


def test_raw_outputs_are_decoded_and_suppressed() -> None:
    rng = random(3)
    centre, size = rng.uniform(50, 550, (400, 2)), rng.uniform(20, 60, (400, 2))
    scores = rng.uniform(0, 0.2, (400, 3))
    scores[:40] += np.eye(3)[rng.integers(0, 3, 40)] * 0.7
    centre[20:40], size[20:40], scores[20:40] = centre[:20] + 1, size[:20], scores[:20] * 0.99  # seen twice
    rows = np.concatenate([centre, size, scores], axis=1)
    reference = {"output": rows.T[None].astype(np.float32)}
    (found,) = measures.Boxes().detections(reference)
    corners = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
    assert all(np.isclose(corners, box, atol=1e-3).all(axis=1).any() for box in found.boxes)
    assert len(found.boxes) <= 20
    assert measures.Boxes()(reference, {"output": reference["output"][:, :, ::-1]}) == pytest.approx(0, abs=1e-9)
    obj = np.concatenate([rows[:, :4], np.ones((400, 1)), scores], axis=1)[None]
    (same,) = measures.Boxes().detections({"output": obj})
    assert np.allclose(np.sort(same.scores), np.sort(found.scores), atol=1e-6)


def test_centres_and_sizes_are_told_from_corners() -> None:
    rng = random(2)
    centre, size = rng.uniform(100, 500, (9, 2)), rng.uniform(20, 60, (9, 2))
    scores = rng.uniform(0.5, 1, 9)
    forms = {"": np.concatenate([centre, size], 1), "xyxy": np.concatenate([centre - size / 2, centre + size / 2], 1)}
    found = []
    for form, end in (("", (0, 0)), ("xyxy", (1, 0))):
        moved = forms[form][::-1] + np.array([1, 0, *end])
        reference, other = {"b": forms[form], "s": scores}, {"b": moved, "s": scores[::-1]}
        found.append(Boxes(form=form).details(reference, other))
    assert found[0] == pytest.approx(found[1])
    assert 0 < found[0]["overlap"] < 0.1


def test_suppression_leaves_no_two_that_overlap() -> None:
    rng = random(4)
    found = Detections(some_boxes(rng, 60), rng.uniform(0, 1, 60), rng.integers(0, 2, 60))
    left = suppressed(found, 0.4)
    shares = overlaps(found.boxes, found.boxes)
    for i in range(60):
        better = [j for j in left if found.scores[j] > found.scores[i] and found.labels[j] == found.labels[i]]
        covered = any(shares[i, j] > 0.4 for j in better)
        assert (i in left) is not covered


def test_rows_after_a_suppression_hold_everything() -> None:
    rows = np.array([[[0, 0, 10, 10, 0.9, 1], [20, 20, 40, 40, 0.8, 2], [0, 0, 0, 0, 0, 0]]], np.float32)
    assert measures.Boxes()({"dets": rows}, {"dets": rows[:, [1, 0, 2]]}) == 0.0
    other = rows.copy()
    other[0, 1, 5] = 1
    assert measures.Boxes().details({"dets": rows}, {"dets": other}) == {"lost": 0.5, "new": 0.5, "overlap": 0.0}


def test_outputs_that_are_offsets_in_a_grid_are_no_boxes(says: Says) -> None:
    """As YOLOX hands them out: places in a cell, and logarithms of sizes."""
    rng = random(12)
    raw = np.concatenate([rng.uniform(-1, 2, (1, 189, 2)), rng.normal(1, 1, (1, 189, 2)), rng.random((1, 189, 9))], -1)
    cells = np.concatenate([np.indices((n, n)).reshape(2, -1).T[:, ::-1] for n in (12, 6, 3)])
    strides = np.repeat([8, 16, 32], [144, 36, 9])[:, None]
    decoded = raw.copy()
    decoded[0, :, :2] = (raw[0, :, :2] + cells) * strides
    decoded[0, :, 2:4] = np.exp(raw[0, :, 2:4]) * strides
    with says.raises(InputError):
        Boxes()({"y": raw}, {"y": raw})
    assert Boxes()({"y": decoded}, {"y": decoded}) == 0.0
    broken = decoded.copy()
    broken[0, :, 2] = -1.0  # what is judged may be anything
    assert Boxes()({"y": decoded}, {"y": broken}) == 1.0


# -- keypoints, masks -------------------------------------------------------------------------------------------------


def test_keypoints_lost_and_new() -> None:
    rng = random(5)
    points = np.stack([np.arange(50) * 12.0, rng.uniform(0, 400, 50)], axis=1)
    order = rng.permutation(50)[:48]
    other = np.concatenate([points[order] + rng.uniform(-1, 1, (48, 2)), [[900.0, 900.0]]])
    found = measures.Keypoints().details({"points": points}, {"points": other})
    assert found == {"lost": pytest.approx(2 / 50), "new": pytest.approx(1 / 49)}
    assert measures.Keypoints(ordered=True).details({"points": points}, {"points": points[::-1]})["lost"] > 0.9


def test_joints_below_the_threshold_do_not_count_and_the_third_number_is_their_score() -> None:
    joints = np.stack([np.arange(5) / 5, np.full(5, 0.5), [0.9, 0.9, 0.05, 0.31, 0.9]], axis=1)[None]
    other = joints.copy()
    other[0, 2, :2] += 0.5  # nobody counts it
    other[0, 3] += [0.0, 0.0, -0.05]  # fell below the threshold, by little
    other[0, 4, 0] += 0.1
    asked = {"radius": 0.01, "ordered": True}
    count = measures.Keypoints(**asked, threshold=0.3).details({"k": joints}, {"k": other})
    assert count == {"lost": pytest.approx(1 / 4), "new": pytest.approx(1 / 3)}
    assert measures.Keypoints(**asked)({"k": joints}, {"k": other}) == pytest.approx(2 / 5)
    apart = measures.Keypoints(**asked, threshold=0.3, points="k", scores="s")
    split = [{"k": each[..., :2], "s": each[..., 2]} for each in (joints, other)]
    assert apart.details(*split) == count


def test_mask_by_sets_of_pixels() -> None:
    rng = random(6)
    scores = rng.normal(size=(1, 4, 12, 12))
    other = scores + rng.normal(size=scores.shape) * 0.3
    a, b = (each.argmax(1).reshape(-1).tolist() for each in (scores, other))
    shares = []
    for c in set(a):
        one, two = ({i for i, x in enumerate(side) if x == c} for side in (a, b))
        shares.append(len(one & two) / len(one | two))
    wanted = 1 - sum(shares) / len(shares)
    assert measures.Mask()({"y": scores}, {"y": other}) == pytest.approx(wanted)
    assert measures.Mask()({"y": scores.argmax(1)}, {"y": other.argmax(1)}) == pytest.approx(wanted)


# -- logits, text -----------------------------------------------------------------------------------------------------


def test_logits_by_sums() -> None:
    rng = random(7)
    a = rng.normal(size=(2, 5, 9))
    b = a + rng.normal(size=a.shape) * 0.3
    divergences, changed = [], 0
    for x, y in zip(a.reshape(-1, 9).tolist(), b.reshape(-1, 9).tolist(), strict=True):
        p, q = ([math.exp(v) / sum(map(math.exp, side)) for v in side] for side in (x, y))
        divergences.append(sum(s * math.log(s / t) for s, t in zip(p, q, strict=True)))
        first, second = sorted(p)[-1], sorted(p)[-2]
        changed += first - second >= 0.02 and p.index(max(p)) != q.index(max(q))
    kl = sum(divergences) / 10
    found = measures.Logits().details({"y": a}, {"y": b})
    assert found["kl"] == pytest.approx(kl)
    assert found["top1"] == pytest.approx(changed / 10)
    assert found["perplexity"] == pytest.approx(math.exp(kl) - 1)
    soft = [np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in (a, b)]
    assert measures.Logits().details({"y": soft[0]}, {"y": soft[1]})["kl"] == pytest.approx(kl, rel=1e-6)


def edits_by_recursion(a: str, b: str) -> int:
    @cache
    def least(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(least(i - 1, j) + 1, least(i, j - 1) + 1, least(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return least(len(a), len(b))


@settings(max_examples=60, deadline=None)
@given(a=st.text("abcd", max_size=12), b=st.text("abcd", max_size=12))
def test_edits(a: str, b: str) -> None:
    assert edits(a, b) == edits_by_recursion(a, b)


def test_text_is_decoded() -> None:
    tokens = np.array([[1, 1, 0, 1, 2, 2, 3, 0, 4]])
    scores = np.eye(6, dtype=np.float32)[tokens]
    assert measures.Text(ctc=True).decoded(scores) == [[1, 1, 2, 3, 4]]
    assert measures.Text(ctc=True, space=2).decoded(scores) == [[(1, 1), (3, 4)]]
    assert measures.Text(end=2).decoded(tokens) == [[1, 1, 0, 1]]
    other = np.array([[1, 1, 0, 5, 2, 2, 3, 0, 4]])
    assert measures.Text(ctc=True)({"y": tokens}, {"y": other}) == pytest.approx(1 / 5)
    assert measures.Text(ctc=True, space=2)({"y": tokens}, {"y": other}) == pytest.approx(1 / 2)


# -- audio, pictures, embeddings --------------------------------------------------------------------------------------


def test_audio_is_si_sdr() -> None:
    rng = random(8)
    a = rng.normal(size=(1, 2, 800))
    b = 0.7 * a + rng.normal(size=a.shape) * 0.02
    worst = math.inf
    for x, y in zip(a[0], b[0], strict=True):
        target = np.linalg.lstsq(x[:, None], y, rcond=None)[0][0] * x
        worst = min(worst, 10 * math.log10(float(target @ target) / float((y - target) @ (y - target))))
    assert measures.Audio()({"wav": a}, {"wav": b}) == pytest.approx(10 ** (-worst / 20))
    assert measures.Audio()({"wav": 0 * a}, {"wav": 0 * a + 1e-7}) == pytest.approx(1e-3)


def structure_by_windows(a: Array, b: Array, peak: float) -> float:
    places = range(-5, 6)
    weights = np.array([[math.exp(-(y * y + x * x) / (2 * 1.5**2)) for x in places] for y in places])
    weights /= weights.sum()
    found = []
    for top in range(a.shape[0] - 10):
        for left in range(a.shape[1] - 10):
            x, y = (each[top : top + 11, left : left + 11] for each in (a, b))
            mx, my = float((weights * x).sum()), float((weights * y).sum())
            vx, vy = float((weights * (x - mx) ** 2).sum()), float((weights * (y - my) ** 2).sum())
            both = float((weights * (x - mx) * (y - my)).sum())
            c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
            found.append((2 * mx * my + c1) * (2 * both + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2)))
    return sum(found) / len(found)


def test_structure_of_pictures() -> None:
    rng = random(9)
    a = rng.uniform(0, 255, (18, 21))
    b = a + rng.normal(size=a.shape) * 12
    assert structure(a, b, 255.0) == pytest.approx(structure_by_windows(a, b, 255.0))
    found = measures.Image(peak=255.0).details({"y": a[None, None]}, {"y": b[None, None]})
    level = 20 * math.log10(255 / math.sqrt(float(((a - b) ** 2).mean())))
    assert found["noise"] == pytest.approx(10 ** (-level / 20))
    last = measures.Image(peak=255.0, channels_last=True)
    pair = ({"y": np.stack([side, side], -1)[None]} for side in (a, b))
    assert last(*pair) == pytest.approx(max(found.values()))
    with pytest.raises(InputError, match=r"1x18x21x3.*:channels_last=true"):
        measures.Image()(*({"y": np.stack([side] * 3, -1)[None]} for side in (a, b)))


def test_embeddings() -> None:
    rng = random(10)
    a = rng.normal(size=(20, 8))
    b = a + rng.normal(size=a.shape) * 0.4
    angles = [1 - x @ y / math.sqrt((x @ x) * (y @ y)) for x, y in zip(a, b, strict=True)]
    shares = []
    for i in range(20):
        near = []
        for side in (a, b):
            unit = [row / math.sqrt(row @ row) for row in side]
            near.append(set(sorted((j for j in range(20) if j != i), key=lambda j, u=unit: -(u[i] @ u[j]))[:5]))  # type: ignore[misc]
        shares.append(len(near[0] & near[1]) / 5)
    found = measures.Embedding().details({"y": a}, {"y": b})
    assert found["cosine"] == pytest.approx(max(angles))
    assert found["recall"] == pytest.approx(1 - sum(shares) / 20)


# -- how they are named -----------------------------------------------------------------------------------------------


def test_a_measure_by_name_and_options() -> None:
    assert measure_named("boxes") == Boxes()
    assert metric_named("boxes:threshold=0.4,form=cxcywh") == Boxes(threshold=0.4, form="cxcywh")
    assert spec_of(Boxes(threshold=0.4, form="cxcywh")) == "boxes:threshold=0.4,form=cxcywh"
    assert measure_named(spec_of(measures.Text(ctc=True, space=3))) == measures.Text(ctc=True, space=3)
    assert measure_named("boxes:score") is None  # a function in a module of that name
    assert with_measure(["boxes=0.5%"], None) == (("0.5%",), Boxes())
    assert with_measure((), "mask") == (("1%",), measures.Mask())
    assert with_measure("metric<=0.2", measures.Mask()) == (("metric<=0.2",), measures.Mask())
    assert with_measure(("y:rel_l2<=0.1",), None) == (("y:rel_l2<=0.1",), None)


@pytest.mark.parametrize("spec", ["boxes:treshold=1", "boxes:threshold=high", "text:ctc=yes", "boxs"])
def test_what_is_wrong_with_a_name(spec: str, says: Says) -> None:
    with says.raises(InputError):
        metric_named(spec)


def test_outputs_that_do_not_fit_are_one_line(says: Says) -> None:
    y = {"y": np.zeros((3,), np.float32)}
    for metric in (Boxes(), measures.Keypoints(), measures.Image(), measures.Mask()):
        with pytest.raises(InputError, match=f"--metric {metric.name}"):
            metric(y, y)
    with says.raises(InputError):
        Boxes(boxes="dets")(y, y)


def test_codes_are_no_mask_and_no_scores(says: Says) -> None:
    """A class that one place has is lost when that place changes: an overlap of areas means nothing there."""
    codes = {"codes": random(3).integers(0, 1024, (1, 8, 75))}
    for metric in (measures.Mask(), measures.Logits(), measures.Embedding()):
        with says.raises(InputError):
            metric(codes, codes)
    one = {"label": np.array([3, 3, 3, 3, 3, 3])}
    with says.raises(InputError):
        measures.Mask()(one, one)
    assert measures.Text()(codes, codes) == 0.0


PAGES = Path(__file__).resolve().parents[2] / "docs" / "measures"


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.md")))
def test_the_page_of_a_measure_names_options_that_it_has(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    (spec,) = re.findall(r"--metric (\S+)", page)
    measure = measure_named(spec)
    assert measure is not None and measure.name == name and spec_of(measure).partition(":")[0] == name
    options = {field.name for field in fields(measure)}
    assert {option.partition("=")[0] for option in spec.partition(":")[2].split(",")} <= options


def test_each_ready_measure_has_a_page() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {
        "boxes", "keypoints", "mask", "logits", "text", "audio", "image", "embedding"
    }  # fmt: skip
