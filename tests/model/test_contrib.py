"""ONNX Runtime's own operators: what types they take and give, against the installed runtime."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

from halfwise.core.child.process import Ended
from halfwise.core.child.worker import ChildDied
from halfwise.core.formats import Format
from halfwise.core.notes import Note, NoteKind
from halfwise.emulation.emulate import emulate
from halfwise.model.contrib import kernel_lists, kernels
from halfwise.model.contrib.kernels import narrow_kernel
from halfwise.model.model import load
from halfwise.model.ops import slot_rule
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import typed_proto
from tests.models.contrib_cases import DOMAIN, Case, cases
from tests.models.expert_cases import expert_cases, kernels_alone
from tests.models.state_cases import state_cases
from tests.support.packed_products import product

CASES = [*cases(), *expert_cases(), *state_cases()]
IDS = [case.name for case in CASES]
RUNNING = [case for case in CASES if case.runs]


def session(proto: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("case", [*RUNNING, *kernels_alone()], ids=lambda case: case.name)
def test_inferred_types_and_shapes_are_what_the_runtime_gives(case: Case) -> None:
    found = session(case.proto()).run(None, case.feeds)
    names = [name for name in case.outputs if name]
    model = load(case.proto())
    by_name = {value.name: value for value in model.graph.outputs}
    for name, array in zip(names, found, strict=True):
        value = by_name[name]
        assert value.dtype is not None and value.dtype.numpy() == array.dtype
        assert value.shape is not None and len(value.shape) == array.ndim
        assert all(dim == size or not isinstance(dim, int) for dim, size in zip(value.shape, array.shape, strict=True))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_schemas_do_not_stay_with_the_onnx_package(case: Case) -> None:
    load(case.proto())
    assert not onnx.defs.has(case.op, case.domain) or case.op == "LayerNormalization"


@pytest.mark.parametrize("case", RUNNING, ids=[case.name for case in RUNNING])
def test_the_typed_node_loads_and_runs_where_the_fp32_one_does(case: Case) -> None:
    model = load(case.proto())
    sites = Sites(model)
    typed = session(typed_proto(Assignment.all_narrow(sites)))
    wide = session(case.proto()).run(None, case.feeds)
    for narrow, exact in zip(typed.run(None, case.feeds), wide, strict=True):
        assert narrow.dtype == exact.dtype
        assert np.abs(narrow.astype(np.float64) - exact).max() <= 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("fmt", [Format.FP16, Format.BF16])
def test_nothing_narrows_that_the_runtime_s_schema_forbids(fmt: Format) -> None:
    for schema in runtime.get_all_operator_schema():
        if schema.domain != DOMAIN:
            continue
        rule = slot_rule(schema.name, DOMAIN, schema.since_version, fmt)
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        for formals, flags in ((schema.inputs, rule.inputs), (schema.outputs, rule.outputs)):
            for formal, (narrows, letter) in zip(formals, flags, strict=bool(flags)):
                assert letter == formal.typeStr
                assert not narrows or fmt.schema_type in allowed[letter], schema.name


def test_every_cpu_kernel_of_a_narrow_format_is_known() -> None:
    for kernel in runtime.get_all_opkernel_def():
        taken = [types for types in kernel.type_constraints.values() if "tensor(float16)" in types]
        if kernel.domain == DOMAIN and kernel.provider == "CPUExecutionProvider" and len(kernel.type_constraints) == 1:
            assert not taken or narrow_kernel(kernel.op_name, DOMAIN, Format.FP16), kernel.op_name


def slots(case: str, fmt: Format = Format.FP16) -> tuple[tuple[bool, ...], tuple[bool, ...], Note | None]:
    site = Sites(load(CASES[IDS.index(case)].proto()), fmt).of
    (found,) = site.values()
    return found.inputs, found.outputs, found.pinned


def test_scales_and_bias_of_packed_weights_follow_the_data_and_packed_weights_do_not() -> None:
    assert slots("packed bias") == ((True, False, True, False, False, True), (True,), None)


def test_masks_lengths_and_places_stay_integers() -> None:
    assert slots("attention raw")[0] == (True, True, True, False)
    assert slots("grouped turned")[:2] == (
        (True, True, True, False, False, False, False, True, True),
        (True, True, True),
    )
    assert slots("embedding")[:2] == (
        (False, False, True, True, True, True, True, False),
        (True, False, True),
    )


def test_the_scale_and_bias_of_a_group_norm_stay_in_fp32_as_its_kernel_reads_them() -> None:
    assert slots("group-norm") == ((True, False, False), (True,), None)


def test_an_operator_without_a_narrow_kernel_is_pinned_with_that_reason() -> None:
    assert slots("gemm relu")[2] == Note.of(NoteKind.NO_NARROW_KERNEL, "FusedGemm", format="FP16")
    assert slots("embedding", Format.BF16)[2] is not None


def test_a_rank_that_is_not_known_leaves_shapes_open_and_types_known() -> None:
    case = CASES[IDS.index("attention raw")]
    proto = case.proto()
    for value in proto.graph.input:
        value.type.tensor_type.ClearField("shape")
    assert load(proto).graph.outputs[0].dtype is not None


def test_an_operator_that_the_runtime_does_not_know_stays_foreign() -> None:
    node = helper.make_node("Magic", ["x"], ["y"], domain=DOMAIN)
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    graph = helper.make_graph([node], "g", [value], [result])
    (site,) = Sites(load(helper.make_model(graph, opset_imports=opsets, ir_version=8))).all
    assert site.pinned == Note.of(NoteKind.FOREIGN_DOMAIN, DOMAIN)


def test_the_listed_kernels_are_those_of_the_package_that_they_were_taken_from() -> None:
    if not ort.__version__.startswith("1.32.") or platform.machine() != "x86_64":
        pytest.skip("another ONNX Runtime is installed than the list was taken from")
    narrow = {Format.FP16.schema_type, Format.BF16.schema_type}
    installed = {
        key: types for key, types in kernels._cpu().items() if key[0] == DOMAIN or (not key[0] and types & narrow)
    }
    assert installed == {key: {fmt.schema_type for fmt in formats} for key, formats in kernel_lists.CPU.items()}


@pytest.fixture
def dying_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As of onnxruntime-gpu without TensorRT beside it."""

    def dies(*arguments: Any, **options: Any) -> Any:
        raise ChildDied(Ended(-11, 0.1, 1.0, False), ())

    monkeypatch.setattr(kernels, "ask", dies)
    kernels._cpu.cache_clear()
    yield
    kernels._cpu.cache_clear()


def test_where_asking_ends_the_process_the_listed_kernels_count(dying_list: None) -> None:
    assert kernels.cpu_takes("MatMulNBits", DOMAIN, Format.FP16) and not kernels.cpu_takes("Gelu", DOMAIN, Format.FP16)
    assert kernels.cpu_runs("QLinearSoftmax", DOMAIN) and not kernels.cpu_runs("GroupNorm", DOMAIN)
    assert kernels.narrow_kernel("GroupNorm", DOMAIN, Format.FP16)


def test_packed_weights_stay_packed_there(dying_list: None) -> None:
    """Written out they are constants of FP32, beyond what a protobuf holds for a large model."""
    weight = product()
    emulated = emulate(Assignment.all_narrow(Sites(load(weight))))
    assert [node.op_type for node in emulated.graph.node if "MatMul" in node.op_type] == ["MatMulNBits"]
