"""Operators that some targets do not read, as products with constants: the numbers of ONNX's own cases and of NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from halfwise.emulation.ort import Session
from halfwise.model.contrib.decompose import WRITTEN
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from halfwise.repair.lower import lowered
from halfwise.repair.needed_constants import with_needed_constants
from tests.models.build import model, node, value, weight
from tests.support.backend_cases import Case, float_cases

Array = NDArray[Any]


def written(proto: onnx.ModelProto) -> Model:
    found = lowered(load(proto), lambda each: each.op_type in WRITTEN)
    assert not found.left
    made = with_needed_constants(found.model)
    assert not any(each.op_type in WRITTEN for each in made.nodes)
    return made


def answer(made: Model, feeds: Mapping[str, Array]) -> Array:
    (name,) = made.output_names
    return np.asarray(Session(typed_proto(Assignment(Sites(made), {}))).run(dict(feeds))[name])


def one(op: str, x: Array, given: Mapping[str, Array | int], rank: int, opset: int = 20, **options: Any) -> Model:
    """One node; its other inputs by their names, in order, where None stands for one that is left out."""
    stored = {name: np.asarray(each) for name, each in given.items()}
    dims = ["batch", *x.shape[1:]]
    proto = model(
        [node(op, " ".join(["x", *(name if each.size else "-" for name, each in stored.items())]), "y", **options)],
        [value("x", shape=dims)],
        [value("y", shape=[f"d{axis}" for axis in range(rank)])],
        [weight(name, each) for name, each in stored.items() if each.size],
        opset=opset,
    )
    return written(proto)


def near(found: Array, expected: Array, units: float = 4.0) -> None:
    """FP32 keeps 24 bits; a sum loses a few units of the largest."""
    assert found.shape == expected.shape
    finite = np.isfinite(expected)
    assert np.array_equal(found[~finite], expected[~finite])
    if not finite.any():
        return
    found, expected = found[finite], expected[finite]
    assert np.abs(found - expected).max() <= units * 2**-23 * np.abs(expected).max()


def drawn(*shape: int) -> Array:
    return np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)


def sizes(made: Model) -> list[int]:
    return [each.const_value.size for each in made.initializers() if each.const_value is not None]


def as_complex(x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.asarray(wide[..., 0] + 1j * wide[..., 1] if wide.shape[-1] == 2 else wide[..., 0])


def apart(z: Array) -> Array:
    return np.stack([z.real, z.imag], axis=-1)


def onnx_cases() -> list[Case]:
    def is_one(case: Case) -> bool:
        first = case.model.graph.node[0]
        antialias = any(each.name == "antialias" and each.i for each in first.attribute)
        return len(case.model.graph.node) == 1 and first.op_type in WRITTEN and (first.op_type != "Resize" or antialias)

    return [case for case in float_cases() if is_one(case)]


@pytest.mark.parametrize("case", onnx_cases(), ids=lambda case: case.name)
def test_onnx_own_cases(case: Case) -> None:
    proto = onnx.ModelProto()
    proto.CopyFrom(case.model)
    first, *others = proto.graph.input
    proto.graph.initializer.extend(numpy_helper.from_array(case.feeds[each.name], each.name) for each in others)
    del proto.graph.input[1:]
    proto.ir_version = 9
    (expected,) = case.expected.values()
    near(answer(written(proto), {first.name: case.feeds[first.name]}), expected, 32.0)


def test_there_are_such_cases() -> None:
    found = [case.model.graph.node[0].op_type for case in onnx_cases()]
    assert set(found) == set(WRITTEN)


AXES = [(1, 6), (2, 5), (-2, 5), (-3, 6)]


@pytest.mark.parametrize(("axis", "size"), AXES)
@pytest.mark.parametrize("longer", [None, -2, 3])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_a_transform_of_any_axis_and_length(axis: int, size: int, longer: int | None, parts: int, inverse: int) -> None:
    x, length = drawn(2, 6, 5, parts), None if longer is None else size + longer
    place = axis % 4
    given = {"length": np.array([]) if length is None else np.array(length), "axis": np.array(axis)}
    expected = apart((np.fft.ifft if inverse else np.fft.fft)(as_complex(x), n=length, axis=place))
    near(answer(one("DFT", x, given, 4, inverse=inverse), {"x": x}), expected)
    before = {"length": given["length"]}
    near(answer(one("DFT", x, before, 4, opset=17, inverse=inverse, axis=place), {"x": x}), expected)


@pytest.mark.parametrize("length", [1, 2, 7, 12, 4096, 6000])
def test_of_real_numbers_half_the_frequencies_and_back(length: int) -> None:
    """Long ones are split in two."""
    x = drawn(2, 3, length, 1)
    there = one("DFT", x, {}, 4, onesided=1)
    spectrum = np.fft.rfft(as_complex(x))
    near(answer(there, {"x": x}), apart(spectrum), 8.0)
    assert any(each.op_type == "Pad" or each.op_type == "Transpose" for each in there.nodes) == (length > 2000)
    assert max(sizes(there)) <= 1 << 22
    given = apart(spectrum).astype(np.float32)
    back = one("DFT", given, {"length": length}, 4, onesided=1, inverse=1)
    near(answer(back, {"x": given}), as_complex(x)[..., None], 8.0)


@pytest.mark.parametrize(
    ("size", "length", "inverse"), [(2048, None, 0), (3000, None, 1), (1000, 4096, 0), (9000, 8192, 1)]
)
def test_a_long_complex_transform_is_split(size: int, length: int | None, inverse: int) -> None:
    x = drawn(2, size, 3, 2)
    given = {"length": np.array([]) if length is None else np.array(length), "axis": np.array(1)}
    expected = (np.fft.ifft if inverse else np.fft.fft)(as_complex(x), n=length, axis=1)
    near(answer(one("DFT", x, given, 4, inverse=inverse), {"x": x}), apart(expected), 8.0)


def framed(x: Array, window: Array, step: int, bins: int) -> Array:
    """Each frame by itself."""
    starts = range(0, x.shape[1] - window.size + 1, step)
    return np.stack([apart(np.fft.fft(as_complex(x)[:, at : at + window.size] * window)[:, :bins]) for at in starts], 1)


@pytest.mark.parametrize("length", [16, 15])
@pytest.mark.parametrize("stated", ["window", "length", "both"])
def test_a_transform_in_frames(length: int, stated: str) -> None:
    x, window = drawn(2, 70, 1), np.hanning(length).astype(np.float32)
    given = {"step": np.array(5), "window": window if stated != "length" else np.array([])}
    if stated != "window":
        given["length"] = np.array(length)
    expected = framed(x, window if stated != "length" else np.ones(length), 5, length // 2 + 1)
    near(answer(one("STFT", x, given, 4), {"x": x}), expected)


def test_complex_frames() -> None:
    x, window = drawn(2, 70, 2), np.hamming(16).astype(np.float32)
    made = one("STFT", x, {"step": np.array(4), "window": window}, 4, onesided=0)
    near(answer(made, {"x": x}), framed(x, window, 4, 16))


LAID = [
    ((8, 9), (3, 2), (1, 1), (0, 0, 0, 0), (1, 1)),
    ((11, 10), (3, 3), (2, 3), (1, 0, 1, 1), (1, 1)),
    ((12, 13), (2, 3), (2, 2), (1, 1, 0, 2), (3, 2)),
    ((1, 70), (1, 16), (1, 8), (0, 0, 0, 0), (1, 1)),
    ((5, 6, 7), (2, 2, 3), (1, 2, 2), (0, 1, 1, 0, 1, 1), (1, 1, 1)),
]


@pytest.mark.parametrize(("image", "block", "strides", "pads", "dilations"), LAID)
def test_columns_laid_into_an_image(image: Any, block: Any, strides: Any, pads: Any, dilations: Any) -> None:
    rank, channels = len(image), 3
    padded = np.array(image) + np.array(pads[:rank]) + np.array(pads[rank:])
    counts = (padded - (np.array(block) - 1) * dilations - 1) // strides + 1
    x = drawn(2, channels * int(np.prod(block)), int(np.prod(counts)))
    whole = np.zeros((2, channels, *padded))
    apart = x.reshape(2, channels, *block, *counts)
    for place in np.ndindex(*block):
        for at in np.ndindex(*counts):
            where = tuple(np.array(place) * dilations + np.array(at) * strides)
            whole[(slice(None), slice(None), *where)] += apart[(slice(None), slice(None), *place, *at)]
    inner = tuple(slice(pads[axis], pads[axis] + image[axis]) for axis in range(rank))
    options = {"strides": strides, "pads": pads, "dilations": dilations}
    made = one("Col2Im", x, {"image": np.array(image), "block": np.array(block)}, 2 + rank, **options)
    near(answer(made, {"x": x}), whole[(slice(None), slice(None), *inner)])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("place", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("sizes", [(5, 9), (16, 3), (20, 12)])
def test_an_antialiased_resize(mode: str, place: str, sizes: tuple[int, int]) -> None:
    x = drawn(2, 3, 16, 12)
    options = {"mode": mode, "antialias": 1, "coordinate_transformation_mode": place, "exclude_outside": 1}
    nothing = np.array([])
    given = {"roi": nothing, "scales": nothing, "sizes": np.array(sizes)}
    made = one("Resize", x, given, 4, axes=[2, 3], **options)
    assert {each.op_type for each in made.nodes} == {"MatMul"}
    proto = model(
        [node("Resize", "x - - sizes", "y", axes=[2, 3], **options)],
        [value("x", shape=x.shape)],
        [value("y", shape=[1, 1, 1, 1])],
        [weight("sizes", np.array(sizes))],
        opset=20,
    )
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    near(answer(made, {"x": x}), Session(proto).run({"x": x})["y"], 8.0)


@pytest.mark.parametrize("size", [3, 5, 6, 7, 11, 13, 24, 40])
def test_a_nearest_resize_as_keras_writes_it(size: int) -> None:
    """TensorFlow's: output i reads the place that holds the middle of i, floor((i + 1/2) length / size)."""
    x = drawn(2, 3, 12, 8)
    options = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    proto = model(
        [node("Resize", "x - scales", "y", mode="nearest", **options)],
        [value("x", shape=("batch", 3, "height", "width"))],
        [value("y", shape=("batch", 3, "tall", "wide"))],
        [weight("scales", np.array([1, 1, size / 12, 2], np.float32))],
        opset=13,
    )
    made = lowered(load(proto), lambda each: each.op_type == "Resize").model
    (found,) = (each.attributes["coordinate_transformation_mode"].value for each in made.nodes)
    rows = [(2 * place + 1) * 12 // (2 * size) for place in range(size)]
    expected = x[:, :, rows][..., np.arange(16) // 2]
    assert found == "half_pixel" and np.array_equal(answer(made, {"x": x}), expected)


def test_a_resize_to_sizes_that_are_computed_from_the_batch() -> None:
    """As exporters write it for any batch."""
    x = drawn(2, 3, 16, 12)
    nodes = [
        node("Shape", "x", "first", end=2),
        node("Concat", "first wanted", "sizes", axis=0),
        node("Resize", "x - - sizes", "y", mode="linear", antialias=1),
    ]
    given, made = [value("x", shape=("batch", 3, 16, 12))], [value("y", shape=("batch", 3, 5, 9))]
    proto = model(nodes, given, made, [weight("wanted", np.array([5, 9]))], opset=18)
    near(answer(written(proto), {"x": x}), Session(proto).run({"x": x})["y"], 8.0)


OPEN = ["batch", "length", 1]
LEFT = {
    "an open length": (node("DFT", "x", "y"), OPEN),
    "a length from outside": (node("DFT", "x n", "y"), [2, 8, 1]),
    "an axis from outside": (node("DFT", "x - n", "y"), [2, 8, 1]),
    "the axis of the parts": (node("DFT", "x - last", "y"), [2, 8, 1]),
    "a prime length that is large": (node("DFT", "x", "y"), [2, 4099, 1]),
    "other than half the frequencies": (node("DFT", "x five", "y", onesided=1, inverse=1), [2, 8, 2]),
    "a step from outside": (node("STFT", "x n - five", "y"), [2, 64, 1]),
    "frames that are large": (node("STFT", "x five - large", "y"), [2, 8192, 1]),
    "an image from outside": (node("Col2Im", "x sizes two", "y"), [2, 12, 4]),
    "channels that are open": (node("Col2Im", "x two two", "y"), [2, "c", 4]),
    "a size that is open": (node("Resize", "x - scales", "y", antialias=1, mode="linear"), [1, 1, "h", 8]),
    "an axis before the last two": (node("Resize", "x - scales", "y", antialias=1, mode="linear"), [1, 8, 8, 8]),
    "a crop": (
        node("Resize", "x - scales", "y", antialias=1, coordinate_transformation_mode="tf_crop_and_resize"),
        [1, 1, 8, 8],
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_open_or_too_large_is_left(name: str) -> None:
    each, dims = LEFT[name]
    scales = [1, 0.5, 0.5, 0.5] if name == "an axis before the last two" else [1, 1, 0.5, 0.5]
    proto = model(
        [each],
        [
            value("x", shape=dims),
            value("n", onnx.TensorProto.INT64, ()),
            value("sizes", onnx.TensorProto.INT64, (2,)),
        ],
        [value("y", shape=None)],
        [
            *(weight("last", np.array(-1)), weight("five", np.array(5)), weight("large", np.array(4096))),
            *(weight("two", np.array([2, 2])), weight("scales", np.array(scales, np.float32))),
        ],
        opset=20,
    )
    found = lowered(load(proto), lambda one: one.op_type in WRITTEN)
    assert found.left == ("n_y",) and not found.written


def test_equal_transforms_share_their_matrix() -> None:
    nodes = [node("DFT", "x", "a"), node("DFT", "a", "b", inverse=1), node("DFT", "b", "y")]
    proto = model(nodes, [value("x", shape=(2, 32, 2))], [value("y", shape=(2, 32, 2))], opset=20)
    made = written(proto)
    assert [size for size in sizes(made) if size > 8] == [4096, 4096]


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 20])
@pytest.mark.parametrize(("axes", "keep"), [((-1,), 1), ((1, 2), 0), ((), 1), ((), 0), ((0,), 0)])
def test_the_logarithm_of_a_sum_of_exponentials_stays_finite(opset: int, axes: tuple[int, ...], keep: int) -> None:
    """exp(250) leaves FP32; a row of nothing but minus infinity gives minus infinity."""
    x = 80.0 * drawn(3, 4, 5)
    x[0], x[1, 2] = -np.inf, x[1, 2] + 250.0
    by_input = opset >= 18
    options: dict[str, Any] = {} if by_input or not axes else {"axes": list(axes)}
    given = ["x", "axes"] if by_input and axes else ["x"]
    wide = np.logaddexp.reduce(
        np.moveaxis(x.astype(np.float64), axes or (0, 1, 2), range(len(axes) or 3)).reshape(
            -1, *(size for axis, size in enumerate(x.shape) if axis not in [each % 3 for each in axes] and axes)
        )
    )
    kept = [1 if not axes or axis in [each % 3 for each in axes] else size for axis, size in enumerate(x.shape)]
    proto = model(
        [node("ReduceLogSumExp", " ".join(given), "y", keepdims=keep, **options)],
        [value("x", shape=x.shape)],
        [value("y", shape=None)],
        [weight("axes", np.array(axes))] if by_input and axes else [],
        opset=opset,
    )
    near(answer(written(proto), {"x": x}), wide.reshape(kept) if keep else wide)
