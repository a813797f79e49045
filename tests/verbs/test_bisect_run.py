"""Bisecting typed models on a backend that hides culprits: names, files, interruptions, failures, and what is said."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from onnx import TensorProto

from halfwise.backends import BackendFailure, BackendOptions, BackendRecord, BackendRun, backend_named
from halfwise.core.errors import InputError
from halfwise.core.notes import NoteKind
from halfwise.core.user_metric import load_metric
from halfwise.precision.plan import read_plan
from halfwise.verbs.bisect.asked import JOURNAL
from halfwise.verbs.bisect.result import BisectResult
from halfwise.verbs.bisect.run import bisect
from tests.models.build import model, node, value, weight
from tests.support.command_line import CommandLine, Ended
from tests.support.messages import kinds

LENGTH = 24
INPUTS = [{"x": np.linspace(-1, 1, 8, dtype=np.float32) * scale} for scale in (1.0, 0.5)]


def chain(length: int = LENGTH) -> onnx.ModelProto:
    """Each node adds a little of the input to what came before: n_t0, n_t1, ..."""
    nodes, before = [], "x"
    for index in range(length):
        after = "y" if index == length - 1 else f"t{index}"
        nodes.append(node("Mul" if index % 2 else "Add", f"{before} w", after, name=f"n_t{index}"))
        before = after
    return model(nodes, [value("x", shape=(8,))], [value("y", shape=(8,))], [weight("w", np.full(8, 0.5, np.float32))])


def narrow_nodes(path: Path) -> set[str]:
    """The nodes of a typed model that give FP16."""
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*proto.graph.value_info, *proto.graph.output)}
    return {n.name for n in proto.graph.node if n.op_type != "Cast" and kinds.get(n.output[0]) == TensorProto.FLOAT16}


@dataclass
class Fake:
    """Right, but for the error it adds where `bad` says so of the nodes that are FP16; `before` is called first."""

    bad: Callable[[set[str]], bool]
    before: Callable[[int, set[str]], None] = lambda build, narrow: None
    device: str = "a device"
    runs: int = 0
    name: str = "fake"
    cautions: tuple[str, ...] = ()
    seen: list[set[str]] = field(default_factory=list)

    def run(self, model: Path, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> BackendRun:
        self.runs += 1
        narrow = narrow_nodes(model)
        self.seen.append(narrow)
        self.before(self.runs, narrow)
        done = backend_named("ort-cpu").run(model, feeds)
        error = 1.0 if self.bad(narrow) else 0.0
        outputs = tuple({name: array + error for name, array in each.items()} for each in done.outputs)
        return BackendRun(outputs, BackendRecord("fake", "Fake", "1", device=self.device))


def hiding(*culprits: str) -> Callable[[set[str]], bool]:
    return lambda narrow: bool(narrow & set(culprits))


def named(result: BisectResult) -> tuple[str, ...]:
    return tuple(culprit.name for culprit in result.culprits)


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


def test_a_step_that_took_the_process_down_twice_is_a_build_that_fails(tmp_path: Path) -> None:
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
    assert result.steps[0].why == "2 attempts ended the whole process"


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


def test_answers_of_two_devices_are_not_mixed(tmp_path: Path) -> None:
    def interrupt(build: int, narrow: set[str]) -> None:
        if build == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bisect(chain(), Fake(hiding("n_t5"), interrupt), INPUTS, out=tmp_path)
    with pytest.raises(InputError, match=r"ran on fake \(Fake 1 on a device\).* and this is .*another device.*--out"):
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


def test_outputs_that_the_backend_does_not_give_are_named() -> None:
    class Silent(Fake):
        def run(self, model: Path, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> BackendRun:
            return BackendRun(tuple({} for _ in feeds), BackendRecord("fake", "Fake", "1"))

    with pytest.raises(InputError, match="the backend gives no output 'y', which the model has"):
        bisect(chain(), Silent(hiding()), INPUTS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": None}, "bisect needs a backend to run the model, or a command that judges it"),
        ({"backend": "saved:x.npz"}, "saved:x.npz: saved outputs are of one model; bisect has to build others"),
        ({"backend": "gpu"}, "there is no backend 'gpu'; there are ort-cpu, ort-cuda"),
        ({"backend": None, "check": "  "}, "--check: the command is empty"),
        ({"backend": None, "check": "a 'b"}, '--check "a \'b": No closing quotation'),
        ({"backend": None, "check": "/nowhere/judge"}, "--check: cannot start /nowhere/judge: No such file"),
    ],
)
def test_bad_usage_is_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        bisect(chain(), inputs=INPUTS, **arguments)
    assert message in str(error.value)


# -- the user's own judge ---------------------------------------------------------------------------------------------

JUDGE = """
import os, sys
import numpy as np, onnx
model, outputs = sys.argv[1], (sys.argv[2:] or [None])[0]
if outputs:
    got = np.load(os.path.join(outputs, "1.npz"))["y"]
    wanted = np.load(os.path.join(os.environ["HALFWISE_REFERENCE"], "1.npz"))["y"]
    assert got.shape == wanted.shape == (8,)
print("looking")
inner = [n for n in onnx.load(model).graph.node if n.name == "n_t7"][0]
weights = {t.name: t.data_type for t in onnx.load(model).graph.initializer}
sys.exit(CODE if weights[inner.input[1]] == 10 else 0)
"""


@pytest.fixture
def judge(tmp_path: Path) -> Callable[[str], str]:
    def write(code: str) -> str:
        path = tmp_path / "judge.py"
        path.write_text(JUDGE.replace("CODE", code))
        return f"{sys.executable} {path}"

    return write


@pytest.mark.parametrize("backend", [None, "ort-cpu"])
def test_the_users_program_judges(judge: Callable[[str], str], backend: str | None) -> None:
    result = bisect(chain(8), backend, INPUTS, check=judge("1"))
    assert named(result) == ("n_t7",)
    assert result.tolerance is None
    assert {step.ratio for step in result.steps} == {None}


def test_the_users_program_may_not_know(judge: Callable[[str], str]) -> None:
    result = bisect(chain(8), None, INPUTS, check=judge("125"))
    assert (result.ending, named(result), result.unbuildable) == ("found", (), ("n_t7",))


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    monkeypatch.chdir(tmp_path)
    onnx.save(chain(), "chain.onnx")
    np.savez("in.npz", **INPUTS[0])
    return CommandLine(monkeypatch, capsys)


def fake_on_the_command_line(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    monkeypatch.setattr(sys.modules["halfwise.verbs.bisect.run"], "backend_named", lambda name, options: fake)


def test_the_command_names_the_culprits_and_ends_with_1(
    cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5", "n_t6", "n_t20")))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 1
    assert "3 nodes in 2 regions have to be FP32 on fake (Fake 1 on a device) (24 nodes, " in ended.out
    lines = [line.split()[:3] for line in ended.out.splitlines()]
    assert ["n_t5", "Mul", "1"] in lines
    assert ["n_t6", "Add", "1"] in lines
    assert ["n_t20", "Add", "2"] in lines
    assert "  all FP16: bad, " in ended.out
    assert "  all FP32: good, " in ended.out
    assert Path("chain.bisect/chain.bisect.onnx").exists()


def test_every_build_is_listed_on_request(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5")))
    words = ("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    count = re.compile(r"^  (all FP|\d+ of 24 nodes in FP16: (good|bad))", re.MULTILINE)
    short, full = cli(*words, "--out", "a"), cli(*words, "--out", "b", "--full")
    builds = int(re.search(r"^(\d+) builds?: ", full.out, re.MULTILINE)[1])  # type: ignore[index]
    assert len(count.findall(short.out)) == 2 < len(count.findall(full.out)) == builds


def test_the_document(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5")))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz", "--out", "there", "--json")
    document = ended.document
    assert (ended.code, document["schema"], document["status"]) == (1, "halfwise.bisect/1", "found")
    assert document["regions"] == [["n_t5"]]
    assert document["culprits"][0]["name"] == "n_t5"
    assert document["builds"]["total"] == len(document["steps"])
    assert document["steps"][0] == {
        "what": "all FP16", "fp16": 24, "of": 24, "answer": "bad", "load": document["steps"][0]["load"],
        "why": "", "resumed": False,
    }  # fmt: skip
    assert document["backend"]["device"] == "a device"
    assert document["artifacts"]["plan"] == "there/chain.bisect.plan.json"


def test_onnx_runtime_on_the_cpu_says_that_it_proves_little(cli: Callable[..., Ended]) -> None:
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cpu", "--inputs", "in.npz")
    assert ended.code == 0
    assert ended.out.startswith(
        "Nothing to find: the model with every node that can be FP16 in FP16 is good on ort-cpu"
    )
    assert "computes FP16 in FP32 and drops roundings between nodes" in ended.out
    assert not Path("chain.bisect").exists()


def test_a_missing_backend_is_exit_code_3_and_leaves_nothing(cli: Callable[..., Ended]) -> None:
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 3
    assert "has no CUDAExecutionProvider" in ended.told
    assert "pip install 'halfwise[gpu]'" in ended.told
    assert not Path("chain.bisect").exists()


def test_wrong_in_fp32_too_on_the_command_line(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_on_the_command_line(monkeypatch, Fake(lambda narrow: True))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 1
    assert ended.out.startswith("Precision is not the reason: the all-FP32 model is wrong on fake")


def test_an_fp32_model_that_cannot_be_built(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(build: int, narrow: set[str]) -> None:
        raise BackendFailure("the operator is not supported")

    fake_on_the_command_line(monkeypatch, Fake(hiding(), fail))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 1
    assert ended.out.startswith("The all-FP32 model cannot be built on fake: the operator is not supported")


def test_ctrl_c_says_how_to_go_on(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(build: int, narrow: set[str]) -> None:
        if build == 3:
            raise KeyboardInterrupt

    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5"), interrupt))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 130
    assert ended.told.endswith(f"to resume from chain.bisect/{JOURNAL}")
    fake_on_the_command_line(monkeypatch, Fake(hiding("n_t5")))
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--inputs", "in.npz")
    assert ended.code == 1
    assert "2 of them in an earlier run" in ended.out


def test_a_judge_that_breaks_down_is_no_answer(cli: Callable[..., Ended], judge: Callable[[str], str]) -> None:
    ended = cli("bisect", "chain.onnx", "--check", judge("77"), "--inputs", "in.npz")
    assert ended.code == 2
    assert "ended with exit code 77; 0 means good, 1 bad, 125 cannot tell" in ended.told


def test_odd_options_are_one_line(cli: Callable[..., Ended]) -> None:
    ended = cli("bisect", "chain.onnx", "--backend", "ort-cpu", "--optimize", "much")
    assert (ended.code, ended.told) == (2, "halfwise: --optimize much: write one of disable, basic, extended, all")


def test_options_reach_the_backend(cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def make(name: str, options: BackendOptions) -> Fake:
        given.append((name, options))
        return Fake(hiding())

    monkeypatch.setattr(sys.modules["halfwise.verbs.bisect.run"], "backend_named", make)
    cli("bisect", "chain.onnx", "--backend", "ort-cuda", "--gpu", "1", "--tf32", "--optimize", "disable",
        "--io-binding", "--time-limit", "9", "--inputs", "in.npz")  # fmt: skip
    assert given == [("ort-cuda", BackendOptions(1, True, "disable", True, 9.0))]
