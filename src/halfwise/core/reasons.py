"""Why a node stays out of FP16: the values of `why` in plans and results."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Reason"]


class Reason(StrEnum):
    OVERFLOW = "overflow"  # in FP16 a value becomes infinite, or zero where that is fatal
    ROUNDING = "rounding"  # measured: without the node in FP32 the tolerance is missed
    MARGIN = "margin"  # within the tolerance without it, but too near for inputs that were not given
    UNPROVEN = "unproven"  # not tested individually
    EXHAUSTED = "exhausted"  # no set of FP32 nodes meets the tolerance, so all that may help are kept
    PINNED = "pinned"  # the node cannot narrow in any plan
    FASTER = "faster"  # in FP32 it takes less time than in FP16 with the casts around it
    COMPILER = "compiler"  # the compiler, or a kernel of the engine, needs it
    BACKEND = "backend"  # the result was wrong on a real backend with the node in FP16
    WANTED = "wanted"  # the user's own decision

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        """The names that older documents used."""
        return {"not measured alone": cls.UNPROVEN, "all that could help is kept": cls.EXHAUSTED}.get(str(value))
