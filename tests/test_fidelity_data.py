"""What was measured on a GPU: the data are well-formed, and the page that shows them is made from them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from benchmarks.fidelity import MODES, error_of
from benchmarks.gpu.autocast import filled, without_weights
from benchmarks.gpu.forms import FORMS
from benchmarks.gpu.missing import MISSING
from benchmarks.gpu.operators import distance, is_proven
from benchmarks.gpu.report import DATA, PAGE, page, ratios, worst
from halfwise.profiles import PROFILES


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in DATA.glob("*.json")}


def test_the_page_is_made_from_the_data() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m benchmarks.gpu.report"


@pytest.mark.parametrize("name", ["operators", "fidelity", "speed"])
def test_every_measurement_says_where_it_was_made(data: dict[str, Any], name: str) -> None:
    machine = data[name]["machine"]
    assert data[name]["schema"] == f"halfwise.{name}/1"
    assert {"gpu", "driver", "onnxruntime", "cuda", "cudnn", "date"} <= machine.keys()
    assert "NVIDIA" in machine["gpu"]


def test_every_operator_form_was_judged(data: dict[str, Any]) -> None:
    rows = data["operators"]["forms"]
    assert [row["name"] for row in rows] == [form.name for form in FORMS]
    assert len({row["name"] for row in rows}) == len(rows)
    assert all(0 <= row[key]["equal"] <= 1 for row in rows for key in ("strict", "profile"))
    assert sum(is_proven(row["profile"]) for row in rows) >= 200


def test_every_model_was_measured_and_predicted_on_the_same_inputs(data: dict[str, Any]) -> None:
    models = data["fidelity"]["models"]
    assert len(models) >= 16
    for entry in models.values():
        for version in entry["versions"].values():
            assert version["measured"].keys() == MODES.keys()
            assert version["predicted"].keys() <= PROFILES.keys()
            lists = [*version["measured"].values(), *version["predicted"].values()]
            assert {len(errors) for errors in lists} == {8}
            assert len({tuple(errors[0]) for errors in lists}) == 1


def test_no_version_that_misses_on_the_gpu_was_called_fine(data: dict[str, Any]) -> None:
    for name, entry in data["fidelity"]["models"].items():
        for label, version in entry["versions"].items():
            for mode, profile in MODES.items():
                fine = worst(version["predicted"][profile]) <= 0.01
                assert not (fine and worst(version["measured"][mode]) > 0.01), (name, label, mode)


def test_a_ratio_is_of_root_mean_squares_over_finite_inputs() -> None:
    predicted = [{"y": {"rel_l2": 3.0}}, {"y": {"rel_l2": 4.0}}, {"y": {"rel_l2": math.inf}}]
    measured = [{"y": {"rel_l2": 5.0}}, {"y": {"rel_l2": 0.0}}, {"y": {"rel_l2": 1.0}}]
    version = {"predicted": {"ort-cuda": predicted}, "measured": {"fused": measured}}
    assert ratios(version, "fused") == {"y": pytest.approx(1.0)}


def test_errors_of_integers_and_of_other_shapes_are_told_apart() -> None:
    ints, floats = np.array([1, 2, 3, 4]), np.array([3.0, 4.0], np.float32)
    assert error_of(ints, np.array([1, 2, 3, 5])) == {"equal": 0.75}
    assert error_of(floats, np.array([3.0, 4.5], np.float32))["rel_l2"] == pytest.approx(0.1)
    assert error_of(floats, floats[:1]) == {"rel_l2": math.inf, "nonfinite": 0.0}
    assert worst([{"a": {"equal": 0.5}}]) == math.inf
    assert worst([{"a": {"rel_l2": 0.5, "nonfinite": 1.0}}]) == math.inf


def test_distance_counts_numbers_between() -> None:
    one = np.array([1.0, -0.0, np.nan, np.nan, 6e-8, np.inf], np.float16)
    other = np.array([1.0 + 2**-10, 0.0, np.nan, 1.0, -6e-8, 65504.0], np.float16)
    assert distance(one, other).tolist() == [1, 0, 0, 1 << 16, 2, 1]


def test_every_form_is_named_once_and_draws_the_same_inputs_again() -> None:
    assert len({form.name for form in FORMS}) == len(FORMS)
    form = next(form for form in FORMS if form.name == "gemm, bias")
    assert np.array_equal(form.feed()["x0"], form.feed()["x0"])
    assert np.array_equal(form.feed()["x0"], form.feed()["x0"].astype(np.float16))


def test_every_network_that_misses_was_timed_in_all_versions(data: dict[str, Any]) -> None:
    rows = data["speed"]["rows"]
    for name in MISSING:
        for key in (name, f"{name}@32"):
            assert {"fp32", "fp32-tf32", "fp16", "autocast", "fixed", "repaired", "fp16-again"} <= rows[key].keys()
            for row in rows[key].values():
                assert 0 < row["graph"]["p10_ms"] <= row["graph"]["median_ms"] <= row["graph"]["p90_ms"]
            assert max(rows[key][version]["error"] for version in ("fixed", "repaired")) <= 0.01
            again = rows[key]["fp16-again"]["graph"]["median_ms"] / rows[key]["fp16"]["graph"]["median_ms"]
            assert abs(again - 1) < 0.005


def test_autocast_s_file_is_kept_without_weights_and_filled_again() -> None:
    exact = MISSING["segmenter"]()
    frame = without_weights(exact.model, exact.model)
    assert frame.ByteSize() < 0.01 * exact.model.ByteSize()
    assert [each.SerializeToString() for each in filled(frame, exact.model).graph.initializer] == [
        each.SerializeToString() for each in exact.model.graph.initializer
    ]
