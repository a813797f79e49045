"""Puts data into a page so that nothing in it can be taken for markup or script."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from typing import Any

from markupsafe import Markup

__all__ = ["as_json", "content_hash", "digits"]

# What could end the script element, open a comment in it, or end a line of script in older browsers.
_ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def as_json(data: Any) -> Markup:
    """JSON for a `<script type="application/json">`; infinities have to be text before."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(text.translate(_ESCAPES))


def content_hash(text: str) -> str:
    """The word by which a content security policy allows just this text."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def digits(value: float) -> float | str:
    """Four digits, as a number where JSON has one."""
    if not math.isfinite(value):
        return "inf" if value > 0 else "-inf" if value < 0 else "nan"
    rounded = float(f"{value:.4g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
