"""ONNX Runtime's own operators emulated: in FP32 as the kernel, in FP16 rounded where memory holds a value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from halfwise.core.formats import Format
from halfwise.core.notes import NoteKind
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.ort import Session
from halfwise.emulation.profiles import ORT_CUDA_UNFUSED, STRICT, Profile
from halfwise.emulation.profiles.caveats import caveats
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from tests.model.test_contrib import CASES, IDS, session
from tests.models.contrib_cases import Case

Array = NDArray[Any]
FLOATS = [case for case in CASES if case.op not in ("FusedConv", "FusedGemm")]


def emulated(case: Case, profile: Profile = STRICT, *, narrow: bool = True) -> dict[str, Array]:
    sites = Sites(load(case.proto()))
    assignment = Assignment.all_narrow(sites) if narrow else Assignment(sites, {})
    return Emulator(profile).session(assignment).run(case.feeds)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_in_fp32_every_operator_runs_and_those_with_a_kernel_give_what_it_gives(case: Case) -> None:
    found = emulated(case, narrow=False)
    if case.runs:
        exact = session(case.proto()).run(None, case.feeds)
        for name, array in zip([name for name in case.outputs if name], exact, strict=True):
            np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5)


def right_between_nodes(case: Case) -> bool:
    """Whether the runtime's kernel gives the same between others: MoE of 1.30 and 1.31 writes over what it reads."""
    proto = case.proto()
    read, made = proto.graph.node[0].input[0], proto.graph.node[0].output[0]
    proto.graph.node[0].input[0], proto.graph.node[0].output[0] = "read again", "made before"
    proto.graph.node.insert(0, helper.make_node("Abs", [read], ["read again"]))
    proto.graph.node.append(helper.make_node("Abs", ["made before"], [made]))
    positive = {**case.feeds, read: np.abs(case.feeds[read])}
    exact = session(case.proto()).run([made], positive)
    return np.array_equal(np.abs(exact[0]), session(proto).run([made], positive)[0])


@pytest.mark.parametrize("installed", ["", "1.31.1", "1.32.0", "2.0"])
def test_a_runtime_that_clears_the_input_of_experts_is_told(installed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [case for case in CASES if case.op == "MoE"]
    wrong = installed == "1.31.1" if installed else not all(map(right_between_nodes, cases))
    if installed:
        monkeypatch.setattr("halfwise.emulation.profiles.caveats.ort.__version__", installed)
    notes = [note for case in cases for note in caveats(STRICT, load(case.proto()).nodes)]
    assert [note.kind for note in notes] == [NoteKind.RUNTIME_OVERWRITES] * (len(cases) if wrong else 0)


@pytest.mark.parametrize("profile", [STRICT, ORT_CUDA_UNFUSED], ids=lambda profile: profile.name)
@pytest.mark.parametrize("case", FLOATS, ids=[case.name for case in FLOATS])
def test_in_fp16_results_are_of_the_format_and_near(case: Case, profile: Profile) -> None:
    if case.op == "MoE" and case.runs and not right_between_nodes(case):
        pytest.skip("the installed runtime's kernel is wrong")
    found, exact = emulated(case, profile), emulated(case, narrow=False)
    for name, array in found.items():
        assert array.dtype == exact[name].dtype
        if array.dtype == np.float32:
            np.testing.assert_array_equal(array, array.astype(np.float16).astype(np.float32))
            assert np.abs(array - exact[name]).max() <= 0.02 * np.abs(exact[name]).max()
        else:
            np.testing.assert_array_equal(array, exact[name])


@pytest.mark.parametrize("name", [case.name for case in CASES if case.op == "GatherBlockQuantized"])
def test_a_packed_table_is_read_by_the_kernel_and_never_written_out_in_fp32(name: str) -> None:
    case = CASES[IDS.index(name)]
    written = Emulator().write(Assignment.all_narrow(Sites(load(case.proto())))).proto
    assert [node.op_type for node in written.graph.node if node.op_type in ("Constant", "Gather", case.op)] == [case.op]
    (made,) = emulated(case).values()
    rounded = [
        each.astype(np.float16).astype(each.dtype) if slot == 2 else each for slot, each in enumerate(case.inputs)
    ]
    (exact,) = session(replace(case, inputs=tuple(rounded)).proto()).run(None, case.feeds)
    np.testing.assert_array_equal(made, exact.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("name", ["attention raw", "grouped turned", "skip-norm all", "embedding", "group-norm"])
def test_a_node_by_itself_gives_what_the_whole_model_gives(name: str) -> None:
    case = CASES[IDS.index(name)]
    assignment = Assignment.all_narrow(Sites(load(case.proto())))
    emulator = Emulator()
    store = Store(emulator, assignment, case.feeds)
    whole = emulator.session(assignment).run(case.feeds)
    for step in Stepper(emulator).walk(store):
        for value, array in step.outputs.items():
            np.testing.assert_array_equal(array, whole[value.name or ""])


def test_scores_beyond_fp16_overflow_where_they_are_stored_and_not_inside_of_a_kernel() -> None:
    case = CASES[IDS.index("multi-head")]
    q, k, v = (array for array in case.inputs if array is not None)
    large = Case("large", case.op, (q * 300, k * 300, v), case.attributes)
    assert np.isfinite(emulated(large, ORT_CUDA_UNFUSED)["y"]).all()
    assert not np.isfinite(emulated(large, STRICT)["y"]).all()


def test_the_sum_of_a_skip_norm_overflows_under_every_profile() -> None:
    case = CASES[IDS.index("skip-norm all")]
    x, skip, *rest = (array for array in case.inputs if array is not None)
    large = Case("large", case.op, (x * 2e4, skip * 2e4, *rest), case.attributes, case.outputs)
    for profile in (STRICT, ORT_CUDA_UNFUSED):
        assert not np.isfinite(emulated(large, profile)["sum"]).all()


def test_what_an_expert_stores_inside_overflows() -> None:
    case = CASES[IDS.index("experts")]
    x, router, first, shift, second, *rest = (array for array in case.inputs if array is not None)
    large = (x, router, first * 3e4, shift, second * 1e-4, *rest)
    assert not np.isfinite(emulated(Case("large", case.op, large, case.attributes), STRICT)["y"]).all()


def test_cuda_computes_a_fast_gelu_as_it_does_when_it_fuses_one_itself() -> None:
    case = CASES[IDS.index("fast-gelu")]
    plain = Case("plain", "Gelu", case.inputs, {"approximate": "tanh"}, domain="")
    sites = Sites(load(plain.proto(20)))
    fused = Emulator(ORT_CUDA_UNFUSED).session(Assignment.all_narrow(sites)).run(case.feeds)["y"]
    np.testing.assert_array_equal(emulated(case, ORT_CUDA_UNFUSED)["y"], fused)
    assert not np.array_equal(fused, emulated(case, STRICT)["y"])


def test_scales_of_packed_weights_are_rounded_and_the_weights_are_not() -> None:
    case = CASES[IDS.index("packed")]
    a, weight, scales = (array for array in case.inputs if array is not None)
    rounded = Case("rounded", case.op, (_half(a), weight, _half(scales)), case.attributes, weights=(1, 2))
    (exact,) = session(rounded.proto()).run(None, rounded.feeds)
    np.testing.assert_array_equal(emulated(case)["y"], _half(exact))
    assert Sites(load(case.proto())).all[0].inputs == (True, False, True)


def _half(array: Array) -> Array:
    return np.asarray(array.astype(Format.FP16.dtype).astype(np.float32))


def test_a_weight_that_nothing_reads_is_not_handed_to_the_runtime() -> None:
    """It drops such a weight, as is left where an operator was replaced by its steps, and refuses to be given it."""
    weights = {name: np.ones(64, np.float32) for name in ("read", "left", "inside")}
    declared = [onnx.TensorProto(name=name, data_type=1, dims=[64], data_location=1) for name in weights]
    for tensor in declared:
        tensor.external_data.add(key="location", value="given")
    body = helper.make_graph([helper.make_node("Neg", ["inside"], ["b"])], "body", [], [_float("b")])
    nodes = [
        helper.make_node("Add", ["x", "read"], ["y"]),
        helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body),
    ]
    given = [_float("x"), helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", given, [_float("y"), _float("z")], declared)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = Session(proto, weights).run({"x": np.zeros(64, np.float32), "c": np.array(True)})
    np.testing.assert_array_equal(found["y"], weights["read"])
    np.testing.assert_array_equal(found["z"], -weights["inside"])


def _float(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [64])
