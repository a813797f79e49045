"""A large model's walks are kept while `fix` works: interrupted anywhere, it goes on and walks none of them again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

from benchmarks.zoo.decoder import Sizes, feeds, write_decoder
from halfwise.core.errors import InputError
from halfwise.emulation import emulate, streamed
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.streamed import StreamedSession
from halfwise.model import proto_file, weights_in_place
from halfwise.model.model import load
from halfwise.repair import scaled_constants
from halfwise.verbs import convert as convert_module
from halfwise.verbs.fix import fix as fix_module
from halfwise.verbs.fix.fix import JOURNAL, FixResult, fix
from halfwise.verbs.fix.results_folder import WALKS
from halfwise.verbs.scan import scan
from halfwise.verbs.trace import trace
from halfwise.verbs.verify import verify
from tests.models.zoo import transformer
from tests.support.says import Says


class Walks:
    """Counts the parts of walks, and interrupts at one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, stop: int = -1) -> None:
        self.parts, self.finished, self.stop = 0, 0, stop
        self.noise: list[int] = []  # where walks begin from which noise is told
        through, step = StreamedSession._through, Stepper.walk

        def counted(session: StreamedSession, segment: Any, lanes: Sequence[Any], *rest: Any) -> None:
            self.tick()
            through(session, segment, lanes, *rest)
            self.finished += len(lanes) if segment is session._segments[-1] else 0

        def walked(of: Stepper, store: Any, **asked: Any) -> Iterator[Any]:
            self.noise.append(self.parts)
            for each in step(of, store, **asked):
                self.tick()
                yield each
            self.finished += 1

        patch.setattr(StreamedSession, "_through", counted)
        patch.setattr(Stepper, "walk", walked)

    def tick(self) -> None:
        self.parts += 1
        if self.parts == self.stop:
            raise KeyboardInterrupt


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A model that lies in external data and counts as large."""
    monkeypatch.setattr(emulate, "LARGE_BYTES", 0)
    monkeypatch.setattr(emulate, "INLINE_ELEMENTS", 8)
    monkeypatch.setattr(streamed, "LARGE_BYTES", 1)
    path = tmp_path / "model.onnx"
    onnx.save(transformer(1).model, path, save_as_external_data=True, location="model.data", size_threshold=64)
    return path


def test_no_finished_walk_is_walked_again(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _goes_on(large, list(transformer(1).inputs[:4]), (0.3, 0.95), tmp_path, monkeypatch)


def test_nor_one_with_rescaled_weights(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made when they are read, of weights in the file and powers of two."""
    monkeypatch.setattr(scaled_constants, "is_large", lambda array: array.size > 64)
    sizes = Sizes(layers=4, width=320, heads=5, shared=5, inner=896, vocabulary=300)
    path = write_decoder(tmp_path, sizes, planted=("massive",))
    plan = _goes_on(path, feeds(sizes, tokens=8), (0.9,), tmp_path, monkeypatch).plan
    assert "HW402" in {repair.rule for repair in plan.repairs}


def test_nor_one_of_which_the_noise_is_known(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the first sample, where the second one is walked."""
    inputs, no = list(transformer(1).inputs[:4]), ("none",)
    told: list[str] = []
    with monkeypatch.context() as patch:
        whole = Walks(patch)
        wanted = fix(large, inputs, out=tmp_path / "whole", repairs=no, notify=told.append)
    assert any("sample 2 of 2" in text for text in told)
    with monkeypatch.context() as patch:
        first = Walks(patch, whole.noise[1] + 1)
        with pytest.raises(KeyboardInterrupt):
            fix(large, inputs, out=tmp_path / "again", repairs=no)
    with monkeypatch.context() as patch:
        again = Walks(patch)
        found = fix(large, inputs, out=tmp_path / "again", repairs=no)
    assert first.finished + again.finished == whole.finished
    assert found.plan.text() == wanted.plan.text()
    assert found.cost.model_runs == pytest.approx(wanted.cost.model_runs, abs=0.1)


def test_nor_any_where_a_backend_confirms(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it confirms is written by then."""
    inputs = list(transformer(1).inputs[:4])

    def run(folder: str) -> tuple[Walks, FixResult]:
        with monkeypatch.context() as patch:
            return Walks(patch), fix(large, inputs, out=tmp_path / folder, confirm="ort-cpu")

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    whole, wanted = run("whole")
    with monkeypatch.context() as patch:
        patch.setattr(fix_module, "confirm_fix", interrupted)
        first = Walks(patch)
        with pytest.raises(KeyboardInterrupt):
            fix(large, inputs, out=tmp_path / "again", confirm="ort-cpu")
    assert (tmp_path / "again" / JOURNAL).exists()
    again, found = run("again")
    assert first.finished + again.finished == whole.finished
    assert found.plan.text() == wanted.plan.text()
    assert not (tmp_path / "again" / JOURNAL).exists() and not (tmp_path / "again" / WALKS).exists()


def _goes_on(
    large: Path, inputs: Sequence[Any], shares: Sequence[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FixResult:
    """Interrupted at these shares of its work, the same command gives the answer that it gives at once."""

    def run(folder: str, stop: int = -1) -> tuple[Walks, FixResult | None]:
        with monkeypatch.context() as patch:
            walks = Walks(patch, stop)
            try:
                return walks, fix(large, inputs, out=tmp_path / folder)
            except KeyboardInterrupt:
                return walks, None

    whole, wanted = run("whole")
    assert wanted is not None and not (tmp_path / "whole" / WALKS).exists()
    for share in shares:
        first, none = run(f"at {share}", int(share * whole.parts))
        again, found = run(f"at {share}")
        assert none is None and found is not None
        # A walk from which noise is told goes back, too.
        assert first.finished + again.finished - whole.finished in (0, 1)
        assert found.plan.text() == wanted.plan.text()
        assert not (tmp_path / f"at {share}" / WALKS).exists()
    return wanted


@pytest.fixture(params=["of external data", "inside the model"])
def weights(request: pytest.FixtureRequest, large: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that the weights of the large model stay in."""
    if request.param == "of external data":
        return large.parent / "model.data"
    monkeypatch.setattr(proto_file, "_LARGE", 0)
    monkeypatch.setattr(weights_in_place, "_LEAST", 64)
    onnx.save(transformer(1).model, large)
    (large.parent / "model.data").unlink()
    return large


def test_a_model_that_changes_meanwhile_is_told_and_nothing_is_written(
    large: Path, weights: Path, tmp_path: Path, says: Says
) -> None:
    def change(text: str) -> None:
        weights.write_bytes(weights.read_bytes())  # as an exporter that runs again
        os.utime(weights, ns=(0, 1))

    with says.raises(InputError):
        fix(large, list(transformer(1).inputs[:4]), out=tmp_path / "out", notify=change)
    assert not list((tmp_path / "out").glob("model.*"))


@pytest.mark.parametrize("verb", ["scan", "trace", "verify", "convert"])
def test_nor_does_any_other_command_answer_then(
    large: Path, weights: Path, verb: str, monkeypatch: pytest.MonkeyPatch, says: Says
) -> None:
    inputs = list(transformer(1).inputs[:2])

    def change(*_: Any) -> None:
        os.utime(weights, ns=(0, 1))

    with says.raises(InputError):
        if verb == "scan":
            scan(large, rounding=True, notify=change)
        elif verb == "trace":
            trace(large, inputs, notify=change)
        elif verb == "verify":
            verify(large, large, inputs, notify=change)
        else:
            found = convert_module.decide
            monkeypatch.setattr(convert_module, "decide", lambda asked: (change(), found(asked))[1])
            convert_module.convert(large, inputs=inputs)


def test_a_model_that_was_read_whole_needs_its_file_no_more(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(transformer(1).model, path)
    model = load(path)
    path.unlink()
    assert trace(model, list(transformer(1).inputs[:2])).tensors


@pytest.mark.parametrize("verb", ["trace", "verify"])
def test_trace_and_verify_go_on_too(large: Path, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALFWISE_CACHE", str(tmp_path / "cache"))
    inputs = list(transformer(1).inputs[:3])
    typed = tmp_path / "typed"
    fix(large, inputs, out=typed)

    def run(stop: int = -1) -> tuple[Walks, Any]:
        with monkeypatch.context() as patch:
            walks = Walks(patch, stop)
            try:
                if verb == "trace":
                    return walks, trace(large, inputs).to_json()
                return walks, verify(large, typed / "model.fp16.onnx", inputs).to_json()
            except KeyboardInterrupt:
                return walks, None

    whole, wanted = run()
    assert wanted is not None and not list((tmp_path / "cache" / "walks").iterdir())
    first, none = run(int(0.7 * whole.parts))
    assert none is None and 0 < first.finished < whole.finished
    again, found = run()
    assert found == wanted and first.finished + again.finished == whole.finished
    assert not list((tmp_path / "cache" / "walks").iterdir())
