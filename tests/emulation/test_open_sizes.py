"""Made-up inputs take sizes with which the FP32 model runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import halfwise
from halfwise.core.errors import InputError
from halfwise.emulation.open_sizes import sizes_that_run
from halfwise.model.inputs.samples import load_samples
from halfwise.model.inputs.synthetic import USUAL, OpenSizes, open_dimensions
from halfwise.model.model import load
from tests.models.build import model, node, value, weight
from tests.support.says import Says


def windowed(pad: int, *shape: Any) -> onnx.ModelProto:
    """Audio that is reflected at both ends: it has to be longer than that."""
    nodes = [node("Pad", "x pads", "p", mode="reflect"), node("Mul", "p half", "y")]
    weights = [weight("pads", np.array([0, pad, 0, pad])), weight("half", np.float32(0.5))]
    return model(nodes, [value("x", shape=shape)], [value("y", shape=None)], weights)


@pytest.mark.parametrize(("pad", "size"), [(4, 16), (40, 64), (300, 512), (700, 4096)])
@pytest.mark.parametrize("length", ["samples", None])
def test_a_window_fits(pad: int, size: int, length: str | None) -> None:
    given = load(windowed(pad, "batch", length))
    sizes = sizes_that_run(given, None)
    assert sizes == OpenSizes(size)
    feed = load_samples(given.inputs, None, sizes=sizes).search[0]
    assert feed["x"].shape == (1, size)


def test_a_state_of_one_beside_a_window() -> None:
    """Added to a state whose second dimension, unnamed, is the batch."""
    nodes = [node("Pad", "x pads", "p", mode="reflect"), node("MatMul", "state p", "y")]
    weights = [weight("pads", np.array([0, 40, 0, 40]))]
    inputs = [value("x", shape=(None, None)), value("state", shape=(2, None))]
    given = load(model(nodes, inputs, [value("y", shape=None)], weights))
    assert open_dimensions(given.inputs) == ("x[1]", "state[1]")
    assert sizes_that_run(given, None) == OpenSizes(64, {"state[1]": 1})


def test_given_inputs_and_closed_shapes_need_no_run() -> None:
    assert sizes_that_run(load(windowed(40, "batch", "samples")), [{}]) is USUAL
    assert sizes_that_run(load(windowed(4, 1, 8)), None) is USUAL


@pytest.mark.parametrize("shape", [("frames", "bins"), ("batch", "bins"), (None, None)])
def test_features_are_as_many_as_a_weight_reads(shape: tuple[str | None, str | None]) -> None:
    nodes = [
        node("Unsqueeze", "x axis", "u"),
        node("LSTM", "u w r", "h", hidden_size=5),
    ]
    weights = [
        weight("axis", np.array([1])),
        weight("w", np.ones((1, 20, 138), "f4")),
        weight("r", np.ones((1, 20, 5), "f4")),
    ]
    given = load(model(nodes, [value("x", shape=shape)], [value("h", shape=None)], weights))
    assert sizes_that_run(given, None) == OpenSizes(apart={shape[1] or "x[1]": 138})


def test_two_sizes_of_one_weight_and_frames_for_a_kernel() -> None:
    """Each value has its own scale, and the kernel reads seven frames."""
    nodes = [
        node("Mul", "x scale", "m"),
        node("Unsqueeze", "m axis", "u"),
        node("Transpose", "u", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w", "y"),
    ]
    weights = [
        weight("scale", np.ones((80, 3), "f4")),
        weight("axis", np.array([0])),
        weight("w", np.ones((10, 3, 7, 3), "f4")),
    ]
    given = load(model(nodes, [value("x", shape=("t", "f", "c"))], [value("y", shape=None)], weights))
    sizes = sizes_that_run(given, None)
    assert sizes == OpenSizes(apart={"f": 80, "c": 3}, leading=16)
    assert load_samples(given.inputs, None, sizes=sizes).search[0]["x"].shape == (16, 80, 3)


def test_what_is_flattened_has_the_length_that_a_product_reads() -> None:
    """Two valid convolutions of three, and 4 channels of what is left: (length - 4) x 4 = 1,060."""
    nodes = [node("Conv", "x w", "a"), node("Conv", "a v", "b"), node("Flatten", "b", "f"), node("MatMul", "f k", "y")]
    sizes = {"w": (4, 1, 3), "v": (4, 4, 3), "k": (1060, 2)}
    weights = [weight(name, np.ones(shape, "f4")) for name, shape in sizes.items()]
    given = load(model(nodes, [value("x", shape=("n", 1, "length"))], [value("y", shape=None)], weights))
    assert sizes_that_run(given, None) == OpenSizes(apart={"length": 269})


def test_a_picture_is_as_large_as_its_table_of_positions() -> None:
    """9 patches of 8 x 8 and a token in front; all four dimensions are open."""
    nodes = [
        node("Conv", "x k", "patches", strides=[8, 8]),
        node("Reshape", "patches flat", "rows"),
        node("Transpose", "rows", "tokens", perm=[0, 2, 1]),
        node("Concat", "cls tokens", "all", axis=1),
        node("Add", "all table", "y"),
    ]
    weights = [
        weight("k", np.ones((6, 3, 8, 8), "f4")),
        weight("flat", np.array([1, 6, -1])),
        weight("cls", np.ones((1, 1, 6), "f4")),
        weight("table", np.ones((1, 10, 6), "f4")),
    ]
    shape = ("batch_size", "num_channels", "height", "width")
    given = load(model(nodes, [value("x", shape=shape)], [value("y", shape=None)], weights))
    assert sizes_that_run(given, None) == OpenSizes(apart={"height": 24, "width": 24, "num_channels": 3})


def test_a_mask_with_a_length_of_its_own_covers_the_cache_and_the_tokens() -> None:
    nodes = [
        node("Cast", "ids", "f", to=TensorProto.FLOAT),
        node("Unsqueeze", "f outer", "u"),
        node("Mul", "u heads", "k"),
        node("Concat", "cache k", "all", axis=2),
        node("ReduceSum", "all last", "scores", keepdims=0),
        node("Cast", "mask", "m", to=TensorProto.FLOAT),
        node("Unsqueeze", "m one", "seen"),
        node("Mul", "scores seen", "y"),
    ]
    weights = [weight("outer", np.array([1, 3])), weight("one", np.array([1])), weight("last", np.array([3]))]
    weights.append(weight("heads", np.ones((1, 2, 1, 8), "f4")))
    inputs = [
        value("ids", TensorProto.INT64, ("batch", "tokens")),
        value("mask", TensorProto.INT64, ("batch", "total")),
        value("cache", shape=("batch", 2, "past", 8)),
    ]
    given = load(model(nodes, inputs, [value("y", shape=None)], weights))
    assert sizes_that_run(given, None) == OpenSizes(apart={"total": 32})


def test_colours_are_three_where_four_parts_of_a_picture_are_stacked() -> None:
    """The convolution reads 12 channels."""
    nodes = [
        node("SpaceToDepth", "x", "parts", blocksize=2),
        node("Conv", "parts k", "y"),
    ]
    weights = [weight("k", np.ones((6, 12, 3, 3), "f4"))]
    given = load(model(nodes, [value("x", shape=("n", "c", "h", "w"))], [value("y", shape=None)], weights))
    assert sizes_that_run(given, None) == OpenSizes(64, {"c": 3})


def test_a_length_is_that_of_the_input_that_it_is_called_after() -> None:
    """Frames beyond the stated length are 0, as speech recognisers mask them; a window needs 20 samples."""
    nodes = [
        node("Shape", "wave", "shape"),
        node("Gather", "shape one", "n"),
        node("Range", "zero n one", "places"),
        node("Less", "places wave_lens", "kept"),
        node("Where", "kept wave none", "masked"),
        node("Slice", "masked twenty end axis", "y"),
    ]
    weights = [
        weight("zero", np.int64(0)),
        weight("one", np.int64(1)),
        weight("none", np.float32(0)),
        weight("twenty", np.array([20])),
        weight("end", np.array([2**31])),
        weight("axis", np.array([1])),
    ]
    inputs = [value("wave", shape=("batch_size", "N")), value("wave_lens", TensorProto.INT64, ("batch_size",))]
    given = load(model(nodes, inputs, [value("y", shape=None)], weights))
    assert open_dimensions(given.inputs) == ("N",)
    sizes = sizes_that_run(given, None)
    assert sizes == OpenSizes(64, lengths=True)
    feed = load_samples(given.inputs, None, sizes=sizes).search[0]
    assert feed["wave"].shape == (1, 64) and feed["wave_lens"].tolist() == [64]


def test_an_n_is_a_batch_where_no_other_is() -> None:
    inputs = [value("x", shape=(4, "N")), value("h", shape=(2, "N", 8))]
    given = load(model([node("Identity", "x", "y")], inputs, [value("y", shape=None)]))
    assert open_dimensions(given.inputs) == ()


def test_an_n_behind_a_fixed_batch_is_none() -> None:
    """Samples of sound are as many as a window takes, also where they are called n."""
    assert sizes_that_run(load(windowed(40, 1, "n")), None) == OpenSizes(64)


def test_where_no_size_runs_the_usual_one_says_why(says: Says) -> None:
    nodes = [node("Concat", "x fixed", "a", axis=0), node("Concat", "x other", "b", axis=0)]
    weights = [weight("fixed", np.ones((1, 77), "f4")), weight("other", np.ones((1, 78), "f4"))]
    proto = model(nodes, [value("x", shape=("n", "m"))], [value("a", shape=None), value("b", shape=None)], weights)
    with says.raises(InputError):
        halfwise.fix(proto)


def test_the_job_finds_its_inputs() -> None:
    fixed = halfwise.fix(windowed(40, "batch", "samples"))
    assert fixed.met
    assert fixed.samples.search[0]["x"].shape == (1, 64)


@pytest.mark.parametrize(
    ("strides", "edge"), [((2, 2, 2), 16), ((2, 2, 2, 2), 64), ((4, 2, 2, 2), 128), ((3, 3, 3), 128)]
)
def test_a_picture_leaves_something_behind_the_strides(strides: tuple[int, ...], edge: int) -> None:
    nodes = [
        node("Conv", f"{'x' if index == 0 else f't{index}'} k", f"t{index + 1}", strides=[each] * 2, pads=[1] * 4)
        for index, each in enumerate(strides)
    ]
    nodes.append(node("InstanceNormalization", f"t{len(strides)} one one", "y"))
    weights = [weight("k", np.ones((3, 3, 3, 3), "f4")), weight("one", np.ones(3, "f4"))]
    given = load(model(nodes, [value("x", shape=("n", 3, "h", "w"))], [value("y", shape=None)], weights))
    assert [sizes_that_run(given, None).of(key) for key in ("h", "w")] == [edge, edge]
