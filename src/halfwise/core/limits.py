"""How large what a user gives may be; docs/limits.md has the table."""

from __future__ import annotations

LARGEST_MODEL_FILE = (1 << 31) - 1  # bytes; the most that a protobuf holds
LARGEST_MADE_INPUT = 1 << 29  # bytes of one generated input
DEEPEST_JSON = 100  # containers in one another
