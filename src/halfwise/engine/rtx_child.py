"""The child process of `rtx`: imports TensorRT-RTX, builds as the request file says, and writes the report file."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from halfwise.engine import process
from halfwise.engine.handover import Report, read_request, write_report
from halfwise.engine.native_build import build_with

__all__ = ["MODULES", "main"]

# The wheels install the bindings alone; NVIDIA's download also brings the package around them.
MODULES = ("tensorrt_rtx_bindings", "tensorrt_rtx")


def main(request_file: str, report_file: str) -> None:
    request = read_request(Path(request_file))
    process.guard_child(request.time_limit_s)
    module, why = _import()
    report = build_with(module, request) if module is not None else Report("missing", why)
    write_report(Path(report_file), report)
    sys.stderr.flush()
    os._exit(0)  # without the native library's teardown, which has nothing left to do but crash


def _import() -> tuple[Any, str]:
    why = "not installed"
    for name in MODULES:
        try:
            return import_module(name), ""
        except ModuleNotFoundError as error:
            if error.name != name:
                why = str(error)
        except (ImportError, OSError) as error:
            why = str(error)
    return None, why
