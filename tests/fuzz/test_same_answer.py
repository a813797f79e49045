"""The same question has the same answer: over runs, orders of files, and numbers of threads and cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halfwise.core.one_thread import on_one_thread
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight

THREADS = (1, 2, 3, 8)
MORE = {"fix": [], "trace": [], "bisect": ["--backend", "ort-cpu"], "stages": ["--cut", "e"]}


def saved(folder: Path) -> Path:
    """Products large enough for several threads, a norm that overflows in FP16, and a softmax."""
    numbers = np.random.default_rng(0)
    wide = [weight(name, (numbers.standard_normal((256, 256)) / 16).astype(np.float32)) for name in ("v", "w")]
    nodes = [
        node("MatMul", "x v", "h"),
        node("Mul", "h loud", "l"),
        node("Mul", "l l", "q"),
        node("ReduceMean", "q", "m", axes=[-1]),
        node("Sqrt", "m", "r"),
        node("Div", "l r", "n"),
        node("MatMul", "n w", "p"),
        node("Softmax", "p", "y"),
    ]
    weights = [*wide, weight("loud", np.float32(900))]
    shape = [64, 256]
    onnx.save(model(nodes, [value("x", shape=shape)], [value("y", shape=shape)], weights), folder / "m.onnx")
    return folder / "m.onnx"


def every_kernel(folder: Path) -> Path:
    """Operators whose kernels share their sums among threads, each in a size that they share: 64 rows of 2,304."""
    numbers = np.random.default_rng(1)

    def random(name: str, *shape: int) -> onnx.TensorProto:
        size = np.sqrt(np.prod(shape[1:]))
        return weight(name, (numbers.standard_normal(shape) / size).astype(np.float32))

    nodes = [
        node("Conv", "x pointwise", "c1"),
        node("Conv", "c1 wide", "c2", pads=[1, 1, 1, 1]),
        node("Mul", "c2 loud", "l"),
        node("Mul", "l l", "q"),
        node("ReduceMean", "q", "m", axes=[1]),
        node("Sqrt", "m", "r"),
        node("Div", "l r", "n"),
        node("LRN", "n", "lr", size=5),
        node("Softplus", "lr", "s"),
        node("Elu", "s", "e"),
        node("ConvTranspose", "e back", "t", strides=[2, 2]),
        node("Reshape", "t rows", "f"),
        node("LayerNormalization", "f gain", "ln"),
        node("MatMul", "ln few", "p"),
        node("Gemm", "p gemm", "g", transB=1),
        node("Reshape", "g steps", "seq"),
        node("LSTM", "seq in again", "lstm", hidden_size=128),
        node("GRU", "seq in3 again3", "gru", hidden_size=128),
        node("Add", "lstm gru", "both"),
        node("ReduceLogSumExp", "both", "red", axes=[1, 2], keepdims=0),
        node("Softmax", "red", "y"),
    ]
    weights = [
        random("pointwise", 64, 32, 1, 1), random("wide", 64, 64, 3, 3), random("back", 64, 16, 2, 2),
        random("few", 256, 64), random("gemm", 96, 64), random("in", 1, 512, 96), random("again", 1, 512, 128),
        random("in3", 1, 384, 96), random("again3", 1, 384, 128),
        weight("gain", np.ones(256, np.float32)), weight("loud", np.float32(900)),
        weight("rows", np.array([-1, 256])), weight("steps", np.array([12, -1, 96])),
    ]  # fmt: skip
    ends = [value("x", shape=[1, 32, 12, 12])], [value("y", shape=[12, 128])]
    onnx.save(model(nodes, *ends, weights, opset=17), folder / "kernels.onnx")
    for number in range(4):
        values = np.random.default_rng(number).standard_normal((1, 32, 12, 12)).astype(np.float32)
        (folder / "in").mkdir(exist_ok=True)
        np.savez(folder / "in" / f"{number}.npz", x=values)
    return folder / "kernels.onnx"


def answer(path: Path, order: int, out: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The document and the files, times apart. Samples are written in another order."""
    samples = out.with_suffix(".samples")
    samples.mkdir()
    for number in range(6)[::order]:
        values = np.random.default_rng(number).standard_normal((64, 256)).astype(np.float32)
        np.savez(samples / f"{number}.npz", x=values)
    document = fix(path, samples, out=out, max_runs=6).to_json()
    document.pop("cost")
    document = json.loads(json.dumps(document).replace(str(out), "out"))
    files = {each.name: each.read_bytes() for each in sorted(out.iterdir()) if each.suffix != ".html"}
    return document, files


def test_the_same_bytes_over_runs_and_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    first = answer(path, 1, tmp_path / "a")
    assert len(first[1]) >= 2 and first[0]["status"] == "met"
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda *given: sorted(listed(*given), reverse=True))
    assert answer(path, -1, tmp_path / "b") == first


def told(words: Sequence[str], threads: int, cores: int | None) -> str:
    """What a command prints where OpenMP, BLAS and the system tell of so many threads and cores."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    kept = None if cores is None else partial(os.sched_setaffinity, 0, sorted(os.sched_getaffinity(0))[:cores])
    ran = subprocess.run(
        [sys.executable, "-m", "halfwise", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **dict.fromkeys(names, str(threads))},
        preexec_fn=kept,
    )
    assert ran.returncode in (0, 1), ran.stderr
    return ran.stdout


def timeless(value: Any) -> Any:
    """A document without its times and the memory that it took."""
    if isinstance(value, dict):
        kept = (key for key in value if "seconds" not in key and key != "peak_rss_mb")
        return {key: timeless(value[key]) for key in kept}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def asked(verb: str, path: Path, threads: int, cores: int | None = None) -> tuple[Any, dict[str, bytes]]:
    out = path.parent / f"{verb}-{threads}-{cores}"
    words = [verb, str(path), "--inputs", str(path.parent / "in"), "--json", *MORE[verb], f"--out={out}"]
    words = words[:-1] if verb == "trace" else words
    text = told(words, threads, cores).replace(str(out), "out")
    files = {
        each.name: each.read_bytes().replace(str(out).encode(), b"out")
        for each in sorted(out.glob("*"))
        if each.suffix in (".onnx", ".json")
    }
    return timeless(json.loads(text)), files


@pytest.mark.skipif(sys.platform != "linux", reason="a process is kept to some cores")
def test_the_same_bytes_over_threads_and_cores(tmp_path: Path) -> None:
    """Every kernel that shares its sums among threads is in it: models, plans and documents, times apart."""
    path = every_kernel(tmp_path)
    document, files = asked("fix", path, 1, cores=1)
    assert document["status"] == "met" and {"kernels.fp16.onnx", "kernels.plan.json"} <= files.keys()
    for threads in THREADS:
        assert asked("fix", path, threads) == (document, files), threads


@pytest.mark.parametrize("verb", sorted(MORE.keys() - {"fix"}))
@pytest.mark.skipif(sys.platform != "linux", reason="a process is kept to some cores")
def test_other_verbs_tell_the_same_over_threads(tmp_path: Path, verb: str) -> None:
    path = every_kernel(tmp_path)
    assert asked(verb, path, 1, cores=1) == asked(verb, path, 3)


def test_products_on_one_thread_leave_the_threads_of_others_as_they_were() -> None:
    rows = np.random.default_rng(0).standard_normal((500, 2000))
    before = rows @ rows[0]
    with on_one_thread():
        first = rows @ rows[0]
        with on_one_thread():
            assert np.array_equal(rows @ rows[0], first)
        assert np.array_equal(rows @ rows[0], first)
    assert np.array_equal(rows @ rows[0], before)
