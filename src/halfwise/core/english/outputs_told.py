"""The errors of outputs as a document holds them: with `note`, what could not be compared in words."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from halfwise.core.english import said
from halfwise.core.metrics import Metrics

__all__ = ["outputs_told"]


def outputs_told(outputs: Mapping[str, Metrics]) -> dict[str, Metrics]:
    return {name: structs.replace(each, note=said(each.uncompared)) for name, each in outputs.items()}
