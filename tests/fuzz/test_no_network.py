"""No network is used, and ONNX Runtime's telemetry is off: nothing is gathered, in any process of halfwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

from tests.models.build import model, node, value
from tests.support.cut_off import CAN_BE_CUT_OFF
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="functions run in the caller's process there")

CUT_OFF = "from tests.support.cut_off import cut_off; cut_off(); " if CAN_BE_CUT_OFF else ""
FLEET = '[fleet]\nresults = "results"\n[defaults]\ndo = ["fix"]\n[[models]]\nname = "m"\npath = "m.onnx"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a home, and with a model whose weight is far away."""
    (tmp_path / "home").mkdir()
    proto = model([node("Exp", "x", "y")], [value("x")], [value("y")])
    onnx.save(proto, tmp_path / "m.onnx")
    far = proto.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    far.external_data.add(key="location", value="https://127.0.0.1/w.bin")
    (tmp_path / "far.onnx").write_bytes(proto.SerializeToString())
    (tmp_path / "fleet.toml").write_text(FLEET)
    return tmp_path


def run(program: str, folder: Path) -> int:
    unset = ("HALFWISE_CONTAIN", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    environment = {name: setting for name, setting in os.environ.items() if name not in unset}
    environment |= {"HOME": str(folder / "home"), "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    return subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, check=False).returncode


def gathered(folder: Path) -> list[Path]:
    return list((folder / "home").rglob("*"))


def command(words: str) -> str:
    return f"import sys; sys.argv[1:] = {words.split()}; from halfwise.__main__ import main; main()"


PROGRAMS = {
    "demo": (command("demo --out demo"), 0),
    "bisect": (command("bisect m.onnx --backend ort-cpu"), 0),
    "fleet run": (command("fleet run fleet.toml"), 0),
    "scan": (command("scan far.onnx"), 2),
    "halfwise.demo": ("import halfwise; halfwise.demo('demo')", 0),
    "halfwise.verify": ("import halfwise; halfwise.verify('m.onnx', 'm.onnx')", 0),
}


@pytest.mark.parametrize(("program", "code"), PROGRAMS.values(), ids=PROGRAMS)
def test_nothing_is_asked_for_and_nothing_gathered(program: str, code: int, folder: Path) -> None:
    assert run(CUT_OFF + program, folder) == code
    assert gathered(folder) == []


@pytest.mark.skipif(not CAN_BE_CUT_OFF, reason="the kernel is asked only where the numbers of its calls are known")
def test_who_asks_for_a_network_is_seen(folder: Path) -> None:
    assert run(f"{CUT_OFF}import socket; socket.socket(socket.AF_UNIX).close()", folder) == 0
    assert run(f"{CUT_OFF}import socket; socket.socket()", folder) < 0


def test_who_gathers_is_seen(folder: Path) -> None:
    assert run("import onnxruntime; onnxruntime.InferenceSession('m.onnx')", folder) == 0
    if not gathered(folder):
        pytest.skip("this ONNX Runtime gathers nothing")
