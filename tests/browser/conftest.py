"""Lets the browser's tests use what the tests beside this folder share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
