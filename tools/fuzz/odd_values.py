"""Values that programs stumble over."""

from __future__ import annotations

from typing import Any

__all__ = ["ODD_FLOATS", "ODD_INTS", "ODD_LEAVES", "ODD_SIZES", "ODD_TEXTS"]

ODD_INTS = (
    0,
    1,
    -1,
    2,
    3,
    -2,
    7,
    16,
    100,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    1 << 40,
    (1 << 63) - 1,
    -1 << 63,
)
ODD_SIZES = (0, 1, -1, 2, 3, 5, 17, 1000, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 40))
ODD_FLOATS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    1e-6,
    1e-45,
    1e38,
    3.4e38,
    65504.0,
    65520.0,
    float("inf"),
    -float("inf"),
    float("nan"),
)
ODD_TEXTS = (
    "", " ", "a", "x" * 300, "/", "../../x", "/etc/passwd", "a\nb", "a\tb", "\x1b[31m", "<script>alert(1)</script>",
    "größe 重み", "\u202e", "{}", "%s", "nul\0l", "'\"", "NOTSET", "linear", "ij,jk->ik", "halfwise:i0", "-", ":", "*",
)  # fmt: skip
ODD_LEAVES: tuple[Any, ...] = (
    None, True, False, [], {}, [[]], [None], {"": None}, *ODD_INTS, *ODD_FLOATS, *ODD_TEXTS, 1 << 100, "x" * 5000,
    "nan", "inf", "-inf", "\ud800", "\udcff.onnx",
)  # fmt: skip
