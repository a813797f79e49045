"""`convert`: AutoCast's signature, what its options become, and what is said of those that have no meaning."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

import halfwise
from halfwise.core.english import say
from halfwise.core.errors import InputError
from halfwise.core.notes import Note, NoteKind
from halfwise.verbs import convert
from halfwise.verbs.fix.prepare import Prepared, prepare
from halfwise.verbs.fix.request import FixRequest
from tests.models.build import model, node, value, weight

# Of nvidia-modelopt 0.47.
SIGNATURE = {
    "onnx_path": inspect.Parameter.empty, "low_precision_type": "fp16", "nodes_to_exclude": None,
    "op_types_to_exclude": None, "nodes_to_include": None, "op_types_to_include": None, "data_max": 512,
    "init_max": float(np.finfo(np.float16).max), "keep_io_types": False, "calibration_data": None, "custom_rule": None,
    "init_conversion_max_bytes": None, "providers": ["cpu"], "trt_plugins": [], "trt_plugins_precision": [],
    "max_depth_of_reduction": None, "opset": None, "use_standalone_type_inference": False,
}  # fmt: skip

FEEDS = [{"x": np.random.default_rng(seed).uniform(500, 1000, (2, 8)).astype(np.float32)} for seed in range(4)]


def squares() -> onnx.ModelProto:
    """y = sqrt(mean((x w)^2)): the square overflows FP16."""
    nodes = [
        node("MatMul", "x w", "h", name="/body/MatMul"),
        node("Mul", "h h", "s", name="/body/Mul"),
        node("ReduceMean", "s", "m", name="/head/ReduceMean", axes=[-1], keepdims=1),
        node("Sqrt", "m", "y", name="/head/Sqrt"),
    ]
    made = [weight("w", np.eye(8, dtype=np.float32))]
    return model(nodes, [value("x", shape=(2, 8))], [value("y", shape=(2, 1))], made)


def plain() -> onnx.ModelProto:
    made = squares()
    del made.graph.node[1:]
    made.graph.node[0].output[0] = "y"
    made.graph.output[0].CopyFrom(value("y", shape=(2, 8)))
    return made


def rounded() -> onnx.ModelProto:
    """Thirty products, each of which rounds: all in FP16 are too many for a narrow tolerance, and many sets are not."""
    rng = np.random.default_rng(0)
    nodes = [node("Mul", f"{f'h{step}' if step else 'x'} c{step}", f"h{step + 1}") for step in range(30)]
    factors = [weight(f"c{step}", rng.uniform(0.8, 1.2, 8).astype(np.float32)) for step in range(30)]
    nodes[-1].output[0] = "y"
    return model(nodes, [value("x", shape=(2, 8))], [value("y", shape=(2, 8))], factors)


@contextmanager
def told() -> Iterator[list[Note]]:
    """What is said as data, but for inputs that are few."""
    notes: list[Note] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield notes
    own = [each.message for each in caught if isinstance(each.message, halfwise.ConversionWarning)]
    assert all(each.filename == __file__ for each in caught if isinstance(each.message, halfwise.ConversionWarning))
    notes += [each.note for each in own if each.note.kind is not NoteKind.UNSEEN_MAY_MISS]


def converted(made: onnx.ModelProto, **options: Any) -> tuple[onnx.ModelProto, list[Note]]:
    with told() as notes:
        found = halfwise.convert(made, **{"inputs": FEEDS, "keep_io_types": True, **options})
    onnx.checker.check_model(found, full_check=True)
    return found, notes


def formats(made: onnx.ModelProto) -> dict[str, int]:
    """The type of each node's first result."""
    inferred = onnx.shape_inference.infer_shapes(made, data_prop=True).graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}
    return {each.name: types[each.output[0]] for each in made.graph.node}


def test_the_signature_is_autocasts_and_ours_follows_it() -> None:
    found = inspect.signature(halfwise.convert).parameters
    names = list(found)
    assert names[: len(SIGNATURE)] == list(SIGNATURE)
    for name, default in SIGNATURE.items():
        mine = found[name].default
        assert (list(mine) if isinstance(mine, tuple) else mine) == default, name
        assert found[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert {found[name].kind for name in names[len(SIGNATURE) :]} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("given", ["model", "path"])
def test_a_model_that_breaks_in_fp16_comes_out_right(given: str, tmp_path: Path) -> None:
    made = squares()
    onnx.save(made, tmp_path / "m.onnx")
    found, notes = converted(made if given == "model" else str(tmp_path / "m.onnx"))
    assert not notes
    assert TensorProto.FLOAT16 in formats(found).values()
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in FEEDS:
        (y,) = session.run(None, feed)
        wanted = np.sqrt(np.mean(feed["x"].astype(np.float64) ** 2, axis=-1, keepdims=True))
        np.testing.assert_allclose(y, wanted, rtol=0.01)


def test_a_large_model_is_run_fewer_times_and_comes_out_right(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Prepared] = []

    def seen(request: FixRequest) -> Prepared:
        made.append(prepare(request))
        return made[-1]

    monkeypatch.setattr(convert, "prepare", seen)
    for limit in (1 << 60, 0):
        monkeypatch.setattr(convert, "_LARGE_VALUES", limit)
        found, notes = converted(squares())
        assert not notes
        assert TensorProto.FLOAT16 in formats(found).values()
    small, large = (each.context.counter.passes(len(each.samples.search)) for each in made)
    assert 3.0 < large < small < 16.0


def test_inputs_and_outputs_narrow_by_default_and_calibration_data_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=FEEDS[0]["x"])
    found, _ = converted(plain(), inputs=None, calibration_data=str(tmp_path / "all.npz"), keep_io_types=False)
    assert [v.type.tensor_type.elem_type for v in (*found.graph.input, *found.graph.output)] == [
        TensorProto.FLOAT16
    ] * 2


def test_nodes_are_excluded_and_included_by_name_and_operator() -> None:
    by_name, _ = converted(plain(), nodes_to_exclude=["/bo"])
    assert formats(by_name)["/body/MatMul"] == TensorProto.FLOAT
    by_operator, _ = converted(plain(), op_types_to_exclude=["MatMul"])
    assert formats(by_operator)["/body/MatMul"] == TensorProto.FLOAT
    both, notes = converted(plain(), op_types_to_exclude=["MatMul", "Conv"], nodes_to_include=["/body/.*", "head"])
    assert formats(both)["/body/MatMul"] == TensorProto.FLOAT16
    assert [(each.kind, each.subject, each.values["given"]) for each in notes] == [
        (NoteKind.OPTION_FITS_NONE, "nodes_to_include", "head"),
        (NoteKind.OPTION_FITS_NONE, "op_types_to_exclude", "Conv"),
    ]


@pytest.mark.parametrize(
    ("option", "given", "kind"),
    [
        ("data_max", 1e3, NoteKind.OPTION_BY_ERROR),
        ("init_max", 1e3, NoteKind.OPTION_BY_ERROR),
        ("custom_rule", object(), NoteKind.OPTION_BY_ERROR),
        ("max_depth_of_reduction", 64, NoteKind.OPTION_BY_ERROR),
        ("init_conversion_max_bytes", 1024, NoteKind.OPTION_OF_WEIGHTS),
        ("providers", ["cuda:0", "cpu"], NoteKind.OPTION_OF_DEVICE),
        ("trt_plugins", ["libplugin.so"], NoteKind.OPTION_OF_DEVICE),
        ("trt_plugins_precision", ["Op:fp16"], NoteKind.OPTION_OF_DEVICE),
        ("opset", 19, NoteKind.OPTION_OF_OPSET),
        ("use_standalone_type_inference", True, NoteKind.OPTION_OF_TYPES),
    ],
)
def test_an_option_without_meaning_is_said_to_be_so(option: str, given: Any, kind: NoteKind) -> None:
    _, notes = converted(plain(), **{option: given})
    assert [(each.kind, each.subject) for each in notes] == [(kind, option)]


def test_bf16_is_said_to_be_both() -> None:
    found, notes = converted(squares(), low_precision_type="bf16")
    assert [each.kind for each in notes] == [NoteKind.CONVERTED_TO_BOTH]
    assert TensorProto.FLOAT16 in formats(found).values()


def test_a_tolerance_that_is_missed_and_inputs_that_are_made_up_are_said() -> None:
    with told() as notes:
        halfwise.convert(plain(), inputs=[{"x": 1e3 * feed["x"]} for feed in FEEDS])
    assert NoteKind.CONVERTED_MISSES in {each.kind for each in notes}
    with told() as notes:
        halfwise.convert(plain())
    assert [each.kind for each in notes] == [NoteKind.SYNTHETIC]


def test_a_search_that_ends_early_names_no_option_that_a_conversion_has_not() -> None:
    with told() as notes:
        halfwise.convert(rounded(), inputs=FEEDS, tolerance="y:rel_l2<=0.0006")
    (short,) = (each for each in notes if each.kind is NoteKind.CONVERTED_IN_SHORT)
    assert "--" not in say(short) and "12 model runs" in say(short)
    assert NoteKind.RUNS_SPENT not in {each.kind for each in notes}


@pytest.mark.parametrize(
    "options", [{"low_precision_type": "int8"}, {"calibration_data": "x.npz"}, {"nodes_to_exclude": ["("]}]
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        halfwise.convert(plain(), inputs=FEEDS, **options)
