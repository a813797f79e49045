"""The plan: what is written is read back, a hand-written one will do, and one for another model is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfwise.core.errors import InputError
from halfwise.core.formats import FORMATS, Format
from halfwise.core.notes import Note, NoteKind
from halfwise.core.reasons import Reason
from halfwise.core.tolerance import Bound, Tolerance
from halfwise.model.fingerprint import graph_sha256
from halfwise.model.model import load
from halfwise.precision.plan import Plan, PlannedNode, read_plan
from tests.models.zoo import SHAPES
from tests.support.says import Says

_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
_numbers = st.floats(0, allow_nan=False, allow_infinity=False)
_nodes = st.builds(
    PlannedNode,
    _names,
    st.text(max_size=8),
    st.sampled_from(list(FORMATS.values())),
    st.sampled_from(list(Reason)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30).map(
        lambda text: (Note.of(NoteKind.AS_STATED, text=text),)
    ),
    st.dictionaries(_names, _numbers, max_size=3),
)
_plans = st.builds(
    Plan,
    model=_names,
    sha256=st.text("0123456789abcdef", max_size=64),
    node_count=st.integers(0, 10**6),
    target=st.sampled_from(["onnx", "trt-10.9@t4"]),
    profile=st.sampled_from(["strict", "ort-cuda"]),
    tolerance=st.builds(
        lambda value: Tolerance((Bound.of("*", "rel_l2", value), Bound.of("a:b", "cosine", 0.5))),
        st.floats(0, 1e6),
    ),
    io_types=st.sampled_from([Format.FP32, Format.FP16]),
    inputs=st.sampled_from(["given", "synthetic"]),
    nodes=st.lists(_nodes, max_size=4, unique_by=lambda node: node.name).map(tuple),
)


@given(plan=_plans)
def test_the_plan_read_back_is_the_plan_written(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("plan") / "p.json"
    path.write_text(plan.text(), encoding="utf-8")
    assert read_plan(path) == plan
    assert read_plan(path).text() == plan.text()


def write(folder: Path, document: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path


def test_a_plan_by_hand_needs_names_only(tmp_path: Path) -> None:
    plan = read_plan(
        write(tmp_path, {"schema": "halfwise.plan/1", "fp32_nodes": ["a", {"name": "b", "format": "bf16"}]})
    )
    asked = (Note.of(NoteKind.IN_PLAN),)
    assert [(node.name, node.format, node.why, node.because) for node in plan.nodes] == [
        ("a", Format.FP32, Reason.WANTED, asked),
        ("b", Format.BF16, Reason.WANTED, asked),
    ]
    assert (plan.target, plan.profile, plan.io_types) == ("onnx", "strict", Format.FP32)
    assert plan.tolerance == Tolerance.default()


def test_reasons_of_older_plans_still_read(tmp_path: Path) -> None:
    nodes = [{"name": f"n{index}", "why": why} for index, why in enumerate((*Reason, "not measured alone"))]
    plan = read_plan(write(tmp_path, {"schema": "halfwise.plan/1", "fp32_nodes": nodes}))
    assert [node.why for node in plan.nodes] == [*Reason, Reason.UNPROVEN]


def test_a_reason_that_is_none_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"schema": "halfwise.plan/1", "fp32_nodes": [{"name": "a", "why": "my own"}]})
    with pytest.raises(InputError) as caught:
        read_plan(path)
    for told in (str(path), "'a'", "'my own'", *Reason):
        assert told in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        "{",
        pytest.param("[" * 100_000, id="deep"),
        "[]",
        {"schema": "halfwise.fix/1", "fp32_nodes": []},
        {"schema": "halfwise.plan/1"},
        {"fp32_nodes": "abc"},
        {"fp32_nodes": [1]},
        {"fp32_nodes": ["a", {"op": "Pow"}]},
        {"fp32_nodes": [{"name": "a", "format": "fp8"}]},
        {"fp32_nodes": [], "io_types": "int8"},
        {"fp32_nodes": [], "model": "m.onnx"},
        {"fp32_nodes": [], "model": {"nodes": "many"}},
        {"fp32_nodes": [{"name": "a", "numbers": [1]}]},
        {"fp32_nodes": [], "tolerance": {"*:wrong": 1}},
        {"fp32_nodes": ["a", {"name": "b"}, {"name": "a"}]},
        {"fp32_nodes": [], "tolerance": {}},
        {"fp32_nodes": [], "repairs": 3},
        {"fp32_nodes": [], "repairs": [{"rule": "HW402", "nodes": []}]},
        {"fp32_nodes": [], "tolerence": {"*:rel_l2": 0.01}},
        {"fp32_nodes": [{"name": "a", "formt": "bf16"}]},
        {"fp32_nodes": [], "model": {"sha": "0"}},
        {"fp32_nodes": [], "rollout": {"steps": 2, "feedback": {}, "stride": 2}},
        {"fp32_nodes": [], "x" * 9000: 1},
        {"fp32_nodes": [{"name": "a", "numbers": {"max_abs": float("nan")}}]},
        {"fp32_nodes": [{"name": "a", "numbers": {"max_abs": float("inf")}}]},
    ],
)
def test_what_is_no_plan_is_one_line(document: Any, says: Says, tmp_path: Path) -> None:
    if isinstance(document, dict):
        document = {"schema": "halfwise.plan/1", **document}
    path = write(tmp_path, document)
    with pytest.raises(InputError) as refused:
        read_plan(path)
    says(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("version", ["2", "99999999999999999999", "", "1.1"])
def test_a_plan_of_another_version_is_told_as_one(version: str, says: Says, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"schema": f"halfwise.plan/{version}", "fp32_nodes": []}))
    with says.raises(InputError):
        read_plan(path)


def test_a_plan_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such plan"):
        read_plan(tmp_path / "none.json")
    with pytest.raises(InputError, match="the plan cannot be read"):
        read_plan(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"schema": "\xff"}')
    with pytest.raises(InputError, match="is not valid JSON"):
        read_plan(tmp_path / "latin.json")


def plan_for(sha256: str, node_count: int, *names: str) -> Plan:
    nodes = tuple(
        PlannedNode(name, "Pow", Format.FP32, Reason.OVERFLOW, (Note.of(NoteKind.BREAKS_INSIDE, format="FP16"),))
        for name in names
    )
    return Plan("m.onnx", sha256, node_count, "onnx", "strict", Tolerance.default(), Format.FP32, "given", nodes)


def test_a_plan_for_another_model_is_refused_with_the_difference(says: Says) -> None:
    model = load(SHAPES["layer_norm_overflow"]().model)
    known = next(iter(model.node_by_name))
    for plan in (plan_for(model.sha256, 1, "whatever"), plan_for("", 0, known)):
        assert plan.fitted(model) is plan
    cases = [
        plan_for("ab" * 32, model.stored_nodes, known, "/gone"),
        plan_for("ab" * 32, 9, *"abcd"),
        plan_for("ab" * 32, 99, known),
        plan_for("ab" * 32, model.stored_nodes, known),
        replace(plan_for("ab" * 32, model.stored_nodes, known), graph_sha256="cd" * 32),
        plan_for("", 0, known, "/gone"),
    ]
    for plan in cases:
        with says.raises(InputError):
            plan.fitted(model)


def test_a_plan_fits_the_same_graph_with_other_weights_and_then_names_none() -> None:
    model = load(SHAPES["layer_norm_overflow"]().model)
    plan = replace(plan_for("ab" * 32, 99, "gone"), graph_sha256=graph_sha256(model), data_sha256="cd" * 32)
    assert plan.fitted(model) == replace(plan, sha256="", data_sha256="")
