"""The child process of `tensorrt`."""

from __future__ import annotations

from halfwise.compiler.native_build import serve

__all__ = ["main"]

_MODULES = ("tensorrt", "tensorrt_bindings")


def main(request_file: str, report_file: str) -> None:
    serve(_MODULES, request_file, report_file)
