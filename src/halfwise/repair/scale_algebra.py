"""What a scaling by powers of two does, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from halfwise.core.wording import listed
from halfwise.repair.distinct import distinct

__all__ = ["algebra"]

_Edits = Sequence[dict[str, Any]]


def algebra(
    constants: _Edits,
    fronts: _Edits,
    epsilons: _Edits,
    after: _Edits,
    entries: _Edits = (),
    terms: _Edits = (),
    behind: _Edits = (),
    ends: _Edits = (),
    gates: _Edits = (),
    emptied: Sequence[str] = (),
) -> str:
    parts = [f"{edit['node']}: what it reads * 2^{edit['power']}" for edit in fronts]
    parts += [f"{edit['node']}: what it gives * 2^{edit['power']}" for edit in behind]
    parts += [f"{edit['node']}: {edit['input']} * {_span(edit)}" for edit in gates]
    parts += [f"input {edit['input']} * {_span(edit)}" for edit in entries]
    parts += [f"{edit['node']}: what leaves the graph * {_span(edit, -1)}" for edit in ends]
    parts += [f"{edit['node']}: {edit['power']} log(2) taken into account" for edit in terms]
    parts += [f"{edit['node']}: input {edit['slot']} * {_span(edit)}" for edit in constants]
    parts += [f"{edit['node']}: epsilon * 4^{edit['power']}" for edit in epsilons]
    tail = ", scaled back right behind" if after else ", which cancel"
    if emptied:
        tail += f"; weights of {listed(emptied, 4, str)} below 2^-126 become 0"
    return f"f(2^k x) = 2^k f(x): {listed(parts, 4, str, '; ')}{tail}"


def _span(edit: Mapping[str, Any], sign: int = 1) -> str:
    powers = distinct(sign * np.asarray(edit["power"] if "power" in edit else edit["powers"]))
    return f"2^{powers[0]}" if len(powers) == 1 else f"2^{powers[0]}..2^{powers[-1]} by channel"
