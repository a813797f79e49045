"""The first fleet.toml for a folder of models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from halfwise.core.errors import InputError
from halfwise.core.files.seen_from import seen_from
from halfwise.fleet.jobs import check_unicode

__all__ = ["template"]

_MOST = 500

_HEAD = """\
# What `halfwise fleet run` does. Paths start at the folder of this file.
# `halfwise fleet check` finds mistakes; a job that is done is not done again.

[fleet]
results = "fleet-results"      # folder of the store, the typed models and the page
# processes = 4                # jobs at once; default: one for each core
# memory = "16 GB"             # of all jobs together; default: 80% of what is free

[defaults]                     # every model may have these keys, too
do = ["scan", "fix"]           # of scan, fix, gate, stages, audit
targets = ["onnx"]             # such as "trt-10.9@t4", "rtx-1.7", "ort-cuda"; one job each
# tolerance = ["0.5%"]         # default: 1%; [["0.5%"], ["2%"]] makes one job of each
# metric = "boxes"             # or "package.module:function"
# seconds = 3600               # of one job; default: 3600
# memory = "8 GB"              # of one job
# runs = 40                    # model runs of one fix (--max-runs)
# device = "cuda"              # of fix; default: "cpu". One such job at a time, or one for each GPU of a Ray cluster
# plan = "plans/{name}.halfwise.json"      # for gate: the committed plan
# engine = "engines/{name}.layers.json"    # for audit and gate: the engine's layers or build log
"""
_MODEL = """
[[models]]
name = {name}
path = {path}
{inputs}
"""
_NO_INPUTS = '# inputs = "samples/{name}"   # .npz files; or function = "module:name". Without: random inputs'
_FOOT = """
# Later versions of one model, each with its own result:
# [[models]]
# name = "detector"
# path = "checkpoints/detector-*.onnx"
# versions = true
"""


def template(folder: Path, start: Path) -> str:
    """`start` is the folder of the file; samples beside a model are taken."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder")
    files = sorted(path for path in folder.rglob("*.onnx") if not path.name.endswith(".fp16.onnx"))
    if not files:
        raise InputError(f"{folder} holds no .onnx file: name the folder with your models")
    for path in files:
        check_unicode(path)
    if len(files) > _MOST:
        raise InputError(f"{folder} holds {len(files):,} .onnx files; write globs for more than {_MOST} by hand")
    names = _names(files, folder)
    tables = [_table(name, path, start) for name, path in zip(names, files, strict=True)]
    return _HEAD + "".join(tables) + _FOOT


def _names(files: Sequence[Path], folder: Path) -> list[str]:
    """The file's own name, or that of its folder where it says nothing; with its folders where two are alike."""
    stems = [path.parent.name if path.stem == "model" and path.parent != folder else path.stem for path in files]
    return [
        stem if stems.count(stem) == 1 else "-".join(path.relative_to(folder).with_suffix("").parts)
        for stem, path in zip(stems, files, strict=True)
    ]


def _table(name: str, path: Path, start: Path) -> str:
    places = (
        path.with_suffix(""),
        path.parent / f"{path.stem}-inputs",
        path.parent / "inputs",
        path.parent / "samples",
    )
    alone = (path.parent,) if len(list(path.parent.glob("*.onnx"))) == 1 else ()
    samples = next((place for place in (*places, *alone) if any(place.glob("*.np[yz]"))), None)
    inputs = _NO_INPUTS if samples is None else f"inputs = {_text(seen_from(start, samples).as_posix())}"
    return _MODEL.format(name=_text(name), path=_text(seen_from(start, path).as_posix()), inputs=inputs)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
