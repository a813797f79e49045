"""Measures models of the suite on the GPU: `python -m benchmarks.gpu.collect_models FOLDER PLANS MODELS NAME ...`."""

from __future__ import annotations

import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from benchmarks.gpu.cuda import cuda_session, half, prepare
from benchmarks.gpu.suite import subject
from benchmarks.gpu.versions import VERSIONS, typed_version
from halfwise.metrics import compare, is_float

__all__ = ["error_of"]

Array = NDArray[Any]
DUMPED = 1 << 18  # elements of a tensor that is kept whole
KEPT = 256  # elements of a constant that is kept in a stored graph


def error_of(wanted: Array, got: Array) -> dict[str, float]:
    """The relative error (or the share of equal places) of one output, and its new non-finite values."""
    seen = compare(wanted, got)
    if is_float(wanted.dtype):
        return {"rel_l2": float(seen.rel_l2), "nonfinite": float(seen.nonfinite)}
    return {"equal": float(np.mean(wanted == got))}


def main() -> None:
    folder, plans, models = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    prepare()
    for name in sys.argv[4:]:
        started = time.perf_counter()
        found = subject(name, models)
        if found is None:
            continue
        entry: dict[str, Any] = {"crc": _crc(found.model), "tolerance": found.tolerance, "versions": {}}
        reference = cuda_session(found.model, fused=False)
        wanted = [reference.run(None, half(reference, feed)) for feed in found.inputs]
        names = [value.name for value in reference.get_outputs()]
        entry["inputs"] = [zlib.crc32(b"".join(feed[key].tobytes() for key in sorted(feed))) for feed in found.inputs]
        for version in VERSIONS:
            proto = typed_version(found.model, version, plans / f"{name}.{version}.json")
            if proto is None:
                continue
            for fused in (False, True):
                optimized = folder / f"{name}.{version}.opt.onnx" if fused else None
                session = cuda_session(proto, fused=fused, optimized=optimized)
                errors = []
                for feed, outputs in zip(found.inputs, wanted, strict=True):
                    results = session.run(None, half(session, feed))
                    pairs = zip(names, outputs, results, strict=True)
                    errors.append({key: error_of(one, other) for key, one, other in pairs})
                entry["versions"].setdefault(version, {})["fused" if fused else "unfused"] = errors
                if optimized is not None:
                    _strip(optimized)
            if version == "fp16":
                _dump(proto, found.inputs[0], folder / f"{name}.dump.npz")
        entry["seconds"] = time.perf_counter() - started
        (folder / f"{name}.json").write_text(json.dumps(entry), encoding="utf-8")
        print(name, f"{entry['seconds']:.0f} s", flush=True)


def _crc(proto: onnx.ModelProto) -> int:
    crc = 0
    for tensor in proto.graph.initializer:
        crc = zlib.crc32(tensor.raw_data, crc)
    return crc


def _strip(path: Path) -> None:
    """A graph without its weights, small constants aside."""
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        if int(np.prod(tensor.dims)) > KEPT:
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
            tensor.ClearField("int32_data")
    path.write_bytes(proto.SerializeToString())


def _dump(proto: onnx.ModelProto, feed: dict[str, Array], path: Path) -> None:
    """Every FP16 tensor of moderate size that the unfused FP16 model makes for one input."""
    typed = onnx.shape_inference.infer_shapes(proto)
    kinds = {info.name: info.type.tensor_type for info in typed.graph.value_info}
    have = {value.name for value in proto.graph.output}
    marked = onnx.ModelProto()
    marked.CopyFrom(proto)
    for node in proto.graph.node:
        for output in node.output:
            kind = kinds.get(output)
            if kind is None or output in have or kind.elem_type not in (TensorProto.FLOAT16, TensorProto.FLOAT):
                continue
            marked.graph.output.append(helper.make_tensor_value_info(output, kind.elem_type, None))
    try:
        session = cuda_session(marked, fused=False)
        results = session.run(None, half(session, feed))
    except Exception as error:
        print("no dump:", str(error)[:200])
        return
    kept = {v.name: a for v, a in zip(session.get_outputs(), results, strict=True) if a.size <= DUMPED}
    np.savez_compressed(path, allow_pickle=False, **{str(i): a for i, a in enumerate(kept.values())},
                        names=np.array(list(kept), dtype=np.str_))  # fmt: skip


if __name__ == "__main__":
    main()
