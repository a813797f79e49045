"""The input that plain FP16 does worst on is searched: what it needs is seen at once, not by a search that fails it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from halfwise.model.inputs.samples import Samples

__all__ = ["with_hardest"]


def with_hardest(samples: Samples, ratios: Sequence[float]) -> Samples:
    """The worst held-out input takes the place of the easiest one searched, where plain FP16 misses the tolerance on it
    and on no searched input as far.

    `ratios`: what plain FP16 leaves on each of them all. As many inputs are held out as before. The hardest one judges
    no more; it would join the search anyway, as soon as an answer for easier ones failed it.
    """
    if samples.origin != "given" or not samples.validation:
        return samples
    left = dict(zip(samples.all, ratios, strict=True))
    worst, easiest = max(samples.validation, key=left.__getitem__), min(samples.search, key=left.__getitem__)
    if left[worst] <= max(1.0, *(left[feed] for feed in samples.search)):
        return samples
    return replace(
        samples,
        search=tuple(worst if feed is easiest else feed for feed in samples.search),
        validation=tuple(easiest if feed is worst else feed for feed in samples.validation),
    )
