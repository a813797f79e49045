"""What is tried: which file is damaged, which sound files stand beside it, and the command that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tools.fuzz.artifacts import Archive, Bytes, Document, Lines, OnnxFile, Safetensors, Signed
from tools.fuzz.attack import MODEL, PYTHON, Attack, Made, saved, sound
from tools.fuzz.left_behind import left_behind
from tools.fuzz.machines import machine
from tools.fuzz.seeds import SEEDS, seed_model

__all__ = ["ATTACKS"]

_DATA = Path(__file__).parents[2] / "tests" / "data"


def _model(seed: str) -> Made:
    return Made(OnnxFile(seed_model(seed)), {"w.bin": bytes(1024)})


def _of_modules(seed: str) -> Made:
    """Nodes named after two modules, as exporters name them."""
    proto = seed_model(seed)
    for place, node in enumerate(proto.graph.node):
        node.name = f"/{'body' if 2 * place < len(proto.graph.node) else 'head'}/{node.name}"
    return Made(OnnxFile(proto), _model(seed).beside)


# -- sound files that halfwise itself writes --------------------------------------------------------------------------


@cache
def _fixed(seed: str) -> tuple[Any, Any, bytes]:
    """The plan and the result of a seed as JSON, and its typed model."""
    from halfwise.verbs.fix.fix import fix

    with saved(seed) as path:
        result = fix(path, out=path.parent / "out", max_runs=12)
        typed = Path(path.parent, "out", "m.fp16.onnx").read_bytes()
        return json.loads(result.plan.text()), result.to_json(), typed


@cache
def _told(seed: str, verb: str) -> Any:
    from halfwise.verbs.scan import scan
    from halfwise.verbs.trace import trace

    with saved(seed) as path:
        found = scan(path) if verb == "scan" else trace(path)
        return json.loads(json.dumps(found.to_json()))


def _plan(seed: str) -> Made:
    return Made(Document(_fixed(seed)[0]), {MODEL: sound(seed), "layers.json": _layers(seed)})


def _layers(seed: str) -> bytes:
    """As an engine of TensorRT 10 lists its layers, one a node."""
    layers = [
        {"Name": node.name, "LayerType": node.op_type, "Metadata": f"[ONNX Layer: {node.name}]",
         "Outputs": [{"Name": name, "Format/Datatype": "Half", "Dimensions": [1, 8]} for name in node.output]}
        for node in seed_model(seed).graph.node
    ]  # fmt: skip
    return json.dumps({"Layers": layers}).encode()


def _result(seed: str) -> Made:
    result = _fixed(seed)[1]
    return Made(Document(result), {"b.json": json.dumps(result).encode()})


def _document(verb: str) -> Callable[[str], Made]:
    return lambda seed: Made(Document(_told(seed, verb)), {"b.json": json.dumps(_told(seed, verb)).encode()})


def _baseline(seed: str) -> Made:
    return Made(Document(_told(seed, "scan")), {MODEL: sound(seed), "p.json": json.dumps(_fixed(seed)[0]).encode()})


# -- inputs, outputs, and files of other tools ------------------------------------------------------------------------


@cache
def _feed(seed: str) -> Mapping[str, Any]:
    from halfwise.model.inputs.samples import load_samples
    from halfwise.model.model import load

    return dict(load_samples(load(seed_model(seed)).inputs, None).search[0])


def _inputs(seed: str) -> Made:
    return Made(Archive(_feed(seed)), {MODEL: sound(seed)})


def _npy(seed: str) -> Made:
    made = _inputs(seed)
    return Made(Archive(_feed(seed)), made.beside)


def _polygraphy(seed: str) -> Made:
    import base64

    from tools.fuzz.artifacts import _npy as written

    feed = {
        name: {"polygraphy_class": "ndarray", "array": base64.b64encode(written(array)).decode()}
        for name, array in _feed(seed).items()
    }
    return Made(Document([feed]), {MODEL: sound(seed)})


def _machine(seed: str) -> Made:
    return Made(Signed(machine()), {MODEL: sound(seed), "b.json": json.dumps(machine()).encode()})


def _engine(seed: str) -> Made:
    """The layers of an engine that was built from a plan."""
    plan = json.dumps(_fixed(seed)[0]).encode()
    return Made(Document(json.loads(_layers(seed))), {MODEL: sound(seed), "p.json": plan})


def _outputs(seed: str) -> Made:
    arrays = {"y": np.arange(8, dtype=np.float32).reshape(2, 4), "n": np.arange(3)}
    return Made(Archive(arrays), {"a.npz": Archive(arrays).content()})


def _listed(name: str) -> Made:
    text = (_DATA / "layers" / name).read_text(encoding="utf-8")
    beside = {"p.json": json.dumps({"schema": "halfwise.plan/1", "fp32_nodes": ["n_root", "a"]}).encode()}
    return Made(Document(json.loads(text)) if name.endswith(".json") else Lines(text), beside)


def _log(name: str) -> Made:
    return Made(Lines((_DATA / "logs" / name).read_text(encoding="utf-8")))


def _checkpoint(seed: str) -> Made:
    header, body = {}, b""
    for tensor in seed_model(seed).graph.initializer:
        end = len(body) + len(tensor.raw_data)
        kind = "F32" if tensor.data_type == 1 else "U8"
        shape = list(tensor.dims) if kind == "F32" else [len(tensor.raw_data)]
        header[tensor.name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), end]}
        body += tensor.raw_data
    return Made(Safetensors(header, body))


def _index(seed: str) -> Made:
    shard = _checkpoint(seed).damaged.content()
    names = [tensor.name for tensor in seed_model(seed).graph.initializer]
    document = {"metadata": {}, "weight_map": dict.fromkeys(names, "part.safetensors")}
    return Made(Document(document), {"part.safetensors": shard})


# -- fleets ------------------------------------------------------------------------------------------------------------

FLEET = """[fleet]
results = "out"
processes = 2
memory = "4 GB"

[defaults]
do = ["scan", "fix", "gate"]
targets = ["onnx", "trt-10.9@t4"]
tolerance = ["0.5%"]
seconds = 60

[[models]]
name = "m"
path = "*.onnx"
versions = true
plan = "p.json"
runs = 6
"""


def _fleet(seed: str) -> Made:
    return Made(Lines(FLEET), {MODEL: sound(seed), "p.json": b'{"schema": "halfwise.plan/1", "fp32_nodes": []}'})


@cache
def _stored() -> bytes:
    """The store of a run with one answer."""
    from halfwise.fleet.jobs import jobs_of
    from halfwise.fleet.outcome import Outcome
    from halfwise.fleet.settings import read_settings
    from halfwise.fleet.store import STORE, Store

    with TemporaryDirectory(prefix="halfwise-fuzz-") as name:
        folder = Path(name)
        (folder / MODEL).write_bytes(sound("norm"))
        (folder / "p.json").write_text('{"schema": "halfwise.plan/1", "fp32_nodes": []}')
        (folder / "fleet.toml").write_text(FLEET)
        with Store(folder / "out", write=True) as store:
            run = store.begin("0", FLEET)
            outcome = Outcome(
                "good", "", 1.0, 2.0, 3, {"schema": "halfwise.fix/1"}, 9, 1, 0.1, 0.5, 12.0, (("Pow", 1),)
            )
            for job in jobs_of(read_settings(folder / "fleet.toml")):
                store.add(run, job, job.subject, outcome, "0", "m/fix", "here")
            store.end(run, "ended")
        return (folder / "out" / STORE).read_bytes()


def _store(seed: str) -> Made:
    return Made(Bytes(_stored()), {"fleet.toml": FLEET.encode()})


# -- all of them ------------------------------------------------------------------------------------------------------

_OWN = tuple(SEEDS)
_FIXED = ("norm", "convolutions", "attention", "indices", "recurrent")
_FIX = ("fix", MODEL, "--out", "out", "--max-runs", "6", "--json")
_BUILT = ("--engine", "l.json", "--target", "trt-8.6@t4", "--profile", "tensorrt")
_LISTS = tuple(sorted(path.name for path in (_DATA / "layers").glob("*.json")))
_LOGS = tuple(sorted(path.name for path in (_DATA / "logs").glob("*.log")))


def _all() -> Iterator[Attack]:
    for verb, more in _MODEL_VERBS.items():
        yield Attack(verb, MODEL, (verb, MODEL, *more), _OWN, _model, OnnxFile)
    yield Attack("stages", MODEL, ("stages", MODEL, "--json"), _OWN, _of_modules, OnnxFile)
    for name in ("convert", "load"):
        yield Attack(name, MODEL, (PYTHON, name, MODEL), _OWN, _model, OnnxFile)
    yield Attack("feeds", "i.npz", (PYTHON, "verify", MODEL, MODEL, "i.npz"), _OWN, _inputs, Archive)
    yield Attack("curve", MODEL, (*_FIX, "--curve"), _OWN, _model, OnnxFile)
    plan = ("--plan", "p.json")
    yield Attack("plan-fix", "p.json", (*_FIX, *plan), _FIXED, _plan, Document)
    yield Attack("plan-gate", "p.json", ("gate", MODEL, *plan, "--json"), _FIXED, _plan, Document)
    yield Attack("plan-audit", "p.json", ("audit", "layers.json", *plan, "--json"), _FIXED, _plan, Document)
    yield Attack("plan-compare", "p.json", ("compare", "p.json", "p.json", "--json"), _FIXED, _plan, Document)
    yield Attack("result-compare", "a.json", ("compare", "a.json", "b.json", "--json"), _FIXED, _result, Document)
    for verb in ("scan", "trace"):
        words = ("compare", "a.json", "b.json")
        yield Attack(f"{verb}-compare", "a.json", words, _FIXED, _document(verb), Document)
    yield Attack("baseline", "s.json", ("gate", MODEL, *plan, "--baseline", "s.json"), _FIXED, _baseline, Document)
    npz = ("--inputs", "i.npz")
    yield Attack("inputs", "i.npz", ("verify", MODEL, MODEL, *npz, "--json"), _OWN, _inputs, Archive)
    yield Attack("inputs-fix", "i.npz", (*_FIX, *npz), _OWN, _inputs, Archive)
    yield Attack("inputs-json", "i.json", ("trace", MODEL, "--inputs", "i.json"), _OWN, _polygraphy, Document)
    yield Attack("outputs", "b.npz", ("verify", "a.npz", "b.npz", "--json"), ("outputs",), _outputs, Archive)
    audit = ("audit", "l.json", *plan, "--json")
    for name, machine_words in _MACHINE_WORDS.items():
        yield Attack(f"machine-{name}", "a.json", machine_words, _FIXED, _machine, Signed)
    yield Attack("engine-fix", "l.json", (*_FIX, *plan, *_BUILT), _FIXED, _engine, Document)
    yield Attack("engine-gate", "l.json", ("gate", MODEL, *plan, *_BUILT[:2]), _FIXED, _engine, Document)
    yield Attack("layers", "l.json", audit, _LISTS, _listed, Document)
    yield Attack("dump", "l.json", audit, ("dump_10.txt",), _listed, Lines)
    yield Attack("log", "b.log", ("log", "b.log", "--json"), _LOGS, _log, Lines)
    yield Attack("log-audit", "b.log", ("audit", "b.log"), _LOGS, _log, Lines)
    yield Attack("checkpoint", "c.safetensors", ("scan", "c.safetensors"), _FIXED, _checkpoint, Safetensors)
    index = "c.safetensors.index.json"
    yield Attack("fleet", "fleet.toml", ("fleet", "check", "fleet.toml"), ("norm",), _fleet, Lines)
    yield Attack("store", "out/fleet.sqlite", ("fleet", "show", "fleet.toml", "--json"), ("store",), _store, Bytes)
    yield Attack("index", index, ("scan", index, "--json"), _FIXED, _index, Document)
    yield from left_behind()


_MODEL_VERBS: Mapping[str, Sequence[str]] = {
    "scan": ("--json",),
    "fix": _FIX[2:],
    "trace": ("--json",),
    "verify": (MODEL, "--json"),
    "bisect": ("--backend", "ort-cpu", "--builds", "3", "--out", "out", "--json"),
    "doctor": ("--json",),
    "advise": ("--target", "trt-10.9@t4", "--json"),
}
_MACHINE_WORDS: Mapping[str, tuple[str, ...]] = {
    "profiles": ("profiles", "a.json", "--json"),
    "profile": (*_FIX, "--profile", "a.json"),
    "cost": (*_FIX, "--cost", "a.json"),
    "verify": ("verify", MODEL, MODEL, "--profile", "a.json"),
    "compare": ("compare", "a.json", "b.json", "--json"),
}
ATTACKS = {attack.name: attack for attack in _all()}
