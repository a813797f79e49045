"""What halfwise leaves for itself, damaged or forged: journals, walks and facts that are kept, notes, locks, stores."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import onnx

from tools.fuzz.artifacts import Archive, Bytes, Document, Journal, KeptDocument, Lines, Signed
from tools.fuzz.attack import HERE, MODEL, Attack, Made, saved, sound
from tools.fuzz.database import Database
from tools.fuzz.large import CACHE, small_counts_as_large
from tools.fuzz.machines import machine
from tools.fuzz.seeds import seed_model

__all__ = ["left_behind"]

_SEEDS = ("norm", "convolutions", "attention", "indices", "recurrent")
_FIX = ("fix", MODEL, "--out", "out", "--max-runs", "6", "--json")
_BISECT = ("bisect", MODEL, "--backend", "ort-cpu", "--builds", "3", "--out", "out", "--json")
_PROVE = ("prove", "--backend", "ort-cpu", "--out", "machine.json", "--json")
_FLEET = ("fleet", "run", f"{HERE}/fleet.toml", "--json")  # its processes were forked elsewhere
_SCRATCH = ".halfwise-999999999-x"
_WEIGHTS = "w.bin"


def left_behind() -> Iterator[Attack]:
    search, steps, probes = "out/.halfwise-search.jsonl", "out/.halfwise-bisect.jsonl", ".halfwise-prove.jsonl"
    yield Attack("journal", search, _FIX, _SEEDS, _searched(Lines), Lines, kept=True, same=True)
    yield Attack("journal-forged", search, _FIX, _SEEDS, _searched(_journal), Journal)
    yield Attack("steps", steps, _BISECT, _SEEDS, _bisected(Lines), Lines, kept=True, same=True)
    yield Attack("steps-forged", steps, _BISECT, _SEEDS, _bisected(_journal), Journal)
    yield Attack("probes", probes, _PROVE, ("probes",), _proven(Lines), Lines)
    yield Attack("probes-forged", probes, (*_PROVE, "--time"), ("probes",), _proven(_journal), Journal)
    yield Attack("note", f"out/{_SCRATCH}/names.json", _FIX, _SEEDS, _note, Document, kept=True, same=True)
    yield Attack("lock", "out/.halfwise-lock", _FIX, _SEEDS, _lock, Lines, kept=True, same=True)
    many = tuple(f"{seed}/{number}" for seed in _SEEDS for number in range(16))
    yield Attack("walk", "a walk", _FIX, many, _walk(Bytes), Bytes, kept=True, same=True, large=True)
    yield Attack("walk-forged", "a walk", _FIX, many, _walk(_arrays), Archive, same=True, large=True)
    yield Attack("walk-told", "a walk", _FIX, many, _walk(_told), KeptDocument, large=True)
    yield Attack("facts", "facts", _FIX, _SEEDS, _facts, Lines, kept=True, same=True, large=True)
    store = "out/fleet.sqlite"
    yield Attack("fleet-run", store, _FLEET, ("store",), _fleet(Bytes), Bytes, kept=True)
    yield Attack("fleet-forged", store, _FLEET, ("store",), _fleet(Database), Database)
    yield Attack("fleet-shown", store, ("fleet", "show", "fleet.toml"), ("store",), _fleet(Database), Database)
    for name in ("answer.json", "log.txt", ".call", "out", "inputs"):
        yield Attack(f"fleet-{name}", name, _FLEET, ("store",), _beside_a_job(name), Lines, kept=True)
    yield Attack("machine-gate", "a.json", ("gate", MODEL, "--plan", "p.json"), _SEEDS, _learned, Signed)
    yield Attack("machine-folder", "a.json", ("profiles", ".", "--json"), ("norm",), _learned, Signed, kept=True)


def _journal(text: str) -> Journal:
    first, *lines = text.splitlines()
    entries = [json.loads(line) for line in lines if line]
    return Journal(json.loads(first)["identity"], {entry["key"]: entry["value"] for entry in entries})


@contextmanager
def _nothing_goes() -> Iterator[None]:
    """What a search discards when it comes to its end stays."""
    from halfwise.emulation.kept_walks import KeptWalks
    from halfwise.search.journal import Journal as Kept

    with mock.patch.object(Kept, "discard"), mock.patch.object(KeptWalks, "discard"):
        yield


@cache
def _search(seed: str) -> str:
    from halfwise.verbs.fix.fix import JOURNAL, fix

    with saved(seed) as path, _nothing_goes():
        fix(path, out=path.parent / "out", max_runs=6)
        return Path(path.parent, "out", JOURNAL).read_text(encoding="utf-8")


def _searched(kind: Callable[[str], Any]) -> Callable[[str], Made]:
    """A search that was interrupted after it had measured a few sets."""
    return lambda seed: Made(kind(_search(seed)), {MODEL: sound(seed)})


@cache
def _steps(seed: str) -> str:
    from halfwise.verbs.bisect.asked import JOURNAL
    from halfwise.verbs.bisect.run import bisect

    with saved(seed) as path, _nothing_goes():
        bisect(path, "ort-cpu", out=path.parent / "out", builds=3)
        return Path(path.parent, "out", JOURNAL).read_text(encoding="utf-8")


def _bisected(kind: Callable[[str], Any]) -> Callable[[str], Made]:
    return lambda seed: Made(kind(_steps(seed)), {MODEL: sound(seed)})


@cache
def _probes() -> tuple[str, dict[str, Any]]:
    """The identity of a run here, and what another machine answered to every probe, with times that nobody took."""
    from halfwise.backends import backend_named
    from halfwise.backends.confirm import probe
    from halfwise.emulation.probes import PROBES
    from halfwise.emulation.profiles.machine import FormRecord
    from halfwise.emulation.profiles.shipped import shipped_machine
    from halfwise.emulation.timing.grid import GRID
    from halfwise.verbs.prove.prove import _journal as journal_of
    from halfwise.verbs.prove.times import _name, rows_of

    runner = backend_named("ort-cpu", None)
    journal = journal_of(Path("machine.json"), runner, probe(runner), PROBES)
    known = {form.name: form for form in shipped_machine().forms}
    refused = (FormRecord(form.name, form.rule, "refused") for form in PROBES)
    entries = {form.name: known.get(form.name, form).to_json() for form in refused}
    took = {"milliseconds": 0.1, "spread": 0.01, "cold_ms": 0.2, "clock": ["a clock", 1.0, 9]}
    return journal._identity, {**entries, **{_name(row): took for row in rows_of(GRID)}}


def _proven(kind: Callable[[str], Any]) -> Callable[[str], Made]:
    def make(seed: str) -> Made:
        return Made(kind(Journal(*_probes()).content().decode()))

    return make


def _note(seed: str) -> Made:
    """Of a batch that was killed among its names."""
    names = {f"{_SCRATCH}/{place}/{name}": name for place, name in enumerate(("m.fp16.onnx", "m.plan.json"), 1)}
    written = {f"out/{_SCRATCH}/1/m.fp16.onnx": b"a model", f"out/{_SCRATCH}/2/m.plan.json": b"a plan"}
    return Made(
        Document({"names": names, "dropped": ["m.report.html", "m.fp16.onnx.data"]}), {MODEL: sound(seed), **written}
    )


def _lock(seed: str) -> Made:
    return Made(Lines("process 999999999 on here since 2026-01-01 00:00:00\nfolders made: 1"), {MODEL: sound(seed)})


def _external(seed: str) -> tuple[bytes, bytes]:
    """The model with its FP32 weights in a file beside it."""
    proto, content = seed_model(seed), b""
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.raw_data:
            where = {"location": _WEIGHTS, "offset": str(len(content)), "length": str(len(tensor.raw_data))}
            content += tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in where.items():
                tensor.external_data.add(key=key, value=value)
    return proto.SerializeToString(), content


@cache
def _large(seed: str) -> tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]:
    """A large model with its weights, the walks that a search kept for itself, and the facts that it keeps."""
    from halfwise.verbs.fix.fix import fix
    from halfwise.verbs.fix.results_folder import WALKS

    with _elsewhere() as folder, small_counts_as_large(), _nothing_goes():
        model, weights = _external(seed)
        (folder / MODEL).write_bytes(model)
        (folder / _WEIGHTS).write_bytes(weights)
        fix(MODEL, out="out", max_runs=6)
        walks = {path.name: path.read_bytes() for path in sorted(Path("out", WALKS).glob("*.npz"))}
        facts = {path.name: path.read_bytes() for path in sorted(Path(CACHE, "weights").glob("*"))}
    return {MODEL: model, _WEIGHTS: weights}, walks, facts


@contextmanager
def _elsewhere() -> Iterator[Path]:
    """In a folder of its own, as a run is: words name files in it."""
    before = Path.cwd()
    with TemporaryDirectory(prefix="halfwise-fuzz-") as folder:
        os.chdir(folder)
        try:
            yield Path()
        finally:
            os.chdir(before)


def _walk(kind: Callable[..., Any]) -> Callable[[str], Made]:
    def make(seed: str) -> Made:
        from halfwise.verbs.fix.results_folder import WALKS

        model, _, number = seed.partition("/")
        beside, walks, _ = _large(model)
        names = [name for name in sorted(walks) if kind is not _told or _document(walks[name]) is not None]
        name = names[int(number) % len(names)]
        kept = {f"out/{WALKS}/{each}": walks[each] for each in walks if each != name}
        made = _told(walks[name], Path(name).stem) if kind is _told else kind(walks[name])
        return Made(made, {**beside, **kept}, f"out/{WALKS}/{name}")

    return make


def _arrays(content: bytes) -> Archive:
    with np.load(io.BytesIO(content)) as held:
        return Archive({name: held[name] for name in held.files})


def _document(content: bytes) -> Any:
    """What a walk found out, where it is no answer of the model."""
    with np.load(io.BytesIO(content)) as held:
        names = json.loads(held["document"].tobytes())["names"]
        return json.loads(held["a0"].tobytes()) if names == ["document"] else None


def _told(content: bytes, key: str) -> KeptDocument:
    return KeptDocument(_document(content), key)


def _facts(seed: str) -> Made:
    beside, _, facts = _large(seed)
    name, content = next(iter(facts.items()))
    return Made(Lines(content.decode()), beside, f"{CACHE}/weights/{name}")


_TOML = f"""[fleet]
results = "out"
processes = 1
memory = "4 GB"
[defaults]
do = ["scan", "fix"]
runs = 6
[[models]]
name = "m"
path = "{MODEL}"
"""


@cache
def _ran() -> dict[str, bytes]:
    """Every file of a fleet that ran, by name."""
    from halfwise.cli.main import run_words
    from halfwise.fleet.run import Watcher, run_fleet
    from halfwise.fleet.settings import read_settings

    with _elsewhere() as folder:
        (folder / MODEL).write_bytes(sound("norm"))
        (folder / "fleet.toml").write_text(_TOML)
        run_fleet(read_settings(folder.absolute() / "fleet.toml"), run_words, Watcher())
        return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _fleet(kind: Callable[[bytes], Any]) -> Callable[[str], Made]:
    def make(seed: str) -> Made:
        files = {name: content for name, content in _ran().items() if not name.endswith((".lock", "-shm", "-wal"))}
        return Made(kind(files["out/fleet.sqlite"]), files)

    return make


def _beside_a_job(name: str) -> Callable[[str], Made]:
    """Of a job that runs anew, for there is no store."""

    def make(seed: str) -> Made:
        answer = next(path for path in _ran() if path.endswith("/answer.json") and "/fix-" in path)
        files = {path: content for path, content in _ran().items() if path in (MODEL, "fleet.toml")}
        return Made(Lines(_ran()[answer].decode()), files, answer.replace("answer.json", name))

    return make


def _learned(seed: str) -> Made:
    plan = {"schema": "halfwise.plan/1", "fp32_nodes": [], "profile": "a.json"}
    return Made(Signed(machine()), {MODEL: sound(seed), "p.json": json.dumps(plan).encode()})
