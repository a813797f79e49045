"""Messages between a caller's process and its worker."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.verbs.contained import wire
from tests.models.build import model, node, value, weight
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="calls run in the caller's process there")


def test_arrays_arrive_as_memory_of_their_own() -> None:
    ends = Pipe()
    arrays = [np.arange(1_000_003, dtype=np.uint8), np.arange(500_000.0), np.zeros(0), np.eye(50)[::2]]
    arrays[1].flags.writeable = False
    with ends[0], ends[1]:
        wire.send(ends[0], arrays)
        arrived = wire.receive(ends[1])
        assert all(np.array_equal(one, other) for one, other in zip(arrived, arrays, strict=True))
        assert [array.flags.writeable for array in arrived] == [True, False, True, True]
        assert all(array.ctypes.data % 64 == 0 for array in arrived[:2])
        arrived[0][:] = 7
        assert arrays[0][5] == 5
        wire.send(ends[1], "the connection is as before")
        assert wire.receive(ends[0]) == "the connection is as before"


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_files_are_closed() -> None:
    ends = Pipe()
    before = _open_files()
    with ends[0], ends[1]:
        for _ in range(3):
            wire.send(ends[0], pickle.PickleBuffer(bytes(1 << 20)))
            held = wire.receive(ends[1])
            assert held.nbytes == 1 << 20
    del held
    assert _open_files() == before - 2


def test_no_memory_for_arrays_is_an_error_on_both_sides_and_the_next_call_is_answered(tmp_path: Path) -> None:
    large = weight("w", np.ones(1 << 12, np.float32))
    onnx.save(
        model([node("Mul", "x w", "y")], [value("x", shape=[1 << 12])], [value("y", shape=None)], [large]),
        tmp_path / "m.onnx",
    )
    lines = (
        "import os, onnx, numpy as np, halfwise\n"
        "from halfwise.verbs.contained import wire\n"
        f"def none(): raise OSError({errno.EMFILE}, 'Too many open files')\n"
        "whole, wire._memory = wire._memory, none\n"
        "for model in ('m.onnx', halfwise.load('m.onnx')):\n"
        "    try: print(halfwise.fix(model).met)\n"
        "    except OSError as error: print(error.errno)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", lines + "print(halfwise.scan('m.onnx').totals.count)"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HALFWISE_CONTAIN": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.stdout.split("\n")[:-1] == [str(errno.EMFILE)] * 2 + ["4096"], told.stderr
