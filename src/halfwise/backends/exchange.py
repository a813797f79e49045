"""What a backend and its child process hand each other: a request, arrays in files, and a report at the end."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from halfwise.backends.backend import BackendFailure, BackendOptions, BackendRecord, BackendRun
from halfwise.compiler import process
from halfwise.core.errors import HalfwiseError, InputError, MissingBackend

__all__ = ["Request", "run_in_child", "serve"]

Array = NDArray[Any]
Feed = Mapping[str, Array]
Status = Literal["ran", "failed", "missing"]


@dataclass(frozen=True)
class Request:
    """One model to run on some samples, by the backend of that name."""

    backend: str
    model: Path
    folder: Path  # holds the samples, and gets the outputs and the report
    samples: int
    options: BackendOptions

    def feeds(self) -> list[dict[str, Array]]:
        return [_read(self.folder / f"in-{index}.npz") for index in range(self.samples)]


# What a child does with a request: outputs for each sample, and what ran them.
Serve = Callable[[Request], BackendRun]


def run_in_child(module: str, backend: str, model: Path, feeds: Sequence[Feed], options: BackendOptions) -> BackendRun:
    """Have `module.main(request file)` run the model; whatever it does, this process lives."""
    if not model.is_file():
        raise InputError(f"{model}: there is no such file")
    with tempfile.TemporaryDirectory(prefix="halfwise-run-") as name:
        folder = Path(name)
        for index, feed in enumerate(feeds):
            _write(folder / f"in-{index}.npz", feed, f"sample {index + 1}")
        request = Request(backend, model.resolve(), folder, len(feeds), options)
        (folder / "request.json").write_text(json.dumps(asdict(request), default=str), encoding="utf-8")
        log = folder / "log"
        ended = process.run(
            process.python_command(module, str(folder / "request.json")),
            log_path=log,
            time_limit_s=options.time_limit_s,
        )
        report = folder / "report.json"
        if not ended.ok or not report.is_file():
            tail = process.log_tail(log, lines=4)
            told = f"; the end of its log: {' | '.join(line[:200] for line in tail)}" if tail else ""
            raise BackendFailure(f"{backend} {ended.describe()} while running {model.name}{told}")
        return _read_report(json.loads(report.read_text(encoding="utf-8")), folder, len(feeds))


def serve(request_file: str, run: Serve) -> NoReturn:
    """The whole life of a child: run as asked, report, and end."""
    request = _read_request(Path(request_file))
    process.guard_child(request.options.time_limit_s)
    report: dict[str, Any]
    try:
        done = run(request)
        for index, outputs in enumerate(done.outputs):
            _write(request.folder / f"out-{index}.npz", outputs, f"the outputs of sample {index + 1}")
        report = {"status": "ran", "record": done.record.to_json()}
    except MissingBackend as error:
        report = {"status": "missing", "message": str(error)}
    except HalfwiseError as error:
        report = {"status": "failed", "message": str(error)}
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        report = {"status": "failed", "message": f"{type(error).__name__}: {error}"}
    part = request.folder / "report.part"
    part.write_text(json.dumps(report), encoding="utf-8")
    part.replace(request.folder / "report.json")
    sys.stderr.flush()
    os._exit(0)  # without the native library's teardown, which has nothing left to do but crash


def _read_request(path: Path) -> Request:
    data = json.loads(path.read_text(encoding="utf-8"))
    return Request(
        data["backend"],
        Path(data["model"]),
        Path(data["folder"]),
        data["samples"],
        BackendOptions(**data["options"]),
    )


def _read_report(report: Mapping[str, Any], folder: Path, samples: int) -> BackendRun:
    if report["status"] == "missing":
        raise MissingBackend(report["message"])
    if report["status"] != "ran":
        raise BackendFailure(report["message"])
    outputs = tuple(_read(folder / f"out-{index}.npz") for index in range(samples))
    return BackendRun(outputs, BackendRecord.from_json(report["record"]))


# A file of arrays numbers them, because a tensor's name may hold any letter; the names are an array of their own.
def _write(path: Path, arrays: Mapping[str, Any], what: str) -> None:
    stored: dict[str, Array] = {}
    for index, (name, array) in enumerate(arrays.items()):
        if not isinstance(array, np.ndarray):
            raise InputError(f"{what}: {name!r} is no tensor, and a backend takes and gives tensors only")
        if array.dtype.kind == "O":
            array = array.astype(str)
        elif array.dtype.name in ("bfloat16",):
            array = array.astype(np.float32)
        stored[f"a{index}"] = array
    np.savez(path, names=np.array(list(arrays), dtype=str), **stored)  # type: ignore[arg-type]


def _read(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as stored:
        arrays = [stored[f"a{index}"] for index in range(len(stored["names"]))]
        names = [str(name) for name in stored["names"]]
    return {
        name: array.astype(object) if array.dtype.kind == "U" else array
        for name, array in zip(names, arrays, strict=True)
    }
