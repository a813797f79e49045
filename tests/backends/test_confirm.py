"""Predicted against measured on a real backend: gaps, their likely reasons, and what `fix` makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from halfwise.backends import BackendFailure, BackendOptions, BackendRecord, BackendRun
from halfwise.backends.backend import Traits
from halfwise.backends.confirm import Confirmation, OutputGap, allowed_ratio, confirm, probe
from halfwise.backends.saved import SavedBackend
from halfwise.core.english import say
from halfwise.core.errors import InputError, MissingBackend
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance import Tolerance
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.model.model import Model, load
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.precision.typed_onnx import write_typed
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight
from tests.models.zoo import SHAPES
from tests.support.command_line import CommandLine, save
from tests.support.says import Says

Feeds = Sequence[Mapping[str, NDArray[Any]]]
RNG = np.random.default_rng(0)
FEEDS = [{"x": RNG.standard_normal((4, 64)).astype(np.float32)} for _ in range(4)]
LOOSE = Tolerance.default()
ONCE = BackendOptions()
REWRITES = Traits(rewrites_graph=True)
RECORD = BackendRecord("ort-cuda", "ONNX Runtime", "1", device="a GPU", optimization="all", tf32=False)


@pytest.fixture(scope="module")
def plain() -> Model:
    nodes = [node("MatMul", "x w", "h"), node("Tanh", "h", "t"), node("MatMul", "t v", "y")]
    weights = [weight("w", RNG.standard_normal((64, 64)).astype(np.float32) / 8),
               weight("v", RNG.standard_normal((64, 32)).astype(np.float32) / 8)]  # fmt: skip
    return load(model(nodes, [value("x", shape=(4, 64))], [value("y", shape=(4, 32))], weights))


@pytest.fixture
def typed(plain: Model, tmp_path: Path) -> Path:
    return write_typed(Assignment.all_narrow(Sites(plain)), tmp_path / "typed.onnx").path


@dataclass
class Fake:
    """Answers as the emulation does, its error times `factor`, in a way that may depend on the options."""

    factor: Callable[[BackendOptions], float] = lambda options: 1.0
    options: BackendOptions = ONCE
    record: BackendRecord = RECORD
    spoil: Callable[[NDArray[Any]], NDArray[Any]] = lambda array: array
    fails: str = ""
    name: str = "ort-cuda"
    cautions: tuple[str, ...] = ()
    traits: Traits = REWRITES
    runs: int = 0

    def run(self, model: Path, feeds: Feeds) -> BackendRun:
        self.runs += 1
        if self.fails:
            raise BackendFailure(self.fails)
        given = load(model)
        session = Emulator().session(Assignment(Sites(given), {}))
        exact = Emulator().session(Assignment(Sites(self.plain), {})) if self.plain is not None else session
        outputs = []
        for feed in map(widen_feeds, feeds):
            rounded, right = session.run(feed), exact.run(feed)
            outputs.append(
                {n: self.spoil(right[n] + self.factor(self.options) * (rounded[n] - right[n])) for n in right}
            )
        return BackendRun(tuple(outputs), self.record)

    plain: Model | None = None


def told(result: Confirmation) -> list[tuple[str, str]]:
    return [(each.rule, each.severity) for each in result.findings]


def note_of(result: Confirmation) -> Note:
    note = result.findings[0].note
    assert isinstance(note, Note)
    assert say(note) == result.findings[0].message
    return note


def cause(result: Confirmation) -> NoteKind:
    found: Note = note_of(result).values["cause"]
    return found.kind


def run(plain: Model, typed: Path, fake: Fake, tolerance: Tolerance = LOOSE) -> Confirmation:
    fake.plain = plain
    return confirm(plain, typed, FEEDS, fake, tolerance=tolerance)


def test_what_was_predicted_is_no_finding(plain: Model, typed: Path) -> None:
    result = run(plain, typed, Fake())
    assert (result.met, result.findings) == (True, ())
    gap = result.gaps["y"]
    assert gap.ratio == pytest.approx(1.0, rel=1e-3)
    assert 1e-5 < gap.predicted < 1e-2
    assert result.outputs["y"].rel_l2 == pytest.approx(gap.measured, rel=0.5)
    assert result.allowed == allowed_ratio("strict", 4)


def test_a_worse_backend_is_a_warning_while_the_tolerance_holds(plain: Model, typed: Path) -> None:
    result = run(plain, typed, Fake(lambda options: 5.0))
    assert result.met
    assert told(result) == [("HW501", "warning")]
    note = note_of(result)
    assert (note.kind, note.subject) == (NoteKind.NOT_AS_PREDICTED, "y")
    assert note.values["ratio"] == pytest.approx(5.0, rel=0.01)
    assert cause(result) is NoteKind.CAUSE_ACCUMULATOR
    assert "halfwise bisect" in result.findings[0].remedy


def test_a_worse_backend_is_an_error_where_the_tolerance_does_not_hold(plain: Model, typed: Path) -> None:
    result = run(plain, typed, Fake(lambda options: 20.0), Tolerance.parse(["rel_l2<=0.002"], {"y"}, {"y"}))
    assert not result.met
    assert told(result) == [("HW501", "error")]


def test_a_better_backend_is_information(plain: Model, typed: Path) -> None:
    result = run(plain, typed, Fake(lambda options: 0.1))
    assert told(result) == [("HW502", "info")]
    assert cause(result) is NoteKind.CAUSE_KEPT_WIDE


def test_values_that_are_not_finite_are_an_error(plain: Model, typed: Path) -> None:
    result = run(plain, typed, Fake(spoil=lambda array: np.full_like(array, np.nan)))
    assert not result.met
    assert told(result) == [("HW503", "error")]
    assert note_of(result).values["count"] in (128, 512)


def test_onnx_runtime_on_the_cpu_is_its_own_reason(plain: Model, typed: Path) -> None:
    record = BackendRecord("ort-cpu", "ONNX Runtime", "1", optimization="all")
    result = run(plain, typed, Fake(lambda options: 0.1, record=record, traits=Traits(computes_wide=True)))
    assert cause(result) is NoteKind.CAUSE_CPU_WIDE


def test_tensorrt_is_suspected_of_its_tactics(plain: Model, typed: Path) -> None:
    record = BackendRecord("tensorrt", "TensorRT", "11", device="a GPU")
    result = run(plain, typed, Fake(lambda options: 9.0, record=record, traits=Traits(picks_tactics=True)))
    assert cause(result) is NoteKind.CAUSE_TACTIC


def by_name(monkeypatch: pytest.MonkeyPatch, plain: Model, factor: Callable[[BackendOptions], float]) -> list[Fake]:
    """Backends made anew for each way of running."""
    made: list[Fake] = []

    def make(name: str, options: BackendOptions) -> Fake:
        record = BackendRecord(name, "ONNX Runtime", "1", optimization=options.optimization, tf32=options.tf32)
        made.append(Fake(factor, options, record, plain=plain))
        return made[-1]

    monkeypatch.setattr("halfwise.backends.confirm.backend_named", make)
    return made


def test_fusion_is_the_reason_where_the_gap_goes_without_it(
    monkeypatch: pytest.MonkeyPatch, plain: Model, typed: Path
) -> None:
    made = by_name(monkeypatch, plain, lambda options: 6.0 if options.optimization == "all" else 1.0)
    result = confirm(plain, typed, FEEDS, "ort-cuda", tolerance=LOOSE)
    assert cause(result) is NoteKind.CAUSE_FUSION
    assert [fake.options.optimization for fake in made] == ["all", "disable"]


def test_tf32_is_the_reason_where_the_gap_goes_without_it(
    monkeypatch: pytest.MonkeyPatch, plain: Model, typed: Path
) -> None:
    made = by_name(monkeypatch, plain, lambda options: 6.0 if options.tf32 else 1.0)
    options = BackendOptions(tf32=True)
    result = confirm(plain, typed, FEEDS, "ort-cuda", tolerance=LOOSE, options=options)
    assert cause(result) is NoteKind.CAUSE_TF32
    assert len(made) == 2  # what explains it ends the looking


def test_what_no_other_way_of_running_explains_is_the_kernels(
    monkeypatch: pytest.MonkeyPatch, plain: Model, typed: Path
) -> None:
    by_name(monkeypatch, plain, lambda options: 6.0)
    result = confirm(plain, typed, FEEDS, "ort-cuda", tolerance=LOOSE)
    assert cause(result) is NoteKind.CAUSE_ACCUMULATOR


def test_a_model_that_does_not_run_there_is_not_confirmed(plain: Model, typed: Path, says: Says) -> None:
    result = run(plain, typed, Fake(fails="no kernel for Tanh"))
    assert not result.met
    assert told(result) == [("HW504", "error")]
    says(result.findings[0].message)


def test_an_output_that_is_missing_is_named(plain: Model, typed: Path, says: Says) -> None:
    class Silent(Fake):
        def run(self, model: Path, feeds: Feeds) -> BackendRun:
            return BackendRun(tuple({} for _ in feeds), self.record)

    with says.raises(InputError):
        run(plain, typed, Silent())


@pytest.mark.parametrize(
    ("predicted", "measured", "ratio"),
    [(1e-3, 2e-3, 2.0), (0.0, 1e-6, 1.0), (0.0, 1e-3, 100.0), (1e-3, math.inf, math.inf), (math.inf, math.inf, 1.0)],
)
def test_errors_of_no_consequence_are_no_gap(predicted: float, measured: float, ratio: float) -> None:
    assert OutputGap(predicted, measured).ratio == pytest.approx(ratio)


def test_more_samples_allow_less_scatter() -> None:
    assert allowed_ratio("strict", 1) > allowed_ratio("strict", 4) > allowed_ratio("strict", 100) > 1.0
    assert allowed_ratio("ort-cuda", 4) < allowed_ratio("strict", 4)


def test_saved_outputs_cannot_confirm(says: Says) -> None:
    with says.raises(InputError):
        probe(SavedBackend(Path("x")))


# -- fix --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def zoo() -> Any:
    return SHAPES["layer_norm_overflow"]()


def test_fix_runs_its_result_on_the_backend(zoo: Any, tmp_path: Path) -> None:
    told: list[str] = []
    result = fix(zoo.model, zoo.inputs[:4], out=tmp_path, confirm="ort-cpu", notify=told.append)
    assert told[0] == "trying ort-cpu"  # a backend may take long to answer
    assert result.confirmation is not None
    assert result.good
    document = result.to_json()["confirmation"]
    assert document["status"] == "met"
    assert document["backend"]["backend"] == "ort-cpu"
    assert set(document["prediction"]) == set(document["outputs"])
    assert "confirmation" not in fix(zoo.model, zoo.inputs[:4]).to_json()


@pytest.mark.parametrize("target", ["onnx", "ort-cuda"])
def test_the_prediction_is_the_one_that_fix_made(zoo: Any, tmp_path: Path, target: str) -> None:
    """The fusions of a profile included: what was decided predicts, not what can be read from the file."""
    result = fix(zoo.model, zoo.inputs[:4], out=tmp_path, target=target, confirm="ort-cpu")
    assert result.confirmation is not None
    for name, gap in result.confirmation.gaps.items():
        assert 0.3 * result.fixed[name].rel_l2 <= gap.predicted <= 1.001 * result.fixed[name].rel_l2


def test_what_the_backend_does_not_keep_is_not_good(zoo: Any, tmp_path: Path) -> None:
    fake = Fake(spoil=lambda array: array + 1)
    result = fix(zoo.model, zoo.inputs[:4], out=tmp_path, confirm=fake)
    assert result.met
    assert not result.good
    assert result.to_json()["status"] == "not-met"


def test_a_backend_that_is_missing_is_found_out_before_the_search(zoo: Any, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(MissingBackend, match=r"has no CUDAExecutionProvider|NVIDIA"):
        fix(zoo.model, zoo.inputs[:4], out=tmp_path / "out", confirm="ort-cuda", notify=said.append)
    assert said == ["trying ort-cuda"]
    assert not (tmp_path / "out").exists()


def test_to_confirm_needs_a_folder(zoo: Any, says: Says) -> None:
    with says.raises(InputError):
        fix(zoo.model, zoo.inputs[:4], confirm="ort-cpu")


def test_the_command_line_shows_both(
    zoo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    monkeypatch.chdir(tmp_path)
    path, inputs = save(zoo, tmp_path, 4)
    cli = CommandLine(monkeypatch, capsys)
    ended = cli("fix", path, "--inputs", inputs, "--out", "out", "--confirm", "ort-cpu")
    assert ended.code == 0
    says(ended.out, "Confirmed: the tolerance")
    assert "rel_l2 predicted" in ended.out
    ended = cli("fix", path, "--inputs", inputs, "--out", "out", "--confirm", "ort-cuda")
    assert ended.code == 3
    ended = cli("fix", path, "--inputs", inputs, "--out", "out", "--device", "tpu")
    assert ended.code == 2
    says(ended.told)
    ended = cli("fix", path, "--inputs", inputs, "--out", "out", "--device", "cuda")
    assert ended.code == 3
    assert "--device cuda: ONNX Runtime" in ended.told or "NVIDIA" in ended.told


def test_verify_runs_the_second_model_for_real(
    zoo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: Says
) -> None:
    monkeypatch.chdir(tmp_path)
    path, inputs = save(zoo, tmp_path, 2)
    cli = CommandLine(monkeypatch, capsys)
    ended = cli("verify", path, path, "--inputs", inputs, "--backend", "ort-cpu", "--json")
    assert ended.code == 0
    assert ended.document["backend"]["library"] == "ONNX Runtime"
    ended = cli("verify", path, path, "--inputs", inputs, "--backend", "ort-cpu")
    assert f"{path} on ort-cpu (ONNX Runtime" in ended.out
    ended = cli("verify", path, "gone.onnx", "--inputs", inputs, "--backend", "ort-cpu")
    assert ended.code == 2
    says(ended.told)
    ended = cli("verify", path, path, "--inputs", inputs, "--backend", "tensorrt")
    assert ended.code == 3


# -- the device of the emulation --------------------------------------------------------------------------------------


def test_sessions_are_on_the_cpu_unless_told_otherwise() -> None:
    assert Emulator().device == "cpu"


def test_a_device_that_is_not_there_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    monkeypatch.setattr("halfwise.emulation.ort.ort.get_available_providers", lambda: ["CPUExecutionProvider"])
    with says.raises(MissingBackend):
        Emulator(device="cuda")


def test_a_session_that_fell_back_to_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch, says: Says) -> None:
    monkeypatch.setattr("halfwise.emulation.ort._prepare_cuda", lambda: None)
    with says.raises(MissingBackend):
        Emulator(device="cuda")
