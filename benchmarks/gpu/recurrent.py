"""Recurrent layers on the GPU and emulated: which sums, gates and states cuDNN stores in FP16.

`python -m benchmarks.gpu.recurrent collect FOLDER` runs every layer there and keeps its raw results; `... judge FOLDER
OUT.json` compares them with the emulation. The kernels' steps were read off the layers that are `probes`: one number
per gate, or gates fed directly. All others were not looked at for that.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.gpu.operators import EQUAL
from halfwise.core.formats import Format
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.profiles import ORT_CUDA_UNFUSED, STRICT, Profile
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["LAYERS", "Layer"]

Array = NDArray[Any]
_GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
_SATURATED = 60.0  # its sigmoid is 1 in FP16, that of its negative 0


@dataclass(frozen=True)
class Layer:
    """One layer. `scheme` says what its weights are: drawn, or made to show one thing."""

    name: str
    op: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    scheme: str = "drawn"
    direction: str = "forward"
    bias: bool = True
    state: bool = False
    scale: float = 1.0  # of the weights

    @property
    def probe(self) -> bool:
        return self.scheme.startswith(("sweep", "direct")) or self.name.startswith("suite")

    def tensors(self) -> dict[str, Array]:
        rng = np.random.Generator(np.random.PCG64(zlib.crc32(self.name.encode())))
        gates, hidden, sides = _GATES[self.op], self.hidden, 2 if self.direction == "bidirectional" else 1
        x = rng.standard_normal((self.steps, self.batch, self.inputs))
        w = rng.standard_normal((sides, gates * hidden, self.inputs)) / np.sqrt(self.inputs)
        r = rng.standard_normal((sides, gates * hidden, hidden)) / np.sqrt(hidden)
        b = rng.standard_normal((sides, 2 * gates * hidden)) * 0.3
        h = rng.standard_normal((sides, self.batch, hidden)) * 0.5
        c = rng.standard_normal((sides, self.batch, hidden))
        if self.scheme.startswith("sweep"):
            x, w, r, b, h, c = self._sweep(*(np.zeros_like(each) for each in (x, w, r, b, h, c)))
        elif self.scheme.startswith("direct"):
            w = np.tile(np.eye(gates * hidden), (sides, 1, 1))
            if "R0" in self.scheme:
                r[:] = 0
            elif "RI" in self.scheme:
                r = np.tile(np.concatenate([np.eye(hidden)] * gates), (sides, 1, 1))
            if "b0" in self.scheme:
                b[:] = 0
            elif "bW" in self.scheme:
                b[:, gates * hidden :] = 0
            elif "bR" in self.scheme:
                b[:, : gates * hidden] = 0
        elif self.scheme == "noR":
            r[:] = 0
        elif self.scheme == "noW":
            w[:] = 0
        elif self.scheme == "positive":
            x, w, r = np.abs(x), np.abs(w) / np.sqrt(self.inputs), np.abs(r) / np.sqrt(hidden)
        made = {"x": x, "w": w * self.scale, "r": r * self.scale, "b": b, "h": h, "c": c}
        return {name: each.astype(np.float16) for name, each in made.items()}

    def _sweep(self, x: Array, w: Array, r: Array, b: Array, h: Array, c: Array) -> tuple[Array, ...]:
        """Every finite number of FP16 through one gate, the others open or shut."""
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        every = np.where(np.isfinite(every), every, np.float16(0)).astype(np.float64)
        x, n, gate = np.resize(every, x.shape), self.hidden, self.scheme.split(":")[1]
        if gate == "c":  # through an LSTM's cell
            c, x = x[:1].copy(), np.zeros_like(x)
            b[0, : 3 * n] = np.repeat([-_SATURATED, _SATURATED, _SATURATED], n)
            return x, w, r, b, h, c
        place = {"y": 0, "z": 0, "zn": 0, "r": 1, "n": 2, "i": 0, "o": 1, "f": 2, "g": 3}[gate]
        w[0, place * n : (place + 1) * n] = np.eye(n)
        if gate in ("z", "zn", "f"):
            (c if gate == "f" else h)[:] = 1
        if gate == "zn":
            b[0, 2 * n : 3 * n] = 0.7
        elif gate in ("n", "r"):
            b[0, :n] = -_SATURATED
            if gate == "r":
                b[0, 5 * n : 6 * n] = 2.0**-6
        elif gate in ("i", "g", "o"):
            opened = {"i": 3, "g": 0, "o": 2}[gate]
            b[0, opened * n : (opened + 1) * n] = _SATURATED
            c[:] = 20 if gate == "o" else 0
        return x, w, r, b, h, c

    def model(self, kind: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """The layer as a model of one node, in FP32 or FP16, and what it reads."""
        dtype, made = helper.tensor_dtype_to_np_dtype(kind), self.tensors()
        inputs = ["x"] + (["h", "c"][: 2 if self.op == "LSTM" else 1] if self.state else [])
        names = ["x", "w", "r", "b" if self.bias else "", "", *inputs[1:]]
        while not names[-1]:
            names.pop()
        outputs = ["y", "yh", "yc"][: 3 if self.op == "LSTM" else 2]
        more: dict[str, Any] = {"linear_before_reset": 1} if self.op == "GRU" else {}
        node = helper.make_node(self.op, names, outputs, hidden_size=self.hidden, direction=self.direction, **more)
        infos = [helper.make_tensor_value_info(name, kind, made[name].shape) for name in inputs]
        weights = [numpy_helper.from_array(made[name].astype(dtype), name) for name in ("w", "r", "b") if name in names]
        results = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
        graph = helper.make_graph([node], "layer", infos, results, weights)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnx.shape_inference.infer_shapes(proto), {name: made[name].astype(dtype) for name in inputs}


def _layers() -> Iterator[Layer]:
    for op, swept in (("RNN", "y"), ("GRU", "z n r zn"), ("LSTM", "i o f g c")):
        for gate in swept.split():
            yield Layer(f"sweep {op} {gate} H16", op, 1, 4096, 16, 16, f"sweep:{gate}", state=True)
    for op, gates in _GATES.items():
        for scheme in ("R0 b0", "R0", "R0 bW", "R0 bR", "RI b0", "RI", "b0", ""):
            for batch, hidden in ((64, 16), (4, 64), (1, 16)):
                for steps in (1, 3):
                    label = f"direct {scheme}".strip()
                    name = f"{label} {op} S{steps} B{batch} H{hidden}"
                    yield Layer(name, op, steps, batch, gates * hidden, hidden, label, state=True)
        for steps, hidden in ((1, 32), (16, 32), (64, 64)):
            yield Layer(f"suite {op} S{steps} B4 I48 H{hidden}", op, steps, 4, 48, hidden)
    for op in _GATES:
        for steps in (1, 2, 5, 16, 64, 200):
            for batch in (1, 4, 17):
                for inputs, hidden in ((1, 1), (3, 5), (8, 4), (8, 16), (16, 8), (48, 32), (64, 64), (100, 50),
                                       (128, 128), (256, 256), (40, 384)):  # fmt: skip
                    if steps * batch * hidden <= 60000 and (steps < 200 or batch == 1):
                        name = f"full {op} S{steps} B{batch} I{inputs} H{hidden}"
                        yield Layer(name, op, steps, batch, inputs, hidden)
        for inputs, hidden in ((8, 4), (48, 32), (100, 50), (128, 128)):
            for steps, batch in ((1, 1), (9, 1), (9, 4)):
                sizes, size = (steps, batch, inputs, hidden), f"S{steps} B{batch} I{inputs} H{hidden}"
                for direction in ("reverse", "bidirectional"):
                    yield Layer(f"full {op} {direction} {size}", op, *sizes, direction=direction, state=True)
                yield Layer(f"full {op} nobias {size}", op, *sizes, bias=False)
                yield Layer(f"full {op} h0 {size}", op, *sizes, state=True)
                for scheme in ("noR", "noW", "positive"):
                    yield Layer(f"full {op} {scheme} {size}", op, *sizes, scheme, state=True)
                for label, scale in (("small", 0.1), ("large", 3.0)):
                    yield Layer(f"full {op} {label} {size}", op, *sizes, state=True, scale=scale)
    for steps, batch, inputs, hidden, direction in (
        (16, 1, 8, 16, "forward"), (33, 1, 8, 4, "bidirectional"), (33, 33, 8, 4, "bidirectional"),
        (1, 33, 8, 8, "forward"), (1, 1, 8, 16, "forward"),
    ):  # fmt: skip
        name = f"real GRU S{steps} B{batch} I{inputs} H{hidden} {direction}"
        yield Layer(name, "GRU", steps, batch, inputs, hidden, direction=direction, state=True)
    for batch in (1, 8):
        yield Layer(f"real LSTM S1 B{batch} I128 H128", "LSTM", 1, batch, 128, 128, state=True)


LAYERS: tuple[Layer, ...] = tuple(_layers())


def collect(folder: Path) -> None:
    from benchmarks.gpu.cuda import cuda_session, machine, prepare

    prepare()
    raw = {}
    for layer in LAYERS:
        proto, feed = layer.model(TensorProto.FLOAT16)
        for name, array in zip(("y", "yh", "yc"), cuda_session(proto, fused=False).run(None, feed), strict=False):
            if name != "yh":
                raw[f"{layer.name}|{name}"] = array
    np.savez_compressed(folder / "recurrent.npz", **raw)
    (folder / "recurrent.json").write_text(json.dumps({"machine": machine()}), encoding="utf-8")


def judge(folder: Path, out: Path) -> None:
    """Every layer's share of equal numbers, under `strict` and under the profile of the provider."""
    raw, about = np.load(folder / "recurrent.npz"), json.loads((folder / "recurrent.json").read_text(encoding="utf-8"))
    rows: list[str] = []
    shares: dict[tuple[bool, bool], list[float]] = {(a, b): [] for a in (True, False) for b in (True, False)}
    for layer in LAYERS:
        strict, profile = (_equal(layer, each, raw) for each in (STRICT, ORT_CUDA_UNFUSED))
        shares[layer.probe, layer.steps == 1].append(profile)
        about_layer = {"name": layer.name, "operator": layer.op, "steps": layer.steps, "probe": layer.probe}
        rows.append(json.dumps({**about_layer, "strict": strict, "profile": profile}))
    text = ",\n".join(rows)
    text = f'{{"schema": "halfwise.recurrent/1", "machine": {json.dumps(about["machine"])}, "layers": [\n{text}\n]}}\n'
    out.write_text(text, encoding="utf-8")
    for (probe, one), some in shares.items():
        kind = f"{'probes' if probe else 'others'} of {'one step' if one else 'several steps'}"
        print(f"{kind}: {sum(each >= EQUAL for each in some)} of {len(some)} equal, {np.mean(some):.4f} of places")


def _equal(layer: Layer, profile: Profile, raw: Any) -> float:
    proto, feed = layer.model(TensorProto.FLOAT)
    made = Emulator(profile).session(Assignment.all_narrow(Sites(load(proto)), io=Format.FP16)).run(feed)
    seen = {name: raw[f"{layer.name}|{name}"] for name in ("y", "yc") if name in made}
    return round(min(float(np.mean(made[name].astype(np.float16) == array)) for name, array in seen.items()), 5)


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        collect(Path(sys.argv[2]))
    else:
        judge(Path(sys.argv[2]), Path(sys.argv[3]))
