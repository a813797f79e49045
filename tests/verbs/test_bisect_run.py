"""Bisecting typed models on a backend that hides culprits: names, files, interruptions, failures, and what is said."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from halfwise.backends import BackendFailure, BackendRecord, BackendRun
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.core.user_metric import load_metric
from halfwise.precision.plan import read_plan
from halfwise.verbs.bisect.asked import JOURNAL
from halfwise.verbs.bisect.run import bisect
from tests.models.build import weight
from tests.support.bisections import INPUTS, LENGTH, Fake, chain, hiding, named, narrow_nodes
from tests.support.messages import kinds, only
from tests.support.says import Says


def test_the_answer_is_onnx_node_names_in_a_typed_model_and_a_plan(tmp_path: Path) -> None:
    backend = Fake(hiding("n_t0", "n_t11", "n_t12", "n_t23"))
    result = bisect(chain(), backend, INPUTS, out=tmp_path)
    assert result.ending == "found"
    assert named(result) == ("n_t0", "n_t11", "n_t12", "n_t23")
    assert result.regions == (("n_t0",), ("n_t11", "n_t12"), ("n_t23",))
    assert (result.unbuildable, result.unproven, result.sum) == ((), (), False)
    assert result.record is not None
    assert result.record.device == "a device"
    everything = {f"n_t{index}" for index in range(LENGTH)}
    assert backend.seen[0] == everything
    assert backend.seen[1] == set()
    assert result.onnx is not None
    assert result.plan is not None
    assert narrow_nodes(result.onnx) == everything - {"n_t0", "n_t11", "n_t12", "n_t23"}
    assert [planned.name for planned in read_plan(result.plan).nodes] == ["n_t0", "n_t11", "n_t12", "n_t23"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.bisect.onnx", "model.bisect.plan.json"]


def test_the_first_build_tells_that_nothing_is_wrong(tmp_path: Path) -> None:
    backend = Fake(hiding())
    result = bisect(chain(), backend, INPUTS, out=tmp_path)
    assert (result.ending, result.good, result.culprits, backend.runs) == ("none", True, (), 1)
    assert list(tmp_path.iterdir()) == []


def test_a_backend_that_is_wrong_in_fp32_too_is_said_to_be() -> None:
    backend = Fake(lambda narrow: True)
    result = bisect(chain(), backend, INPUTS)
    assert (result.ending, result.good, backend.runs) == ("control", False, 2)
    assert result.onnx is None


def test_the_error_before_and_after_was_measured_on_the_backend() -> None:
    result = bisect(chain(), Fake(hiding("n_t3")), INPUTS)
    assert result.baseline["y"].max_abs > 0.9
    assert result.fixed["y"].rel_l2 < 0.01
    assert result.emulated["y"].rel_l2 < 0.01
    tight = bisect(chain(), Fake(hiding("n_t3")), INPUTS, tolerance="rel_l2<=1e-9", builds=4)
    assert NoteKind.EMULATOR_AGREES not in kinds(tight.notes)
    assert NoteKind.EMULATOR_AGREES in kinds(result.notes)


def test_nodes_that_cannot_be_ranked_are_tried_in_the_models_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise InputError("node 'n_t0' by itself: no kernel")

    monkeypatch.setattr("halfwise.verbs.bisect.asked.ranked", refuses)
    result = bisect(chain(), Fake(hiding("n_t3")), INPUTS)
    assert [culprit.name for culprit in result.culprits] == ["n_t3"]
    assert only(result.notes, NoteKind.NOT_RANKED).values["error"].endswith("no kernel")


def test_an_interrupted_search_goes_on_with_the_same_answer_and_no_build_made_twice(tmp_path: Path) -> None:
    whole = Fake(hiding("n_t5", "n_t17"))
    expected = bisect(chain(), whole, INPUTS)

    def interrupt(build: int, narrow: set[str]) -> None:
        if build == 5:
            raise KeyboardInterrupt

    first = Fake(hiding("n_t5", "n_t17"), interrupt)
    with pytest.raises(KeyboardInterrupt):
        bisect(chain(), first, INPUTS, out=tmp_path)
    assert (tmp_path / JOURNAL).exists()
    second = Fake(hiding("n_t5", "n_t17"))
    result = bisect(chain(), second, INPUTS, out=tmp_path)
    assert named(result) == named(expected) == ("n_t5", "n_t17")
    assert second.runs == whole.runs - 4
    assert result.builds()["resumed"] == 4
    assert [replace(step, resumed=False) for step in result.steps] == list(expected.steps)
    assert result.baseline == expected.baseline
    assert not (tmp_path / JOURNAL).exists()


def test_each_step_is_recorded_before_it_runs(tmp_path: Path) -> None:
    states = []

    def look(build: int, narrow: set[str]) -> None:
        entries = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()[1:]]
        states.append([entry["value"]["state"] for entry in entries if isinstance(entry["value"], dict)])

    bisect(chain(8), Fake(hiding("n_t3"), look), INPUTS, out=tmp_path)
    assert states[0] == ["started"]
    assert states[1] == ["started", "bad", "started"]
    assert all(each[-1] == "started" for each in states)


def test_a_step_that_took_the_process_down_twice_is_a_build_that_fails(tmp_path: Path, says: Says) -> None:
    class Killed(BaseException):
        pass

    def die(build: int, narrow: set[str]) -> None:
        if len(narrow) == LENGTH:
            raise Killed

    journal = tmp_path / JOURNAL
    for _ in range(2):
        with pytest.raises(Killed):
            bisect(chain(), Fake(hiding("n_t5"), die), INPUTS, out=tmp_path)
        # What a real end of the process would leave: the step begun, and nothing after it.
        lines = journal.read_text().splitlines()
        assert json.loads(lines[-1])["value"]["state"] == "interrupted"
        journal.write_text("\n".join(lines[:-1]))
    result = bisect(chain(), Fake(hiding("n_t5"), die), INPUTS, out=tmp_path)
    assert named(result) == ("n_t5",)
    assert result.steps[0].answer.value == "failed"
    says(result.steps[0].why)


def test_a_build_that_fails_is_a_third_answer() -> None:
    def fail(build: int, narrow: set[str]) -> None:
        if build in (3, 5, 8):
            raise BackendFailure("no kernel for this pattern")

    result = bisect(chain(), Fake(hiding("n_t2", "n_t20"), fail), INPUTS)
    assert named(result) == ("n_t2", "n_t20")
    assert result.builds()["failed"] == 3
    assert {step.why for step in result.steps if step.answer.value == "failed"} == {"no kernel for this pattern"}


def test_a_plan_is_where_the_search_starts(tmp_path: Path) -> None:
    first = bisect(chain(), Fake(hiding("n_t4")), INPUTS, out=tmp_path)
    assert first.plan is not None
    backend = Fake(hiding("n_t4", "n_t15"))
    result = bisect(chain(), backend, INPUTS, plan=read_plan(first.plan), out=tmp_path)
    assert named(result) == ("n_t15",)
    assert result.kept == ("n_t4",)
    assert all("n_t4" not in narrow for narrow in backend.seen)
    assert result.plan is not None
    assert {planned.name for planned in read_plan(result.plan).nodes} == {"n_t4", "n_t15"}


def test_a_plan_of_other_weights_is_where_it_starts_too(tmp_path: Path) -> None:
    first = bisect(chain(), Fake(hiding("n_t4")), INPUTS, out=tmp_path)
    assert first.plan is not None
    again = chain()
    again.graph.initializer[0].CopyFrom(weight("w", np.full(8, 0.75, np.float32)))
    result = bisect(again, Fake(hiding("n_t4", "n_t15")), INPUTS, plan=read_plan(first.plan), out=tmp_path)
    assert (result.kept, named(result)) == (("n_t4",), ("n_t15",))


def test_answers_of_two_devices_are_not_mixed(tmp_path: Path, says: Says) -> None:
    def interrupt(build: int, narrow: set[str]) -> None:
        if build == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bisect(chain(), Fake(hiding("n_t5"), interrupt), INPUTS, out=tmp_path)
    with says.raises(InputError):
        bisect(chain(), Fake(hiding("n_t5"), device="another device"), INPUTS, out=tmp_path)


def test_another_question_does_not_resume_this_one(tmp_path: Path) -> None:
    def interrupt(build: int, narrow: set[str]) -> None:
        if build == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bisect(chain(), Fake(hiding("n_t5"), interrupt), INPUTS, out=tmp_path)
    result = bisect(chain(), Fake(hiding("n_t5")), INPUTS, out=tmp_path, tolerance="max_abs<=0.5")
    assert (named(result), result.builds()["resumed"]) == (("n_t5",), 0)


def largest(reference: Mapping[str, Any], other: Mapping[str, Any], factor: float = 1.0) -> float:
    return factor * max(float(np.abs(reference[name] - other[name]).max()) for name in reference)


def test_a_metric_that_sees_nothing_is_told() -> None:
    result = bisect(chain(), Fake(hiding("n_t5")), INPUTS, metric=lambda a, b: 0.0, tolerance="metric<=0.5")
    assert not named(result) and NoteKind.METRIC_BLIND in [note.kind for note in result.notes]
    seeing = bisect(chain(), Fake(hiding("n_t5")), INPUTS, metric=largest, tolerance="metric<=0.5")
    assert NoteKind.METRIC_BLIND not in [note.kind for note in seeing.notes]


def interrupted(out: Path, metric: Any) -> None:
    def interrupt(build: int, narrow: set[str]) -> None:
        if build == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bisect(chain(), Fake(hiding("n_t5"), interrupt), INPUTS, out=out, metric=metric, tolerance="metric<=0.5")


@pytest.mark.parametrize(("factor", "resumed"), [(1.0, 3), (2.0, 0)])
def test_a_metric_with_its_arguments_is_what_an_earlier_search_asked(
    factor: float, resumed: int, tmp_path: Path
) -> None:
    interrupted(tmp_path, partial(largest, factor=1.0))
    metric = partial(largest, factor=factor)
    result = bisect(chain(), Fake(hiding("n_t5")), INPUTS, out=tmp_path, metric=metric, tolerance="metric<=0.5")
    assert (named(result), result.builds()["resumed"]) == (("n_t5",), resumed)


def test_a_metric_whose_source_has_changed_does_not_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = (
        "def error(reference, other):\n    return max(float(abs(reference[k] - other[k]).max()) for k in reference)\n"
    )
    for text, resumed in [(source, None), (source, 3), (source.replace("max(", "1 * max(", 1), 0)]:
        Path("hw_metric_that_changes.py").write_text(text)
        sys.modules.pop("hw_metric_that_changes", None)
        importlib.invalidate_caches()
        metric = load_metric("hw_metric_that_changes:error")
        if resumed is not None:
            result = bisect(chain(), Fake(hiding("n_t5")), INPUTS, out=tmp_path, metric=metric, tolerance="metric<=0.5")
            assert (named(result), result.builds()["resumed"]) == (("n_t5",), resumed)
        interrupted(tmp_path, metric)
    sys.modules.pop("hw_metric_that_changes")


def test_a_limit_of_builds_says_what_is_proven_by_then(tmp_path: Path) -> None:
    result = bisect(chain(), Fake(hiding("n_t2", "n_t9", "n_t20")), INPUTS, builds=7, out=tmp_path)
    assert (result.ending, len(result.steps)) == ("budget", 7)
    assert {"n_t2", "n_t9", "n_t20"} <= {*named(result), *result.unproven}
    assert result.onnx is not None
    assert not narrow_nodes(result.onnx) & {"n_t2", "n_t9", "n_t20"}


def test_outputs_that_the_backend_does_not_give_are_named(says: Says) -> None:
    class Silent(Fake):
        def run(self, model: Path, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> BackendRun:
            return BackendRun(tuple({} for _ in feeds), BackendRecord("fake", "Fake", "1"))

    with says.raises(InputError):
        bisect(chain(), Silent(hiding()), INPUTS)


@pytest.mark.parametrize(
    "arguments",
    [
        {"backend": None},
        {"backend": "saved:x.npz"},
        {"backend": "gpu"},
        {"backend": None, "check": "  "},
        {"backend": None, "check": "a 'b"},
        {"backend": None, "check": "/nowhere/judge"},
    ],
)
def test_bad_usage_is_one_line(arguments: dict[str, Any], says: Says) -> None:
    with pytest.raises(InputError) as error:
        bisect(chain(), inputs=INPUTS, **arguments)
    says(error.value)
