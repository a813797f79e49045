"""A tolerance as the options of a command line that state it."""

from __future__ import annotations

from halfwise.core.tolerance import Tolerance

__all__ = ["stated_bounds", "tolerance_options"]


def tolerance_options(tolerance: Tolerance) -> list[str]:
    """All of its bounds."""
    return [word for text in _texts(tolerance) for word in ("--tol", text)]


def stated_bounds(tolerance: Tolerance) -> list[str]:
    """The bounds that are not there by default, as texts."""
    usual = _texts(Tolerance.default())
    return [text for text in _texts(tolerance) if text not in usual]


def _texts(tolerance: Tolerance) -> list[str]:
    return [f"{bound.key}{bound.op}{bound.value:.6g}" for bound in tolerance.bounds]
