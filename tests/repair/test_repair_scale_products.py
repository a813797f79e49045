"""HW401 and HW411 past squares, roots, quotients, products and logarithms, alone and together with other rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from halfwise.model.model import load
from halfwise.model.patterns.view import View
from halfwise.repair import Ranges
from halfwise.repair.rescale import RESCALE
from halfwise.repair.scale_atoms import Atoms
from halfwise.repair.scale_classes import solve
from halfwise.repair.scale_flow import ScaleFlow
from halfwise.repair.scale_logs import SCALE_LOGS
from halfwise.repair.scale_products import rounds_anew
from halfwise.verbs.fix.fix import FixResult, fix
from tests.models.build import model, node, value, weight
from tests.models.decoders import NORMS, decoder, decoder_inputs, interrupted
from tests.models.zoo import SHAPES
from tests.support.repairing import effect

Array = NDArray[np.float32]

# -- what hangs on what ------------------------------------------------------------------------------------------------


def test_powers_of_squares_roots_and_quotients_are_multiples_of_one_number() -> None:
    atoms = Atoms()
    x, square, root, quotient = (atoms.fresh(2) for _ in range(4))
    atoms.tie(square, x, 2.0)
    atoms.follow(root, square, 0.5)
    atoms.product(quotient, x, root, -1.0)
    classes = solve(atoms)
    assert classes.kept == (True,)
    assert (classes.labels[quotient] == 0).all()
    assert len(set(classes.labels[np.concatenate([x, square, root])])) == 2  # one for each channel
    assert list(classes.times[square] / classes.times[x]) == [2.0, 2.0]
    assert list(classes.times[root] / classes.times[x]) == [1.0, 1.0]


def test_a_root_that_is_read_as_it_is_leaves_its_operand_free() -> None:
    atoms = Atoms()
    x, root = atoms.fresh(1), atoms.fresh(1)
    atoms.follow(root, x, 0.5)
    atoms.pin(root)
    classes = solve(atoms)
    assert classes.kept == (False,) and classes.labels[x] != 0 == classes.labels[root]


def test_what_contradicts_itself_is_pinned() -> None:
    atoms = Atoms()
    x, other = atoms.fresh(1), atoms.fresh(1)
    atoms.tie(x, other)
    atoms.tie(x, other, 2.0)
    assert (solve(atoms).labels[np.concatenate([x, other])] == 0).all()


def test_a_power_is_whole_for_all_that_hang_on_it() -> None:
    atoms = Atoms()
    x, third = atoms.fresh(1), atoms.fresh(1)
    atoms.tie(third, x, 1 / 3)
    classes = solve(atoms)
    assert classes.steps[classes.labels[x]] == 3


def test_of_a_product_that_nothing_decides_the_second_factor_is_pinned() -> None:
    atoms = Atoms()
    left, right, made = atoms.fresh(1), atoms.fresh(1), atoms.fresh(1)
    atoms.product(made, left, right, 1.0)
    classes = solve(atoms)
    assert classes.labels[right] == 0 != classes.labels[left] == classes.labels[made]


def test_two_factors_of_a_product_that_is_read_as_it_is_take_opposite_powers() -> None:
    atoms = Atoms()
    left, right, made = atoms.fresh(1), atoms.fresh(1), atoms.fresh(1)
    atoms.product(made, left, right, 1.0)
    atoms.pin(made)
    classes = solve(atoms)
    assert classes.labels[left] == classes.labels[right] != 0
    assert classes.times[left] == -classes.times[right]


@pytest.mark.parametrize("turned", [False, True])
def test_a_gate_of_two_layers_leaves_the_stream_free_whichever_factor_is_the_quieter_one(turned: bool) -> None:
    atoms = Atoms()
    gate, one, other, stream = (atoms.fresh(1) for _ in range(4))
    for sides in ((gate, one), (other, gate))[:: -1 if turned else 1]:
        made = atoms.fresh(1)
        atoms.product(made, *sides, 1.0)
        atoms.tie(stream, made)
    classes = solve(atoms)
    powers = classes.times * (classes.labels != 0)
    assert powers[stream] == powers[gate] + powers[one] == powers[gate] + powers[other] != 0


@pytest.mark.parametrize("loud", [False, True])
def test_a_norm_whose_constants_are_inside_has_no_power_unless_its_result_is_loud(loud: bool) -> None:
    atoms = Atoms()
    x, inverse, gained, made = (atoms.fresh(1) for _ in range(4))
    atoms.tie(inverse, x, -1.0)
    atoms.stand(gained, inverse, 1.0)
    atoms.product(made, x, gained, 1.0)
    if loud:
        atoms.free_loud(made)
    labels = solve(atoms).labels
    assert [bool(labels[each][0]) for each in (x, made, gained)] == [True, loud, not loud]


# -- a residual stream that leaves FP16's range ------------------------------------------------------------------------


def departs(result: FixResult, proto: onnx.ModelProto, feed: dict[str, Array]) -> float:
    """How far the repaired model is from the one given, both in FP64."""
    wide, repaired = in_float64(proto, feed), in_float64(ir.serde.serialize_model(result.sites.model.ir), feed)
    return float(np.linalg.norm(repaired - wide) / np.linalg.norm(wide))


def in_float64(proto: onnx.ModelProto, feed: dict[str, Array]) -> Array:
    """The whole model in FP64, by ONNX's reference."""
    wide = onnx.ModelProto.FromString(proto.SerializeToString())
    for tensor in wide.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for each in (*wide.graph.input, *wide.graph.output):
        each.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for each in wide.graph.node:
        for attribute in each.attribute:
            if each.op_type == "Cast" and attribute.name == "to":
                attribute.i = onnx.TensorProto.DOUBLE
    answer = ReferenceEvaluator(wide).run(None, {name: array.astype(np.float64) for name, array in feed.items()})
    return np.asarray(answer[0])


@pytest.mark.parametrize("norm", ["operator", "divided", "power", "cast"])
def test_a_stream_of_3e5_needs_no_fp32_node_however_its_norms_are_written(norm: str) -> None:
    """But for the guard of the first norm, where FP16 would lose it: the input may hold a row of zeros."""
    proto, inputs = decoder(norm), decoder_inputs()
    result = fix(proto, inputs)
    guard = ("/layers.0/norm1/Add", "/layers.0/norm1/Pow_1") if norm == "power" else ()
    assert result.met and result.fp32_nodes == guard
    assert ("HW401" if norm != "power" else "HW411") in {each.rule for each in result.plan.repairs}
    assert departs(result, proto, inputs[0]) <= 1e-5


@pytest.mark.parametrize("norm", ["quotient", "gained quotient", "reciprocal"])
@pytest.mark.parametrize("size", [4.0, 0.2])
def test_a_quiet_stream_that_grows_to_3e5_needs_none_either(norm: str, size: float) -> None:
    """A norm may multiply by one over the root, which is larger than the stream where that has not grown yet."""
    proto, inputs = decoder(norm), decoder_inputs(size=size)
    result = fix(proto, inputs)
    assert result.met and all(name.startswith("/layers.0/norm1/") for name in result.fp32_nodes)  # a guard
    assert len(result.fp32_nodes) <= (2 if norm == "gained quotient" or size == 0.2 else 0)
    assert departs(result, proto, inputs[0]) <= 1e-5


@pytest.mark.parametrize("norm", ["divided", "quotient", "gained quotient"])
def test_a_loud_stream_that_norms_interrupt_needs_none(norm: str) -> None:
    """Each sum is normalised, and what a norm makes is added to what overflows."""
    proto, inputs = interrupted(norm), decoder_inputs(size=1.0)
    result = fix(proto, inputs)
    assert result.met and result.fp32_nodes == ()
    assert departs(result, proto, inputs[0]) <= 1e-5


@pytest.mark.parametrize("norm", ["divided", "quotient", "power", "cast"])
def test_the_squares_of_a_quiet_stream_are_scaled_up(norm: str) -> None:
    proto, inputs = decoder(norm, massive=15.0), decoder_inputs(size=0.002)
    result = fix(proto, inputs)
    assert result.met and result.fp32_nodes == () and [repair.rule for repair in result.plan.repairs] == ["HW402"]
    assert departs(result, proto, inputs[0]) <= 1e-5


@pytest.mark.parametrize("norm", ["divided", "quotient"])
@pytest.mark.parametrize("power", [8, 14])
def test_an_overflow_that_a_norm_hides_is_repaired_too(norm: str, power: int) -> None:
    """Weights beyond FP16 are clamped, and a square overflows in front of a root: what is divided by it is 0."""
    proto, inputs = decoder(norm, behind=True), decoder_inputs()
    for tensor in proto.graph.initializer:
        factor = {"0.up": 2.0**-power, "0.down": 2.0**power}.get(tensor.name)
        if factor is not None:
            scaled = onnx.numpy_helper.to_array(tensor) * np.float32(factor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(scaled, tensor.name))
    result = fix(proto, inputs)
    assert np.isfinite(result.fp16["logits"].rel_l2) and result.fp16["logits"].nonfinite == 0
    assert result.met and result.fp32_nodes == ()
    assert {repair.rule for repair in result.plan.repairs} == {"HW401", "HW402"}


def test_a_second_search_keeps_the_repairs_of_the_first() -> None:
    """The first one spends the runs; overflows inside ask for another, which has none left to find them again."""
    fixed = fix(decoder("divided"), decoder_inputs(), target="ort-cuda")
    assert fixed.met and [repair.rule for repair in fixed.plan.repairs] == ["HW401", "HW404"]
    assert all("norm" in name for name in fixed.fp32_nodes)  # the stream itself is narrow


@pytest.mark.parametrize("norm", [norm for norm in NORMS if norm != "power"])
def test_rescaling_a_stream_keeps_every_bit(norm: str) -> None:
    found = effect(RESCALE, decoder(norm), decoder_inputs())
    assert found.repairs and found.bit_identical


# -- audio front ends --------------------------------------------------------------------------------------------------

SAMPLES, BINS, MELS, FRAMES = 128, 65, 12, 10


def spectrum(squares: str, guard: str, power: float = 0.0) -> onnx.ModelProto:
    """Frames of 16-bit samples, transformed, squared, summed in bands, and made logarithmic."""
    rng = np.random.default_rng(2)
    window, angle = np.hanning(SAMPLES)[:, None], 2 * np.pi * np.outer(np.arange(SAMPLES), np.arange(BINS)) / SAMPLES
    bands = np.maximum(0.0, 1.0 - np.abs(np.arange(BINS)[:, None] - np.linspace(2, BINS - 3, MELS)) / 5)
    nodes = [node("MatMul", "x cos", "re"), node("MatMul", "x sin", "im")]
    other = "two" if squares == "Pow" else ""
    nodes += [node(squares, f"{part} {other or part}", f"{part}2") for part in ("re", "im")]
    nodes += [node("Add", "re2 im2", "energy"), node("MatMul", "energy bands", "mel")]
    nodes += [node(guard, "mel floor", "guarded")]
    nodes += [node("Pow", "guarded p", "loud") if power else node("Log", "guarded", "loud")]
    nodes += [node("Sub", "loud mean", "centred"), node("MatMul", "centred head", "y")]
    weights = [
        weight("cos", (window * np.cos(angle)).astype(np.float32)),
        weight("sin", (window * np.sin(angle)).astype(np.float32)),
        weight("bands", bands.astype(np.float32)),
        weight("two", np.float32(2.0)),
        weight("p", np.float32(power)),
        weight("floor", np.float32(1e-6)),
        weight("mean", np.full(MELS, 10.0, np.float32)),
        weight("head", (rng.standard_normal((MELS, 4)) / 3).astype(np.float32)),
    ]
    used = {name for each in nodes for name in each.input}
    weights = [each for each in weights if each.name in used]
    return model(nodes, [value("x", shape=(1, FRAMES, SAMPLES))], [value("y", shape=(1, FRAMES, 4))], weights)


def sounds(count: int = 4) -> list[dict[str, Array]]:
    time = np.arange(FRAMES * SAMPLES).reshape(1, FRAMES, SAMPLES)
    rng = np.random.default_rng(7)
    return [
        {"x": (2e4 * np.sin(time * (0.1 + 0.05 * i)) + 300 * rng.standard_normal(time.shape)).astype(np.float32)}
        for i in range(count)
    ]


@pytest.mark.parametrize(("squares", "guard"), [("Pow", "Add"), ("Mul", "Max"), ("Mul", "Clip")])
def test_a_log_spectrum_of_16_bit_samples_needs_no_fp32_node(squares: str, guard: str) -> None:
    proto, inputs = spectrum(squares, guard), sounds()
    result = fix(proto, inputs)
    assert result.met and result.fp32_nodes == ()
    assert [each.rule for each in result.plan.repairs] == ["HW411", "HW404"]  # a guard of silence
    feed = inputs[0]
    wide = in_float64(proto, feed)
    assert np.linalg.norm(
        in_float64(ir.serde.serialize_model(result.sites.model.ir), feed) - wide
    ) <= 1e-5 * np.linalg.norm(wide)


def test_past_a_logarithm_the_fp32_answer_only_rounds_anew() -> None:
    found = effect(SCALE_LOGS, spectrum("Mul", "Add"), sounds())
    assert found.before == np.inf and found.after < 1
    assert 0 < found.deviation < 1e-6
    parameters: dict[str, Any] = dict(found.repairs[0].parameters)
    (term,) = parameters["terms"]
    (bands,) = (edit for edit in parameters["constants"] if edit["node"] == "n_mel")
    transform = next(edit["powers"] for edit in parameters["constants"] if edit["node"] == "n_re")
    assert term["power"] == bands["powers"] + 2 * transform < 0


def test_a_power_of_a_third_takes_powers_that_three_divides() -> None:
    found = effect(SCALE_LOGS, spectrum("Mul", "Add", power=1 / 3), sounds())
    assert found.repairs and found.deviation < 1e-6
    assert found.after < found.before == np.inf


def test_a_root_carries_its_power_on_to_where_it_is_taken() -> None:
    nodes = [
        node("MatMul", "x w1", "a"),
        node("Mul", "a a", "b"),
        node("Sqrt", "b", "c"),
        node("MatMul", "c w2", "y"),
    ]
    rng = np.random.default_rng(3)
    weights = [
        weight("w1", (3e3 * rng.standard_normal((8, 8))).astype(np.float32)),
        weight("w2", (1e-7 * rng.standard_normal((8, 8))).astype(np.float32)),
    ]
    proto = model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], weights)
    found = effect(RESCALE, proto, [{"x": rng.standard_normal((4, 8)).astype(np.float32)} for _ in range(3)])
    assert found.bit_identical
    assert found.before > 1 > found.after
    assert found.ops() == [each.op_type for each in found.model.nodes]  # nothing is taken back


@pytest.mark.parametrize("name", [*SHAPES])
def test_where_nothing_rounds_anew_no_walk_is_made_for_it(name: str) -> None:
    loaded = load(SHAPES[name]().model)
    values = (v.name or "" for n in loaded.graph for v in (*n.inputs, *n.outputs) if v is not None)
    ranges = Ranges(dict.fromkeys(values, 1.0))
    rounded = ScaleFlow(loaded, ranges, rounds=True).rounded
    view = View(loaded)
    assert rounded <= {each.name for each in loaded.graph if rounds_anew(view, each)}


def spectral(gain: float = 3e4) -> onnx.ModelProto:
    """Products by weights as a Fourier neural operator has them, some in front: beyond FP16 until the division."""
    rng = np.random.default_rng(0)
    held = {"mix": gain * rng.random((6, 5, 8, 4)), "back": rng.random((8, 8)), "heads": rng.random((5, 2, 3))}
    return model(
        [
            node("Einsum", "x mix", "m", equation="bijk,iojk->bojk"),
            node("Einsum", "back m", "b", equation="jx,bojk->boxk"),
            node("Slice", "b z o a", "first"),
            node("Sub", "b first", "d"),
            node("Einsum", "d heads", "h", equation="boxk,ohn->bxkhn"),
            node("Div", "h by", "y"),
        ],
        [value("x", shape=(1, 6, 8, 4))],
        [value("y", shape=(1, 8, 4, 2, 3))],
        [
            *(weight(name, array.astype(np.float32)) for name, array in held.items()),
            weight("by", np.float32(100 * gain)),
            *(weight(name, np.array([number])) for name, number in (("z", 0), ("o", 1), ("a", 3))),
        ],
        opset=18,
    )


def test_powers_pass_an_einsum_by_a_weight_on_either_side() -> None:
    feeds = [{"x": np.random.default_rng(seed).standard_normal((1, 6, 8, 4)).astype(np.float32)} for seed in range(4)]
    made = fix(spectral(), feeds)
    assert not made.fp16_verdict.met and made.good and made.fp32_nodes == ()


def heads_apart() -> onnx.ModelProto:
    """Heads 2^40 apart between two products: each head has a power of its own."""
    rng, apart = np.random.default_rng(0), 2.0 ** np.array([-20, 0, 20])
    into, out = rng.standard_normal((8, 3, 4)) * apart[:, None], rng.standard_normal((3, 4, 8)) / apart[:, None, None]
    return model(
        [
            node("Einsum", "x into", "h", equation="bsd,dhk->bshk"),
            node("Relu", "h", "r"),
            node("Mul", "r gains", "g"),
            node("Transpose", "g", "t", perm=[0, 1, 3, 2]),
            node("Reshape", "t flat", "f"),
            node("MatMul", "f out", "y"),
        ],
        [value("x", shape=(1, 2, 8))],
        [value("y", shape=(1, 2, 8))],
        [
            weight("into", into.astype(np.float32)),
            weight("gains", rng.random((1, 1, 3, 4)).astype(np.float32)),
            weight("out", out.transpose(1, 0, 2).reshape(12, 8).astype(np.float32)),
            weight("flat", np.array([1, 2, 12])),
        ],
        opset=18,
    )


def test_an_einsum_by_a_weight_gives_each_place_along_its_own_axes_a_power() -> None:
    feeds = [{"x": np.random.default_rng(seed).standard_normal((1, 2, 8)).astype(np.float32)} for seed in range(4)]
    made = fix(heads_apart(), feeds)
    assert not made.fp16_verdict.met and made.good and made.fp32_nodes == ()
