"""Detected boxes: how many are lost, how many are new, and how well those in both overlap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from halfwise.core.errors import InputError
from halfwise.core.measures.measure import Array, Measure, Outputs, named_output

__all__ = ["Boxes", "Detections", "matched_boxes", "overlaps", "suppressed"]

MOST = 300  # boxes that a suppression of a raw output leaves
END = 1.02  # times the lowest score that is listed: what is below may have changed places with what is not listed
UNDECODED = 1e-3  # share of boxes with a size below 0, which no decoded one has
NEAR = 0.8  # of the threshold: a box that fell below it by less is not lost


class Detections(NamedTuple):
    """One picture's boxes, by their corners, with a score and a class each."""

    boxes: Array
    scores: Array
    labels: Array

    def taken(self, which: Array) -> Detections:
        return Detections(self.boxes[which], self.scores[which], self.labels[which])


@dataclass(frozen=True)
class Boxes(Measure):
    """Errors: `lost`, `new` (shares of the boxes above `threshold`), and `overlap`, 1 - mean IoU of those in both.

    Outputs are found by their shape, or named: `boxes`, `scores`, `labels`. `form` is what four numbers mean: xyxy,
    xywh (a corner first) or cxcywh (the centre first), by default what fits. `layout` tells what one output with
    everything holds: rows (x1, y1, x2, y2, score, class), yolo (centre, size and a score a class) or yolo-obj
    (objectness before the classes); the last two are suppressed at an IoU of `nms`. Boxes match at an IoU of `iou` and
    with the same class. A box within 2% of the lowest score listed, where a list was cut, is neither lost nor new.
    """

    name: ClassVar[str] = "boxes"
    finer: ClassVar[str] = "threshold=0.1"
    threshold: float = 0.25
    iou: float = 0.5
    nms: float = 0.45
    form: str = ""
    layout: str = ""
    boxes: str = ""
    scores: str = ""
    labels: str = ""

    def details(self, reference: Outputs, other: Outputs) -> dict[str, float]:
        lost = new = wanted = given = 0
        overlap: list[float] = []
        self._check_decoded(reference)
        settled = replace(self, form=self.form or self._form(reference))
        for a, b in zip(settled.detections(reference), settled.detections(other), strict=True):
            end = END * min(a.scores.min(), b.scores.min()) if len(a.boxes) and len(b.boxes) else 0.0
            sure_a, sure_b = (each.taken(each.scores >= max(self.threshold, end)) for each in (a, b))
            lenient_a, lenient_b = (each.taken(each.scores >= NEAR * self.threshold) for each in (a, b))
            found = matched_boxes(sure_a, lenient_b, self.iou)
            lost += len(sure_a.boxes) - len(found)
            new += len(sure_b.boxes) - len(matched_boxes(sure_b, lenient_a, self.iou))
            wanted += len(sure_a.boxes)
            given += len(sure_b.boxes)
            overlap += [share for _, _, share in found]
        return {
            "lost": lost / max(wanted, 1),
            "new": new / max(given, 1),
            "overlap": 1.0 - float(np.mean(overlap)) if overlap else 0.0,
        }

    def finds_any(self, reference: Outputs) -> bool:
        return any((each.scores >= self.threshold).any() for each in self.detections(reference))

    def _form(self, outputs: Outputs) -> str:
        """Corners, unless the second of them comes before the first."""
        found = self.detections(outputs)
        return "xyxy" if all((each.boxes[:, 2:] >= each.boxes[:, :2]).all() for each in found) else "cxcywh"

    def detections(self, outputs: Outputs) -> list[Detections]:
        """Those of every picture of a batch."""
        if self.form not in ("", "xyxy", "xywh", "cxcywh"):
            raise InputError(f"--metric {self.spec}: form is xyxy, xywh or cxcywh")
        name = self.boxes or self._boxes_name(outputs)
        boxes = named_output(self, outputs, name).astype(np.float64)
        if boxes.shape[-1] == 4 and not self.layout:
            return self._apart(outputs, name, boxes)
        whole, layout = self._whole(boxes)
        if layout == "rows":
            return [
                Detections(self._corners(rows[:, :4]), rows[:, 4], rows[:, 5] if rows.shape[1] > 5 else 0 * rows[:, 4])
                for rows in whole
            ]
        if layout not in ("yolo", "yolo-obj"):
            raise InputError(f"--metric {self.spec}: layout is rows, yolo or yolo-obj")
        return [self._raw(rows, layout) for rows in map(_upright, whole)]

    def _whole(self, boxes: Array) -> tuple[Array, str]:
        """One output with everything, a picture at a time, and what it holds."""
        whole = boxes.reshape(-1, *boxes.shape[-2:])
        return whole, self.layout or _layout(whole)

    def _check_decoded(self, outputs: Outputs) -> None:
        """Offsets in a grid, and logarithms of sizes, are no boxes yet: each would lie on all others."""
        name = self.boxes or self._boxes_name(outputs)
        boxes = named_output(self, outputs, name)
        if boxes.shape[-1] == 4 and not self.layout:
            return
        whole, layout = self._whole(boxes)
        if layout == "rows" or not whole.size:
            return
        share = np.mean([(_upright(rows)[:, 2:4] < 0).any(axis=1) for rows in whole])
        if share > UNDECODED:
            raise InputError(
                f"--metric {self.spec}: {share:.1%} of the boxes of output {name!r} have a size below 0: they are not "
                "decoded; decode them in the model, or give a function of your own that does"
            )

    def _boxes_name(self, outputs: Outputs) -> str:
        fours = [name for name, array in outputs.items() if np.shape(array)[-1:] == (4,)]
        wide = [name for name, array in outputs.items() if np.ndim(array) >= 2 and np.shape(array)[-1] > 4]
        found = fours or sorted(wide, key=lambda name: -np.size(outputs[name]))
        if not found:
            raise InputError(f"--metric {self.spec}: no output has boxes in its last axis; name it with boxes=OUTPUT")
        return found[0]

    def _apart(self, outputs: Outputs, name: str, boxes: Array) -> list[Detections]:
        rows, count = boxes.shape[-2], int(np.prod(boxes.shape[:-2]))
        scores = self.scores or self._beside(outputs, name, rows, "f")
        labels = self.labels or self._beside(outputs, name, rows, "iu", needed=False)
        score = named_output(self, outputs, scores).astype(np.float64).reshape(count, rows, -1)
        several = score.shape[-1] > 1
        label = score.argmax(-1) if several else np.zeros((count, rows))
        if labels:
            label = named_output(self, outputs, labels).reshape(count, rows)
        corners = self._corners(boxes.reshape(count, rows, 4))
        return [Detections(corners[i], score[i].max(-1), label[i]) for i in range(count)]

    def _beside(self, outputs: Outputs, boxes: str, rows: int, kinds: str, *, needed: bool = True) -> str:
        for name, array in outputs.items():
            array = np.asarray(array)
            if name != boxes and array.dtype.kind in kinds and rows in array.shape[-2:]:
                return name
        if needed:
            raise InputError(f"--metric {self.spec}: no output has a score for each box; name it with scores=OUTPUT")
        return ""

    def _corners(self, boxes: Array) -> Array:
        if self.form in ("", "xyxy"):
            return boxes
        first, size = boxes[..., :2], boxes[..., 2:]
        start = first - size / 2 if self.form == "cxcywh" else first
        return np.concatenate([start, start + size], axis=-1)

    def _raw(self, rows: Array, layout: str) -> Detections:
        classes = rows[:, 5:] * rows[:, 4:5] if layout == "yolo-obj" else rows[:, 4:]
        corners = replace(self, form="cxcywh")._corners(rows[:, :4])
        found = Detections(corners, classes.max(-1), classes.argmax(-1))
        found = found.taken(found.scores >= NEAR * self.threshold)
        return found.taken(suppressed(found, self.nms))


def _upright(rows: Array) -> Array:
    """A box a row."""
    return rows.T if rows.shape[0] < rows.shape[1] else rows


def _layout(whole: Array) -> str:
    """By the width of a row: a few numbers are finished rows; classes in front of places have no objectness."""
    short = min(whole.shape[-2:])
    if whole.shape[-1] <= 7:
        return "rows"
    return "yolo" if whole.shape[-2] == short else "yolo-obj"


def overlaps(a: Array, b: Array) -> Array:
    """The IoU of every box of one list with every box of the other."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.clip(high - low, 0, None).prod(-1)
    areas = (np.clip(each[:, 2:] - each[:, :2], 0, None).prod(-1) for each in (a, b))
    whole = np.add.outer(*areas) - common
    return np.asarray(np.divide(common, whole, out=np.zeros_like(common), where=whole > 0))


def suppressed(found: Detections, iou: float) -> Array:
    """The boxes left by a suppression class by class, the best first."""
    order, left = np.argsort(-found.scores, kind="stable"), list[int]()
    shares = overlaps(found.boxes, found.boxes)
    for i in order:
        if len(left) < MOST and not any(shares[i, j] > iou and found.labels[i] == found.labels[j] for j in left):
            left.append(int(i))
    return np.asarray(left, dtype=np.intp)


def matched_boxes(a: Detections, b: Detections, iou: float) -> list[tuple[int, int, float]]:
    """Pairs of one class, the greatest overlap first, each box once."""
    shares = overlaps(a.boxes, b.boxes)
    shares[a.labels[:, None] != b.labels[None, :]] = 0.0
    taken_a, taken_b, pairs = set[int](), set[int](), []
    rows, columns = np.nonzero(shares >= iou)
    for at in np.argsort(-shares[rows, columns], kind="stable"):
        i, j = int(rows[at]), int(columns[at])
        if i not in taken_a and j not in taken_b:
            taken_a.add(i)
            taken_b.add(j)
            pairs.append((i, j, float(shares[i, j])))
    return pairs
