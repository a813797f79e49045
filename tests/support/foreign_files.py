"""Files that are not what they are given as: one of each kind, small, made as the tools that write them do."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np

from halfwise.core.files.kinds import FileKind

__all__ = ["FILES", "engine", "safetensors", "zipped"]


def zipped(*entries: str, content: bytes = b"x") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for entry in entries:
            archive.writestr(entry, content)
    return stream.getvalue()


def engine(*version: int) -> bytes:
    """The head as trtexec's --getPlanVersionOnly reads it: a tag, a layout, and the release at byte 24."""
    return b"ftrt" + bytes(20) + bytes(version) + bytes(range(200))


def safetensors(names: Sequence[str] = ("w",)) -> bytes:
    header = {name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(4 * len(names))


def _npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.ones(3, np.float32))
    return stream.getvalue()


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


_METADATA = json.dumps({"task": "detect"}).encode()
_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32\nsize 12345\n"
_ARRAY = {"array": "", "polygraphy_class": "ndarray"}

# Of each: the name that it is given, its bytes, and what it is.
FILES: Mapping[str, tuple[str, bytes, FileKind]] = {
    "checkpoint": ("yolo.pt", zipped("yolo/data.pkl", "yolo/data/0"), FileKind.CHECKPOINT),
    "old checkpoint": ("old.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M", FileKind.CHECKPOINT),
    "torchscript": ("net.pt", zipped("net/data.pkl", "net/code/a.py", "net/constants.pkl"), FileKind.TORCHSCRIPT),
    "exported": ("net.pt2", zipped("net/archive_format", "net/models/model.json"), FileKind.TORCH_EXPORT),
    "pickle": ("net.pkl", b"\x80\x04\x95\x10\0\0\0\0\0\0\0.", FileKind.PICKLE),
    "engine": ("net.engine", engine(10, 0, 1, 6), FileKind.ENGINE),
    "plan": ("net.plan", engine(8, 6, 1, 2), FileKind.ENGINE),
    "trt": ("net.trt", bytes(range(7, 250)) * 3, FileKind.ENGINE),
    "ultralytics engine": (
        "yolo.engine",
        struct.pack("<I", len(_METADATA)) + _METADATA + engine(10, 3, 0, 0),
        FileKind.ENGINE,
    ),
    "lfs pointer": ("net.onnx", _LFS, FileKind.LFS_POINTER),
    "tflite": ("net.tflite", b"\x1c\0\0\0TFL3" + bytes(40), FileKind.TFLITE),
    "saved model": ("saved_model.pb", b"\x08\x01" + _field(2, b"graph"), FileKind.SAVED_MODEL),
    "frozen graph": ("frozen.pb", _field(1, b"a node") * 3 + _field(4, b"\x08\x1b"), FileKind.FROZEN_GRAPH),
    "keras": ("net.h5", b"\x89HDF\r\n\x1a\n" + bytes(64), FileKind.HDF5),
    "keras 3": ("net.keras", zipped("config.json", "metadata.json", "model.weights.h5"), FileKind.KERAS),
    "zipped model": ("net.zip", zipped("model/net.onnx", "model/README"), FileKind.ZIPPED_MODEL),
    "archive": ("net.tar.gz", b"\x1f\x8b\x08\0" + bytes(30), FileKind.ARCHIVE),
    "raw": ("x.bin", bytes(range(1, 241)), FileKind.RAW),
    "png": ("cat.png", b"\x89PNG\r\n\x1a\n" + bytes(40), FileKind.IMAGE),
    "jpeg": ("cat.onnx", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(40), FileKind.IMAGE),
    "wav": ("a.wav", b"RIFF\x24\0\0\0WAVEfmt " + bytes(40), FileKind.AUDIO),
    "safetensors": ("net.safetensors", safetensors(), FileKind.SAFETENSORS),
    "report": ("net.report.html", b"<!doctype html>\n<html><body>A report</body></html>", FileKind.TEXT),
    "page": ("net.onnx", b"\n<!DOCTYPE html>\n<html><body>Not Found</body></html>", FileKind.HTML),
    "empty": ("net.onnx", b"", FileKind.EMPTY),
    "ort format": ("net.ort", b"\x20\0\0\0ORTM" + bytes(40), FileKind.ORT_FORMAT),
    "gguf": ("net.gguf", b"GGUF\x03\0\0\0" + bytes(40), FileKind.GGUF),
    "openvino": ("net.xml", b'<?xml version="1.0"?>\n<net name="n" version="11"><layers/></net>', FileKind.OPENVINO),
    "timing cache": ("timing.cache", bytes(range(9, 120)), FileKind.TIMING_CACHE),
    "calibration": ("calib.cache", b"TRT-8601-EntropyCalibration2\nx: 3c010a14\n", FileKind.CALIBRATION_CACHE),
    "npz": ("x.npz", zipped("x.npy", content=_npy()), FileKind.NPZ),
    "npy": ("x.npy", _npy(), FileKind.NPY),
    "log": ("build.log", b"[01/01/2025-10:00:00] [I] [TRT] hello\n", FileKind.BUILD_LOG),
    "script": ("build.sh", b"#!/bin/sh\ntrtexec --onnx=net.onnx --fp16\n", FileKind.BUILD_SCRIPT),
    "layers": ("layers.json", _json({"Layers": ["a", "b"], "Bindings": ["x"]}), FileKind.LAYERS),
    "trtexec outputs": (
        "out.json",
        _json([{"name": "y", "dimensions": "1x2", "values": [1, 2]}]),
        FileKind.TRTEXEC_OUTPUTS,
    ),
    "times": ("times.json", _json([{"startInMs": 1.0, "endInMs": 2.0}]), FileKind.PROFILE),
    "polygraphy outputs": ("o.json", _json({"lst": [], "polygraphy_class": "RunResults"}), FileKind.POLYGRAPHY_OUTPUTS),
    "polygraphy inputs": ("i.json", _json([{"x": _ARRAY}]), FileKind.POLYGRAPHY_INPUTS),
    "a plan of ours": ("a.json", _json({"schema": "halfwise.plan/1"}), FileKind.PLAN),
    "a result of ours": ("b.json", _json({"schema": "halfwise.scan/1"}), FileKind.RESULT),
    "shards": ("model.safetensors.index.json", _json({"weight_map": {}}), FileKind.SHARD_INDEX),
    "json": ("other.json", _json({"a": 1}), FileKind.JSON),
    "text": ("notes.txt", b"remember the milk\n", FileKind.TEXT),
    "binary": ("x.xyz", bytes(range(1, 200)), FileKind.BINARY),
}
