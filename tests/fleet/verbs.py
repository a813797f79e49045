"""Verbs that a fleet's processes run in tests: each does one thing, named by its model's file."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from halfwise.core.child.black_box import Fatal, guarded, native_call

__all__ = ["toy"]


def toy(words: Sequence[str]) -> int:
    """Ends as the file of the model says; every call leaves a mark beside it."""
    path = Path(words[1])
    said = json.loads(path.read_text())
    with path.with_suffix(".calls").open("a") as calls:
        calls.write(f"{words[0]}\n")
    path.with_suffix(".pids").write_text(f"{os.getpid()} {os.getppid()}")
    kind = said.get("ends", "good")
    if kind == "crashes in a library":
        for call in range(2):
            with suppress(Fatal), guarded(native_call("running a model", bytes([call]))):
                ctypes.string_at(0)
        kind = "good"
    if kind == "segfault":
        ctypes.string_at(0)
    if kind == "hang":
        time.sleep(600)
    if kind == "eat":
        eaten = []
        while True:
            eaten.append(bytearray(os.urandom(1 << 20) * 16))
    while not path.with_name(said.get("beside", path.stem)).with_suffix(".calls").exists():
        time.sleep(0.05)  # until both run
    held = b"\1" * (said.get("holds", 0) << 20)
    time.sleep(2.0 if held else 0.0)
    if kind == "vanish":
        path.unlink()
    if kind in ("refused", "vanish"):
        print("halfwise: a.onnx is no model", file=sys.stderr)
        return 2
    if kind == "raise":
        raise ValueError("unforeseen")
    print(json.dumps(_fixed(said)) if words[0] == "fix" else json.dumps({"schema": "halfwise.scan/1", "findings": []}))
    return 0 if kind == "good" else 1


def _fixed(said: dict[str, object]) -> dict[str, object]:
    count = said.get("fp32", 0)
    assert isinstance(count, int)
    nodes = [{"name": f"n{i}", "op": "LayerNormalization", "why": "overflow", "format": "fp32"} for i in range(count)]
    return {
        "schema": "halfwise.fix/1",
        "status": "met",
        "model": {"nodes": 10},
        "cost": {"fp32_flops_share": count / 10, "model_runs": 5.0},
        "error": {"fixed": {"y": {"rel_l2": said.get("error", 1e-3)}}},
        "fp32_nodes": [node["name"] for node in nodes],
        "nodes": nodes,
        "things": said.get("things", []),
        "repairs": [],
        "artifacts": {"report": None},
    }
