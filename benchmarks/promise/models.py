"""Small networks of many domains that FP16 harms in different ways, each with the inputs that it was made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tests.models.build import model, node, value, weight
from tests.models.zoo import SHAPES, detr_head, encoder, norm_log_head, transformer
from tests.models.zoo.zoo_model import ZooModel

__all__ = ["SUBJECTS", "Subject"]

Array = NDArray[np.float32]
Arrays = dict[str, NDArray[Any]]
Draw = Callable[[np.random.Generator], Arrays]


@dataclass(frozen=True)
class Subject:
    """A model, the tolerance asked for, and where inputs of its kind come from."""

    model: onnx.ModelProto
    tolerance: tuple[str, ...]
    draw: Draw


def _trained(seed: int, *shape: int, size: float = 1.0) -> Array:
    """Weights as after training: a few directions are strong."""
    rng = np.random.default_rng(seed)
    flat = rng.standard_normal((int(np.prod(shape[:-1])), shape[-1])) * rng.lognormal(0.0, 0.5, shape[-1])
    return np.asarray(size * flat / np.sqrt(max(flat.shape[0], 1)), np.float32).reshape(shape)


def _loud(rng: np.random.Generator, *shape: int, spread: float = 0.25) -> Array:
    """Correlated values, louder in one input than in the next."""
    shared = rng.standard_normal((*shape[:-1], 4)) @ rng.standard_normal((4, shape[-1])) / 2.0
    mixed = 0.7 * shared + 0.7 * rng.standard_normal(shape)
    return np.asarray(np.exp(rng.normal(0.0, spread)) * mixed, np.float32)


def _image(rng: np.random.Generator, channels: int, side: int) -> Array:
    """Smooth blobs under changing light."""
    y, x = np.mgrid[0:side, 0:side] / side
    picture = np.zeros((1, channels, side, side))
    for _ in range(6):
        cx, cy, width = rng.uniform(0, 1, 2)[0], rng.uniform(0, 1), rng.uniform(0.05, 0.3)
        blob = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / width**2)
        picture += rng.uniform(0, 1, (1, channels, 1, 1)) * blob
    picture += 0.05 * rng.random(picture.shape)
    return np.asarray(rng.uniform(0.4, 1.0) * picture, np.float32)


def box_distribution() -> Subject:
    """A detector's head: distances as expected values of distributions, times strides, beside scores."""
    anchors = np.stack(np.meshgrid(np.arange(8) * 8.0, np.arange(8) * 8.0), -1).reshape(1, 64, 2)
    made = model(
        [node("Conv", "image w1", "c1", strides=[4, 4], pads=[1, 1, 1, 1]), node("Sigmoid", "c1", "g1"),
         node("Mul", "c1 g1", "s1"), node("Conv", "s1 w2", "c2", strides=[2, 2], pads=[1, 1, 1, 1]),
         node("Relu", "c2", "r2"), node("Conv", "r2 w3", "c3"), node("Reshape", "c3 flat", "f3"),
         node("Transpose", "f3", "rows", perm=[0, 2, 1]), node("Split", "rows parts", "d s", axis=2),
         node("Reshape", "d four", "d4"), node("Softmax", "d4", "p", axis=-1), node("MatMul", "p bins", "e"),
         node("Reshape", "e pairs", "e4"), node("Split", "e4 halves", "lt rb", axis=2),
         node("Sub", "anchors lt", "low"), node("Add", "anchors rb", "high"),
         node("Concat", "low high", "corners", axis=2), node("Mul", "corners stride", "boxes"),
         node("Sigmoid", "s", "scores")],
        [value("image", shape=(1, 3, 64, 64))],
        [value("boxes", shape=(1, 64, 4)), value("scores", shape=(1, 64, 8))],
        [weight("w1", _trained(1, 16, 3, 3, 3, size=2.0)), weight("w2", _trained(2, 32, 16, 3, 3, size=2.0)),
         weight("w3", _trained(3, 72, 32, 1, 1, size=3.0)), weight("flat", np.array([1, 72, 64])),
         weight("parts", np.array([64, 8])), weight("four", np.array([1, 64, 4, 16])),
         weight("bins", np.arange(16, dtype=np.float32)[:, None]), weight("pairs", np.array([1, 64, 4])),
         weight("halves", np.array([2, 2])), weight("anchors", anchors.astype(np.float32)),
         weight("stride", np.float32(8.0))],
    )  # fmt: skip
    return Subject(made, ("boxes:rel_l2<=0.00025", "scores:rel_l2<=0.0012"), lambda rng: {"image": _image(rng, 3, 64)})


def mel_front_end() -> Subject:
    """Waveform in 16-bit steps -> power spectrum -> log of mel bands -> a layer."""
    rng, size, frames = np.random.default_rng(4), 128, 24
    angle = 2 * np.pi * np.outer(np.arange(size // 2), np.arange(size)) / size
    window = np.hanning(size)
    basis = np.concatenate([np.cos(angle) * window, np.sin(angle) * window])[:, None]
    mel = np.maximum(0, 1 - np.abs(np.arange(size // 2)[:, None] - np.linspace(2, 60, 20)[None]) / 4)
    made = model(
        [node("Conv", "wave basis", "s", strides=[64]), node("Mul", "s s", "q"),
         node("Split", "q halves", "re im", axis=1), node("Add", "re im", "power"),
         node("Transpose", "power", "frames", perm=[0, 2, 1]),
         node("MatMul", "frames mel", "bands"), node("Max", "bands floor", "kept"), node("Log", "kept", "logs"),
         node("ReduceMean", "logs", "mean", axes=[1], keepdims=1), node("Sub", "logs mean", "centred"),
         node("MatMul", "centred w", "h"), node("Relu", "h", "r"), node("MatMul", "r v", "y")],
        [value("wave", shape=(1, 1, 64 * (frames + 1)))],
        [value("y", shape=(1, frames, 8))],
        [weight("basis", basis.astype(np.float32)), weight("halves", np.array([64, 64])),
         weight("mel", mel.astype(np.float32)), weight("floor", np.float32(1e-5)),
         weight("w", _trained(5, 20, 32)), weight("v", _trained(6, 32, 8))],
    )  # fmt: skip

    def draw(rng: np.random.Generator) -> Arrays:
        time = np.arange(64 * (frames + 1)) / 16000.0
        tones = sum(rng.uniform(0, 1) * np.sin(2 * np.pi * rng.uniform(100, 6000) * time) for _ in range(5))
        envelope = np.abs(np.sin(2 * np.pi * rng.uniform(3, 12) * time + rng.uniform(0, 6)))
        noise = 0.01 * rng.standard_normal(time.size)
        return {"wave": (np.exp(rng.normal(-1.0, 0.6)) * (tones * envelope + noise))[None, None].astype(np.float32)}

    del rng
    return Subject(made, ("*:rel_l2<=0.005",), draw)


def norms_of_outliers() -> Subject:
    """Blocks of norms by hand; one channel of the stream is large, and its square comes near what FP16 holds."""
    nodes, weights, stream = [], [], "x"
    for block in range(4):
        b = str(block)
        nodes += [
            node("ReduceMean", stream, f"m{b}", axes=[-1], keepdims=1), node("Sub", f"{stream} m{b}", f"c{b}"),
            node("Mul", f"c{b} c{b}", f"q{b}"), node("ReduceMean", f"q{b}", f"v{b}", axes=[-1], keepdims=1),
            node("Add", f"v{b} eps", f"e{b}"), node("Sqrt", f"e{b}", f"d{b}"), node("Div", f"c{b} d{b}", f"n{b}"),
            node("MatMul", f"n{b} w{b}", f"h{b}"), node("Relu", f"h{b}", f"r{b}"),
            node("MatMul", f"r{b} u{b}", f"o{b}"), node("Add", f"{stream} o{b}", f"s{b}"),
        ]  # fmt: skip
        weights += [weight(f"w{b}", _trained(10 + block, 32, 64)), weight(f"u{b}", _trained(20 + block, 64, 32))]
        stream = f"s{b}"
    nodes += [node("MatMul", f"{stream} head", "y")]
    head = _trained(30, 32, 8)
    head[7] *= 0.01
    made = model(nodes, [value("x", shape=(1, 16, 32))], [value("y", shape=(1, 16, 8))],
                 [*weights, weight("eps", np.float32(1e-5)), weight("head", head)])  # fmt: skip

    def draw(rng: np.random.Generator) -> Arrays:
        x = _loud(rng, 1, 16, 32, spread=0.1)
        x[..., 7] = rng.normal(190.0, 12.0) + rng.normal(0.0, 4.0, 16)
        return {"x": x}

    return Subject(made, ("*:rel_l2<=0.0008",), draw)


def loud_attention() -> Subject:
    """Two layers of attention whose scores reach hundreds, so that the softmax chooses between near equals."""
    nodes, weights, stream = [], [], "x"
    for layer, size in enumerate((5.0, 3.0)):
        i = str(layer)
        nodes += [node("MatMul", f"{stream} w{n}{i}", f"{n}{i}") for n in "qkv"]
        nodes += [node("Transpose", f"k{i}", f"t{i}", perm=[0, 2, 1]), node("MatMul", f"q{i} t{i}", f"raw{i}"),
                  node("Mul", f"raw{i} scale", f"scores{i}"), node("Softmax", f"scores{i}", f"p{i}", axis=-1),
                  node("MatMul", f"p{i} v{i}", f"a{i}"), node("Add", f"{stream} a{i}", f"s{i}")]  # fmt: skip
        weights += [weight(f"w{n}{i}", _trained(40 + 3 * layer + k, 24, 24, size=size)) for k, n in enumerate("qkv")]
        stream = f"s{i}"
    nodes.append(node("MatMul", f"{stream} head", "y"))
    made = model(nodes, [value("x", shape=(1, 32, 24))], [value("y", shape=(1, 32, 6))],
                 [*weights, weight("scale", np.float32(24**-0.5)), weight("head", _trained(50, 24, 6))])  # fmt: skip
    return Subject(made, ("*:rel_l2<=0.01",), lambda rng: {"x": _loud(rng, 1, 32, 24)})


def softmax_by_hand() -> Subject:
    """Exponentials without the largest taken off: logits near 11, where FP16 ends."""
    made = model(
        [node("MatMul", "x w", "h"), node("Tanh", "h", "t"), node("MatMul", "t v", "l"), node("Exp", "l", "e"),
         node("ReduceSum", "e axis", "z", keepdims=1), node("Div", "e z", "p"), node("MatMul", "p u", "o"),
         node("MatMul", "o r", "y")],
        [value("x", shape=(1, 40, 16))],
        [value("p", shape=(1, 40, 12)), value("y", shape=(1, 40, 4))],
        [weight("w", _trained(60, 16, 32)), weight("v", _trained(61, 32, 12, size=7.0)),
         weight("axis", np.array([-1])), weight("u", _trained(62, 12, 16)), weight("r", _trained(63, 16, 4))],
    )  # fmt: skip
    return Subject(made, ("*:rel_l2<=0.003",), lambda rng: {"x": _loud(rng, 1, 40, 16)})


def reference_points() -> Subject:
    """A decoder that refines boxes: inverse sigmoid, a step, sigmoid, three times."""
    nodes, weights, points = [node("MatMul", "q start", "s"), node("Sigmoid", "s", "p")], [], "p"
    for layer in range(3):
        i = str(layer)
        nodes += [node("Clip", f"{points} low high", f"c{i}"), node("Sub", f"one c{i}", f"o{i}"),
                  node("Div", f"c{i} o{i}", f"d{i}"), node("Log", f"d{i}", f"l{i}"), node("MatMul", f"q w{i}", f"h{i}"),
                  node("Relu", f"h{i}", f"r{i}"), node("MatMul", f"r{i} v{i}", f"t{i}"),
                  node("Add", f"l{i} t{i}", f"a{i}"), node("Sigmoid", f"a{i}", f"p{i}")]  # fmt: skip
        weights += [weight(f"w{i}", _trained(70 + layer, 16, 32)), weight(f"v{i}", _trained(80 + layer, 32, 4))]
        points = f"p{i}"
    nodes += [node("Sub", f"one {points}", "far"), node("Div", f"{points} far", "odds"), node("Log", "odds", "y")]
    made = model(nodes, [value("q", shape=(1, 60, 16))], [value("y", shape=(1, 60, 4))],
                 [*weights, weight("start", _trained(90, 16, 4, size=3.0)), weight("low", np.float32(1e-5)),
                  weight("high", np.float32(1 - 1e-5)), weight("one", np.float32(1))])  # fmt: skip
    return Subject(made, ("*:rel_l2<=0.01",), lambda rng: {"q": _loud(rng, 1, 60, 16)})


def keypoints() -> Subject:
    """The best places of a map of scores, with a descriptor each."""
    made = model(
        [node("Conv", "image w", "h", pads=[1, 1, 1, 1]), node("Relu", "h", "r"), node("Conv", "r v", "map"),
         node("Sigmoid", "map", "scores"), node("Reshape", "scores flat", "list"),
         node("TopK", "list k", "best at", axis=0),
         node("Reshape", "r deep", "all"), node("Gather", "all at", "descriptors", axis=1),
         node("ReduceL2", "descriptors", "length", axes=[0], keepdims=1), node("Add", "length eps", "some"),
         node("Div", "descriptors some", "unit"), node("Transpose", "unit", "features", perm=[1, 0])],
        [value("image", shape=(1, 1, 32, 32))],
        [value("best", shape=(24,)), value("features", shape=(24, 12))],
        [weight("w", _trained(100, 12, 1, 3, 3, size=4.0)), weight("v", _trained(101, 1, 12, 1, 1, size=2.0)),
         weight("flat", np.array([-1])), weight("deep", np.array([12, -1])), weight("k", np.array([24])),
         weight("eps", np.float32(1e-6))],
    )  # fmt: skip
    return Subject(made, ("*:rel_l2<=0.005", "*:found>=0.9"), lambda rng: {"image": _image(rng, 1, 32)})


def classes_of_pixels() -> Subject:
    """A segmenter that gives class ids, from differences of features of very different sizes."""
    made = model(
        [node("Conv", "image w", "h", pads=[1, 1, 1, 1]), node("Relu", "h", "r"),
         node("AveragePool", "r", "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Sub", "r a", "edge"),
         node("Concat", "r edge", "f", axis=1), node("Conv", "f v", "logits"),
         node("ArgMax", "logits", "classes", axis=1, keepdims=0)],
        [value("image", shape=(1, 3, 32, 32))],
        [value("classes", onnx.TensorProto.INT64, (1, 32, 32))],
        [weight("w", _trained(110, 12, 3, 3, 3, size=6.0)), weight("v", _trained(111, 5, 24, 1, 1, size=2.0))],
    )  # fmt: skip
    return Subject(made, ("*:exact>=0.9995",), lambda rng: {"image": _image(rng, 3, 32)})


def gated_state() -> Subject:
    """Twelve steps of a gated unit, written out, whose state adds up."""
    nodes, state = [], "h"
    for step in range(12):
        i = str(step)
        nodes += [node("Gather", f"x at{i}", f"x{i}", axis=1), node("Concat", f"x{i} {state}", f"j{i}", axis=1),
                  node("MatMul", f"j{i} wz", f"zl{i}"), node("Sigmoid", f"zl{i}", f"z{i}"),
                  node("MatMul", f"j{i} wn", f"nl{i}"), node("Mul", f"z{i} nl{i}", f"g{i}"),
                  node("Mul", f"{state} decay", f"d{i}"), node("Add", f"d{i} g{i}", f"h{i}")]  # fmt: skip
        state = f"h{i}"
    nodes += [node("MatMul", f"{state} head", "y")]
    made = model(
        nodes, [value("x", shape=(1, 12, 16)), value("h", shape=(1, 24))],
        [value("y", shape=(1, 6)), value(state, shape=(1, 24))],
        [*(weight(f"at{step}", np.int64(step)) for step in range(12)), weight("wz", _trained(120, 40, 24)),
         weight("wn", _trained(121, 40, 24, size=0.6)), weight("decay", np.float32(0.97)),
         weight("head", _trained(122, 24, 6))],
    )  # fmt: skip
    return Subject(
        made, ("*:rel_l2<=0.0012",), lambda rng: {"x": _loud(rng, 1, 12, 16), "h": _loud(rng, 1, 24, spread=0.5)}
    )


def squared_distances() -> Subject:
    """Distances of points from centres as a^2 - 2ab + b^2, far from zero, and a kernel of them."""
    rng = np.random.default_rng(130)
    centres = (rng.standard_normal((20, 6)) + 12.0).astype(np.float32)
    made = model(
        [node("Mul", "x x", "xx"), node("ReduceSum", "xx axis", "a", keepdims=1), node("MatMul", "x c", "ab"),
         node("Mul", "ab two", "ab2"), node("Sub", "a ab2", "ad"), node("Add", "ad b", "d"),
         node("Mul", "d minus", "nd"),
         node("Exp", "nd", "k"), node("MatMul", "k w", "y")],
        [value("x", shape=(1, 50, 6))],
        [value("y", shape=(1, 50, 5))],
        [weight("axis", np.array([-1])), weight("c", np.ascontiguousarray(centres.T)), weight("two", np.float32(2)),
         weight("b", (centres**2).sum(1).astype(np.float32)), weight("minus", np.float32(-0.1)),
         weight("w", _trained(131, 20, 5))],
    )  # fmt: skip
    return Subject(made, ("*:rel_l2<=0.01",), lambda rng: {"x": _loud(rng, 1, 50, 6, spread=0.15) + np.float32(12)})


def deep_convolutions() -> Subject:
    """Ten residual convolutions; only rounding, no accident, against a tight tolerance."""
    nodes, weights, stream = [node("Conv", "image first", "s", pads=[1, 1, 1, 1])], [], "s"
    for layer in range(10):
        i = str(layer)
        nodes += [node("Conv", f"{stream} w{i}", f"c{i}", pads=[1, 1, 1, 1]), node("Relu", f"c{i}", f"r{i}"),
                  node("Add", f"{stream} r{i}", f"s{i}")]  # fmt: skip
        weights.append(weight(f"w{i}", _trained(140 + layer, 10, 10, 3, 3, size=1.2)))
        stream = f"s{i}"
    nodes += [
        node("GlobalAveragePool", stream, "pool"),
        node("Flatten", "pool", "flat"),
        node("MatMul", "flat head", "y"),
    ]
    made = model(nodes, [value("image", shape=(1, 3, 20, 20))], [value("y", shape=(1, 4))],
                 [*weights, weight("first", _trained(138, 10, 3, 3, 3, size=3.0)),
                  weight("head", _trained(139, 10, 4))])  # fmt: skip
    return Subject(made, ("*:rel_l2<=0.0004",), lambda rng: {"image": _image(rng, 3, 20)})


def contrast_normalised() -> Subject:
    """A picture divided by its local contrast, which is small in flat places; then moments of channels by squares."""
    made = model(
        [node("AveragePool", "image", "mean", kernel_shape=[5, 5], pads=[2, 2, 2, 2]), node("Sub", "image mean", "c"),
         node("Mul", "c c", "q"), node("AveragePool", "q", "v", kernel_shape=[5, 5], pads=[2, 2, 2, 2]),
         node("Add", "v eps", "ve"), node("Sqrt", "ve", "d"), node("Div", "c d", "n"),
         node("Conv", "n w", "h", pads=[1, 1, 1, 1]), node("Relu", "h", "r"), node("GlobalAveragePool", "r", "m1"),
         node("Mul", "r r", "rr"), node("GlobalAveragePool", "rr", "m2"), node("Mul", "m1 m1", "mm"),
         node("Sub", "m2 mm", "var"), node("Concat", "m1 var", "f", axis=1), node("Flatten", "f", "flat"),
         node("MatMul", "flat head", "y")],
        [value("image", shape=(1, 1, 32, 32))],
        [value("y", shape=(1, 4))],
        [weight("eps", np.float32(1e-6)), weight("w", _trained(150, 8, 1, 3, 3, size=2.0)),
         weight("head", _trained(151, 16, 4))],
    )  # fmt: skip
    return Subject(made, ("*:rel_l2<=0.0015",), lambda rng: {"image": _image(rng, 1, 32)})


def unit_embedding() -> Subject:
    """Features pooled with attention weights, then scaled to length one; some inputs are very quiet."""
    made = model(
        [node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("MatMul", "r a", "s"),
         node("Softmax", "s", "p", axis=1),
         node("Mul", "r p", "rp"), node("ReduceSum", "rp axis", "pool", keepdims=0), node("MatMul", "pool v", "e"),
         node("Mul", "e e", "ee"), node("ReduceSum", "ee last", "sum", keepdims=1), node("Add", "sum eps", "se"),
         node("Sqrt", "se", "length"), node("Div", "e length", "y")],
        [value("x", shape=(1, 30, 16))],
        [value("y", shape=(1, 24))],
        [weight("w", _trained(160, 16, 32)), weight("a", _trained(161, 32, 1, size=3.0)), weight("axis", np.array([1])),
         weight("v", _trained(162, 32, 24)), weight("last", np.array([-1])), weight("eps", np.float32(1e-12))],
    )  # fmt: skip
    return Subject(made, ("*:rel_l2<=0.005",), lambda rng: {"x": np.float32(2e-3) * _loud(rng, 1, 30, 16, spread=0.8)})


def _zoo(make: Callable[[], ZooModel], loudness: float = 0.2) -> Callable[[], Subject]:
    def made() -> Subject:
        zoo = make()
        return Subject(zoo.model, (f"*:rel_l2<={zoo.tolerance}",), _mixed(zoo.inputs, loudness))

    return made


def _mixed(base: list[Arrays], loudness: float) -> Draw:
    """Parts of two of these inputs, louder or quieter; whole numbers as they were in one of them."""

    def draw(rng: np.random.Generator) -> Arrays:
        one, other = (base[index] for index in rng.integers(len(base), size=2))
        factor = np.float32(np.exp(rng.normal(0.0, loudness)))
        made = {}
        for name, array in one.items():
            if array.dtype.kind != "f" or array.ndim == 0:
                made[name] = array
                continue
            from_other = rng.random((array.shape[0], *array.shape[1:2], *(1,) * (array.ndim - 2))) < 0.5
            mixed = np.where(from_other, other[name], array) if other[name].shape == array.shape else array
            made[name] = np.asarray(mixed * factor, array.dtype)
        return made

    return draw


_GENERATED = (
    box_distribution,
    mel_front_end,
    norms_of_outliers,
    loud_attention,
    softmax_by_hand,
    reference_points,
    keypoints,
    classes_of_pixels,
    gated_state,
    squared_distances,
    deep_convolutions,
    contrast_normalised,
    unit_embedding,
)
_OF_ZOO = ("log_of_energy", "large_phase", "gram_matrix", "l2_norm_of_small_vectors",
           "log_of_probability", "variance_by_moments", "large_coordinates")  # fmt: skip

SUBJECTS: dict[str, Callable[[], Subject]] = {
    **{build.__name__: build for build in _GENERATED},
    "encoder": _zoo(encoder),
    "detr_head": _zoo(detr_head),
    "norm_log_head": _zoo(norm_log_head),
    "transformer_379": _zoo(lambda: transformer(6)),
    "inverse_sigmoid": _zoo(SHAPES["inverse_sigmoid"], loudness=0.0),  # of probabilities
    **{name: _zoo(SHAPES[name]) for name in _OF_ZOO},
}
