"""The child process of `rtx`."""

from __future__ import annotations

from halfwise.compiler.native_build import serve

__all__ = ["main"]

# The wheels install the bindings alone; NVIDIA's download also brings the package around them.
_MODULES = ("tensorrt_rtx_bindings", "tensorrt_rtx")


def main(request_file: str, report_file: str) -> None:
    serve(_MODULES, request_file, report_file)
