"""The rows of a run as tables: how graphs of each kind ended, and why those that did not end well."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence

from benchmarks.contest import markdown
from benchmarks.thousand.trial import UNRUN, Row

__all__ = ["GOOD", "causes", "ends", "share_good"]

GOOD = ("met, confirmed", "met, confirmed by the runtime", "missed, and said", "made-up inputs", "no kernel")
UNTRIED = ("not made", UNRUN)  # of which halfwise was asked nothing


def ends(rows: Sequence[Row]) -> str:
    """One line a kind: how many ended in which way, with the median seconds and FP32 nodes."""
    found = [end for end in dict.fromkeys((*GOOD, *UNTRIED)) if any(row.end == end for row in rows)]
    found += sorted({row.end for row in rows} - set(found))
    lines = []
    for kind in (*dict.fromkeys(row.kind for row in rows), ""):
        these = [row for row in rows if kind in ("", row.kind)]
        counts, fixed = Counter(row.end for row in these), [row for row in these if row.status]
        seconds = f"{statistics.median(row.seconds for row in fixed):.2f}" if fixed else ""
        share = f"{sum(row.fp32 for row in fixed) / max(1, sum(row.nodes for row in fixed)):.1%}" if fixed else ""
        counted = [str(counts[end] or "") for end in found]
        lines.append((kind or "all", str(len(these)), *counted, seconds, share))
    return markdown(("kind", "graphs", *found, "seconds", "FP32 nodes"), lines)


def causes(rows: Sequence[Row]) -> str:
    """What stood in the way, the commonest first, with one graph of each."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.end not in GOOD:
            groups[row.end, _shape(row.cause)].append(row)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return markdown(
        ("end", "graphs", "cause", "such as"),
        [(end, str(len(found)), cause, found[0].name) for (end, cause), found in ordered],
    )


def share_good(rows: Sequence[Row]) -> float:
    """Of the graphs that FP32 runs: those with a valid typed model that the judge confirms, or an honest miss."""
    asked = [row for row in rows if row.end not in UNTRIED]
    return sum(row.end in GOOD for row in asked) / max(1, len(asked))


def _shape(cause: str) -> str:
    """A cause without the names and numbers of its graph."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|\S*/\S+|\d[\d.e+-]*", "_", cause)[:120]
