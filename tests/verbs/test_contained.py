"""Public functions in a worker: the same answers and errors, and the end of the worker is an error here."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import EncodeError

import halfwise
from halfwise.core.errors import InputError
from halfwise.model.travel import pack
from halfwise.verbs.contained import pool
from halfwise.verbs.contained.given import Given, Untravelled
from halfwise.verbs.contained.message import Call, Failed
from halfwise.verbs.contained.serve import _answer
from tests.models.build import f32, model, node, value, weight
from tests.support.paths import DATA, ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="calls run in the caller's process there")

FEEDS = [{"x": f32(1, 2, 3, 4) * (index + 1)} for index in range(3)]


@pytest.fixture(autouse=True)
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HALFWISE_CONTAIN")


def loud() -> onnx.ModelProto:
    nodes = [node("Mul", "x loud", "h"), node("Mul", "h h", "q"), node("Mul", "q soft", "y")]
    return model(nodes, [value("x")], [value("y")], [weight("loud", f32(300.0)), weight("soft", f32(1e-5))])


def gru() -> onnx.ModelProto:
    """ONNX Runtime aborts: the input has no step."""
    weights = [weight("w", np.zeros((1, 12, 4), np.float32)), weight("r", np.zeros((1, 12, 4), np.float32))]
    inputs, outputs = [value("x", shape=[0, 1, 4])], [value("y", shape=None)]
    return model([node("GRU", "x w r", "y", hidden_size=4)], inputs, outputs, weights)


def test_the_answer_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = halfwise.fix(loud(), FEEDS, out=tmp_path / "there")
    seen = halfwise.scan(loud())
    monkeypatch.setenv("HALFWISE_CONTAIN", "0")
    here = halfwise.fix(loud(), FEEDS, out=tmp_path / "here")
    assert there.fp32_nodes == here.fp32_nodes and there.plan.text() == here.plan.text()
    assert [site.name for site in there.sites.all] == [site.name for site in here.sites.all]
    assert all(site.node is there.sites.model.node_by_name[site.name] for site in there.sites.all)
    files = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("there", "here")]
    assert files[0] == files[1] and seen.to_json() == halfwise.scan(loud()).to_json()


def test_what_ends_the_runtime_is_an_error_and_the_next_call_is_answered() -> None:
    with pytest.raises(InputError, match=r"crashed \(SIGABRT\) at 'n_y' \(GRU\), given x 0x1x4"):
        halfwise.verify(gru(), gru(), [{"x": np.zeros((0, 1, 4), np.float32)}])
    assert halfwise.verify(loud(), loud(), FEEDS).met


def test_a_stream_that_was_read_is_not_asked_for_again() -> None:
    feeds = ({"x": np.zeros((0, 1, 4), np.float32)} for _ in range(1))
    with pytest.raises(InputError, match=r"the worker of verify crashed \(SIGABRT\) while running a model"):
        halfwise.verify(gru(), gru(), feeds)


def test_what_ends_type_inference_is_done_without(tmp_path: Path) -> None:
    proto = model([node("LayerNormalization", "x s", "y", axis=2**31 - 1)], [value("x"), value("s")], [value("y")])
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    assert halfwise.scan(path).facts.nodes == 1 and halfwise.advise("trt-10.9@t4", path)
    assert halfwise.load(path).nodes[0].op_type == "LayerNormalization"
    assert halfwise.doctor([path]) and halfwise.log(DATA / "logs" / "strong_11_failure.log", path)


def test_every_public_function_runs_in_a_worker_or_no_library_on_a_model() -> None:
    functions = {name for name in halfwise.__all__ if inspect.isfunction(getattr(halfwise, name))}
    assert functions - {"compare", "load", "profiles", "read_plan"} == halfwise._CONTAINED


def test_functions_and_iterables_stay_with_their_caller() -> None:
    told: list[Any] = []

    def metric(reference: Any, other: Any) -> float:
        told.append(os.getpid())
        return float(np.abs(reference["y"] - other["y"]).max())

    def feeds() -> Iterator[dict[str, Any]]:
        told.append("read")
        yield from FEEDS

    fixed = halfwise.fix(loud(), feeds(), metric=metric, tolerance="metric<=1e-2", notify=told.append)
    assert fixed.samples.origin == "given" and len(fixed.samples.all) == 3
    assert {"read", os.getpid()} <= set(told) and any(isinstance(each, str) and each != "read" for each in told)


def test_errors_of_the_caller_s_own_functions_are_their_own() -> None:
    class Enough(BaseException):
        def __init__(self, one: object, two: object) -> None:
            super().__init__("enough")

    enough = Enough(1, 2)

    def stop(told: str) -> None:
        raise enough

    with pytest.raises(Enough) as caught:
        halfwise.fix(loud(), FEEDS, notify=stop)
    assert caught.value is enough


def test_errors_and_warnings_come_along() -> None:
    with pytest.raises(InputError, match="there is no such file"):
        halfwise.scan("nowhere.onnx")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        halfwise.convert(loud())
    mine = [each for each in warned if each.category is halfwise.ConversionWarning]
    assert mine and Path(mine[0].filename).name == Path(__file__).name and mine[0].message.note.kind


def writes_without_memory() -> None:
    raise EncodeError("Failed to serialize proto")


def test_a_lack_of_memory_is_told_as_such() -> None:
    failed = _answer(Call(f"{__name__}:writes_without_memory", pack(((), {})), str(Path.cwd()), {}))
    assert isinstance(failed, Failed) and isinstance(failed.error(), MemoryError)


def test_a_runner_of_the_caller_s_own_runs_here() -> None:
    class Runner:
        def run(self, index: int, feed: Any) -> dict[str, Any]:
            return {"y": feed["x"]}

    with pytest.raises(Untravelled):
        Given().pack(Runner())
    assert halfwise.verify(Runner(), Runner(), FEEDS).met


def test_a_loaded_model_is_read_again_there(tmp_path: Path) -> None:
    onnx.save(loud(), tmp_path / "m.onnx")
    loaded = halfwise.load(tmp_path / "m.onnx")
    assert halfwise.fix(loaded, FEEDS).sites.model.sha256 == loaded.sha256
    onnx.save(gru(), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="has changed since"):
        halfwise.fix(loaded, FEEDS)


def test_threads_do_not_wait_for_one_another() -> None:
    begun: list[int] = []

    def wait(done: int, total: int) -> None:
        begun.append(done)
        deadline = time.monotonic() + 60
        while len(begun) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)

    def look() -> None:
        halfwise.trace(loud(), FEEDS[:1], notify=wait)

    threads = [Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(begun) >= 2 and not any(thread.is_alive() for thread in threads)


def test_a_call_over_its_time_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFWISE_TIME_LIMIT", "1e-6")
    with pytest.raises(InputError, match=r"scan was stopped after 1e-06 s \(HALFWISE_TIME_LIMIT\)"):
        halfwise.scan(loud())


def test_an_interruption_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[pool.Worker] = []
    close = pool.Worker.close
    monkeypatch.setattr(pool.Worker, "close", lambda worker: (close(worker), ended.append(worker))[0])

    def press(told: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        halfwise.fix(loud(), FEEDS, notify=press)
    assert [worker.child.returncode for worker in ended] == [-signal.SIGKILL]


def test_the_end_of_a_program_warns_of_nothing(tmp_path: Path) -> None:
    onnx.save(loud(), tmp_path / "m.onnx")
    words = [sys.executable, "-W", "error", "-c", "import halfwise; halfwise.scan('m.onnx')"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_worker_does_not_outlive_its_caller() -> None:
    code = (
        "import os, signal, halfwise, numpy as np; from halfwise.verbs.contained import pool\n"
        "try: halfwise.scan('nowhere.onnx')\nexcept halfwise.InputError: pass\n"
        "print(pool._idle[0].child.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    number = int(told.stdout)
    deadline = time.monotonic() + 60
    while _lives(number) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _lives(number)


def _lives(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _said_by_a_script(lines: str, folder: Path, **environment: str) -> str:
    """What a process of its own prints, which begins with one thread."""
    onnx.save(loud(), folder / "m.onnx")
    onnx.save(gru(), folder / "gru.onnx")
    begin = (
        "import halfwise, numpy as np\nfrom halfwise.verbs.contained import pool\n"
        "def kind(): return type(pool._idle[-1].child).__name__\n"
    )
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", begin + lines],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not told.returncode, told.stderr
    return told.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="a worker is started there")
class TestAWorkerThatIsACopy:
    """Of a process in which nothing else runs: nothing is loaded twice."""

    def test_it_is_made_where_that_is_safe(self, tmp_path: Path) -> None:
        lines = "halfwise.scan('m.onnx'); print(kind())"
        assert _said_by_a_script(lines, tmp_path) == "Copy\n"
        threads = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        native = "import ctypes; libc = ctypes.CDLL(None)\nlibc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, "
        for other in (threads, native + "libc.pause, None)\n"):
            assert _said_by_a_script(other + lines, tmp_path) == "Popen\n"
        assert _said_by_a_script(lines, tmp_path, HALFWISE_MEMORY_LIMIT="8G") == "Popen\n"
        large = "kept = np.ones(1 << 27)\n"
        assert _said_by_a_script(large + lines, tmp_path) == "Popen\n"

    def test_it_is_made_beside_threads_that_sleep_and_runs_models(self, tmp_path: Path) -> None:
        lines = (
            "import onnxruntime as ort; options = ort.SessionOptions(); options.intra_op_num_threads = 4\n"
            "session = ort.InferenceSession('m.onnx', options); feed = {'x': np.ones(4, np.float32)}\n"
            "session.run(None, feed); import time; time.sleep(1); print(len(os.listdir('/proc/self/task')) > 3)\n"
            "print(halfwise.verify('m.onnx', 'm.onnx', [feed]).met, halfwise.fix('m.onnx', [feed]).met, kind())\n"
            "print(len(session.run(None, feed)))"
        )
        assert _said_by_a_script("import os\n" + lines, tmp_path) == "True\nTrue True Copy\n1\n"

    def test_its_death_is_an_error_and_the_next_call_is_answered(self, tmp_path: Path) -> None:
        lines = (
            "try: halfwise.verify('gru.onnx', 'gru.onnx', [{'x': np.zeros((0, 1, 4), np.float32)}])\n"
            "except halfwise.InputError as error: print(error)\n"
            "print(kind(), halfwise.scan('m.onnx').facts.nodes)"
        )
        said = _said_by_a_script(lines, tmp_path)
        assert "(SIGABRT) at 'n_y' (GRU)" in said and said.endswith("Copy 3\n")

    def test_it_holds_no_file_of_its_caller_and_writes_nothing_of_it(self, tmp_path: Path) -> None:
        lines = (
            "import os, sys, select\n"
            "text = open('text', 'w'); text.write('once'); sys.stdout.write('said once\\n')\n"
            "reader, writer = os.pipe()\n"
            "halfwise.scan('m.onnx'); os.close(writer); text.close()\n"
            "print(kind(), select.select([reader], [], [], 60)[0] == [reader])"
        )
        assert _said_by_a_script(lines, tmp_path) == "said once\nCopy True\n"
        assert (tmp_path / "text").read_text() == "once"

    def test_an_interruption_of_the_caller_is_not_its_own(self, tmp_path: Path) -> None:
        lines = (
            "import os, signal\n"
            "signal.signal(signal.SIGUSR1, lambda number, frame: print('mine'))\n"
            "def press(told): os.killpg(0, signal.SIGUSR1)\n"
            "halfwise.fix('m.onnx', [{'x': np.ones(4, np.float32)}], notify=press); print(kind())"
        )
        environment_of_a_group = "import os; os.setsid()\n"
        assert set(_said_by_a_script(environment_of_a_group + lines, tmp_path).split()) == {"mine", "Copy"}


@pytest.mark.skipif(sys.platform != "linux", reason="a worker is no copy elsewhere")
def test_a_worker_that_is_no_copy_starts_before_its_caller_has_loaded_the_function(tmp_path: Path) -> None:
    """It loads for as long as its caller does."""
    lines = (
        "import sys\nstarted, start = [], pool.process.start\n"
        "def noted(*args, **kwargs): started.append('halfwise.model' in sys.modules); return start(*args, **kwargs)\n"
        "pool.process.start = noted\n"
        "verb = halfwise.scan; begun = list(pool._idle); verb('m.onnx')\n"
        "print(started, [worker in begun for worker in pool._idle], kind())"
    )
    thread = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    assert _said_by_a_script(thread + lines, tmp_path) == "[False] [True] Popen\n"
    assert _said_by_a_script(lines, tmp_path, HALFWISE_MEMORY_LIMIT="8G") == "[False] [True] Popen\n"
    assert _said_by_a_script(lines, tmp_path) == "[] [False] Copy\n"
    nonsense = thread + "verb = halfwise.scan\ntry: verb('m.onnx')\nexcept halfwise.InputError: print('told')"
    assert _said_by_a_script(nonsense, tmp_path, HALFWISE_MEMORY_LIMIT="much") == "told\n"


@pytest.mark.parametrize("setting", [{}, {"HALFWISE_TIME_LIMIT": "inf"}], ids=["no limit", "endless"])
def test_a_program_may_have_closed_its_streams(setting: dict[str, str], tmp_path: Path) -> None:
    """As programs do that run without a terminal; the worker's pipe would get the numbers of the worker's own."""
    onnx.save(loud(), tmp_path / "m.onnx")
    code = "import os, halfwise; os._exit(10 + (halfwise.scan('m.onnx').totals.count == 2))"
    environment = {**os.environ, **setting, "PYTHONPATH": str(ROOT / "src")}
    words = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(words, cwd=tmp_path, env=environment, timeout=60).returncode == 11
