"""What was measured on a GPU: the data are well-formed, and the page that shows them is made from them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from benchmarks.fidelity import MODES, error_of
from benchmarks.gpu.autocast import filled, without_weights
from benchmarks.gpu.gaps import DATA, ratios, worst
from benchmarks.gpu.missing import MISSING
from benchmarks.gpu.operators import EQUAL, distance, is_proven
from benchmarks.gpu.recurrent import LAYERS
from benchmarks.gpu.report import PAGE, page
from benchmarks.gpu.spread import MODULE, bound, excesses, left_out, module
from halfwise.emulation.probes import FORMS
from halfwise.emulation.profiles import PROFILES


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


def test_every_recurrent_layer_was_judged(data: dict[str, Any]) -> None:
    rows = data["recurrent"]["layers"]
    assert [row["name"] for row in rows] == [layer.name for layer in LAYERS]
    others = [row["profile"] for row in rows if not row["probe"] and row["steps"] == 1]
    assert sum(share >= EQUAL for share in others) >= 0.98 * len(others)
    assert np.mean([row["profile"] for row in rows]) > 0.98
    assert np.mean([row["strict"] for row in rows]) < 0.5


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


def test_the_profiles_spreads_are_what_the_data_say(data: dict[str, Any]) -> None:
    assert MODULE.read_text(encoding="utf-8") == module(data["fidelity"]["models"]), (
        "run python -m benchmarks.gpu.spread"
    )


def test_a_spread_covers_one_more_model_at_nineteen_in_twenty() -> None:
    assert bound([]) == 0.0
    assert bound([0.01, 0.031, 0.02]) == 0.04  # too few to say: the largest, in whole percent, rounded up
    assert bound([0.5, *[0.01] * 38]) == 0.01  # of 39 the one in place 38
    assert bound([0.5, *[0.01] * 37]) == 0.5
    assert bound([0.07]) == 0.07


def test_models_with_loose_operators_count_by_themselves() -> None:
    def entry(measured: float, *loose: str) -> dict[str, Any]:
        errors = {"y": {"rel_l2": 0.01}}
        row = {"predicted": {"ort-cuda": [errors]}, "measured": {"fused": [{"y": {"rel_l2": measured}}]}}
        return {"loose": list(loose), "versions": {"fp16": row}}

    models = {"a": entry(0.0105), "b": entry(0.009), "c": entry(0.02, "GRU"), "d": entry(5e-5)}
    assert excesses(models, "fused", loose=False) == {"a": pytest.approx(0.05), "b": 0.0}
    assert excesses(models, "fused", loose=True) == {"c": pytest.approx(1.0)}
    assert left_out(models, "fused") == (1, 2)


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
