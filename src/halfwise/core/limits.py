"""How large what a user gives may be; docs/limits.md has the table."""

from __future__ import annotations

LARGEST_MODEL_FILE = (1 << 31) - 1  # bytes; the most that a protobuf holds
MOST_NODES = 1_000_000  # of a model, those of its bodies included, and of a function for each call
DEEPEST_FUNCTIONS = 100  # calls in one another
DEEPEST_BODIES = 32  # of branches and loops in one another; a protobuf holds no more
LONGEST_NAME = 1 << 16  # characters
MOST_CHARACTERS = 1 << 28  # of the names of nodes and tensors, where functions are in place
MOST_DIMENSIONS = 31  # of a tensor that is held in memory; NumPy 1.26 knows one more, and probes are stacked
LARGEST_MADE_INPUT = 1 << 29  # bytes of one generated input
LARGEST_ARRAYS = 1 << 32  # bytes of the arrays of one .npz file, unpacked
LARGEST_JSON = 1 << 28  # bytes of one document
LONGEST_LOG_LINE = 1 << 24  # bytes that are kept of one line
DEEPEST_JSON = 100  # containers in one another
