"""Writes checkpoints."""

from __future__ import annotations

from typing import Any

from halfwise.model.checkpoints import Checkpoint

__all__ = ["values_of"]


def values_of(checkpoint: Checkpoint) -> dict[str, Any]:
    return {t.name: t.elements.read(0, t.size).reshape(t.shape).tolist() for t in checkpoint.tensors}
