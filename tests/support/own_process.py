"""Functions of tests that measure memory: in a process of their own, for what else a process holds depends on order."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

__all__ = ["in_own_process"]


def in_own_process(function: Callable[..., Any], *args: Any) -> Any:
    """What a function at the top of a module answers. This and what it is given must be what JSON can hold."""
    file = Path(function.__code__.co_filename).resolve().relative_to(ROOT)
    module = ".".join(file.with_suffix("").parts)
    code = f"import json\nfrom {module} import {function.__name__} as asked\nprint(json.dumps(asked(*{list(args)!r})))"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
