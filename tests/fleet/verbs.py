"""Verbs that a fleet's processes run in tests: each does one thing, named by its model's file."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from halfwise.core.child.black_box import Fatal, guarded, native_call

__all__ = ["toy"]


def toy(words: Sequence[str]) -> int:
    """Ends as the file of the model says; every call leaves a mark beside it."""
    path = Path(words[1])
    said = json.loads(path.read_text())
    if said.get("fp32") == "samples":
        said["fp32"] = len(list(Path(words[words.index("--inputs") + 1]).glob("*.npz")))
    if "--metric" in words:
        module, _, name = words[words.index("--metric") + 1].partition(":")
        said["error"] = getattr(import_module(module), name)({}, {})
    with path.with_suffix(".calls").open("a") as calls:
        calls.write(f"{words[0]}\n")
    path.with_suffix(".pids").write_text(f"{os.getpid()} {os.getppid()}")
    if "--device" in words:  # none other runs there meanwhile
        os.close(os.open(path.with_name("gpu"), os.O_CREAT | os.O_EXCL))
        time.sleep(0.2)
        path.with_name("gpu").unlink()
    kind = said.get("ends", "good")
    if kind == "crashes in a library":
        for call in range(2):
            with suppress(Fatal), guarded(native_call("running a model", bytes([call]))):
                ctypes.string_at(0)
        kind = "good"
    if kind == "segfault":
        ctypes.string_at(0)
    while kind == "hang":
        time.sleep(60)
    if kind == "eat":
        eaten = []
        while True:
            eaten.append(bytearray(os.urandom(1 << 20) * 16))
    if "beside" in said:
        _hold(said["holds"], path.with_name(said["beside"]))
    if kind == "vanish":
        path.unlink()
    if kind in ("refused", "vanish"):
        print("halfwise: a.onnx is no model", file=sys.stderr)
        return 2
    if kind == "raise":
        raise ValueError("unforeseen")
    print(json.dumps(_fixed(said)) if words[0] == "fix" else json.dumps({"schema": "halfwise.scan/1", "findings": []}))
    return 0 if kind == "good" else 1


def _hold(megabytes: int, other: Path) -> None:
    """As much memory, from when both run until the other one has ended or was stopped."""
    while not (numbers := other.with_suffix(".pids").read_text().split()):
        time.sleep(0.05)
    held = b"\1" * (megabytes << 20)
    while Path("/proc", numbers[0]).exists() and held:
        time.sleep(0.05)


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
