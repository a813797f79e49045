"""PyTorch modules for tests."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["Net", "PlainNorm"]

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra 'torch')")

from torch import nn  # noqa: E402


class PlainNorm(nn.Module):
    """A norm written out: its square leaves FP16."""

    def forward(self, x: Any) -> Any:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


class Net(nn.Module):
    def __init__(self, scale: float = 400.0) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 16), PlainNorm(), nn.Linear(16, 4)
        self.scale = scale

    def forward(self, x: Any) -> Any:
        return {"boxes": self.last(self.norm(self.first(x) * self.scale))}
