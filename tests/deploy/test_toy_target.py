"""A target is one object: one that is made up here is planned for, adjusted and deployed like any other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from halfwise.core.errors import InputError
from halfwise.core.formats import Format
from halfwise.core.reasons import Reason
from halfwise.core.targets import RUNTIMES, Runtime, Target
from halfwise.deploy.deploy_files import DeployFiles, Handover
from halfwise.deploy.targets import KINDS, PlainTarget, register
from halfwise.emulation.profiles import PROFILES, STRICT, Profile
from halfwise.emulation.profiles.steps import Steps
from halfwise.precision.assignment import Assignment
from halfwise.precision.decision import Adjustment, Decision
from halfwise.precision.plan import PlannedNode
from halfwise.verbs.fix.fix import fix
from tests.models.build import model, node, value, weight
from tests.support.command_line import CommandLine
from tests.support.says import Says


def coarse_tanh(proto: onnx.NodeProto, steps: Steps) -> str:
    """The toy's kernel is a tenth too large."""
    return steps.op("Mul", steps.op("Tanh", proto.input[0]), steps.constant(1.1))


class Toy(PlainTarget):
    def adjust(
        self,
        target: Target,
        decision: Decision,
        ratio: Callable[[Assignment], float],
        *,
        stated: Collection[str] = (),
        given: bool = False,
    ) -> Adjustment:
        """The toy loads a model only where its last product is in FP32."""
        last = decision.sites.model.node_by_name["last"]
        added = PlannedNode("last", "MatMul", Format.FP32, Reason.COMPILER, ())
        return Adjustment(decision.with_fp32([last]), (added,))

    def deploy(self, handover: Handover) -> DeployFiles:
        if handover.typed is None:
            return DeployFiles()
        path = handover.typed.with_name("toy.txt")
        path.write_text("\n".join(sorted(node.name or "" for node in handover.decision.formats)))
        return DeployFiles(others={"toy": path})


TOY = Toy(
    Runtime("toy", "Toy", "toy", ("toy-1",), releases={1: (0, 2)}, formats={"fp32": "", "fp16": ""}),
    Profile("toy", kernels={"Tanh": coarse_tanh}, beside=(STRICT,)),
)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(TOY)
    yield
    del RUNTIMES["toy"], PROFILES["toy"], KINDS["toy"]


def bent() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = [weight(name, rng.standard_normal((8, 8)).astype(np.float32) / 3) for name in ("v", "w")]
    nodes = [
        node("MatMul", "x v", "a", name="first"),
        node("Tanh", "a", "b", name="bend"),
        node("MatMul", "b w", "y", name="last"),
    ]
    return model(nodes, [value("x", shape=(4, 8))], [value("y", shape=(4, 8))], weights)


def inputs() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((4, 8)).astype(np.float32)} for _ in range(4)]


def test_its_profile_judges_its_adjustment_is_made_and_its_file_is_written(tmp_path: Path) -> None:
    result = fix(bent(), inputs(), target="toy-1", out=tmp_path)
    assert result.met
    assert (result.plan.target, result.plan.profile) == ("toy-1", "toy")
    assert set(result.by_profile) == {"toy", "strict", "wide"}
    assert {planned.name: planned.why for planned in result.plan.nodes} == {
        "bend": Reason.ROUNDING,  # by the toy's own kernel
        "last": Reason.COMPILER,  # by its adjustment
    }
    assert (tmp_path / "toy.txt").read_text() == "bend\nlast"
    assert result.to_json()["artifacts"]["toy"] == str(tmp_path / "toy.txt")
    assert fix(bent(), inputs()).plan.nodes == ()


def test_the_command_line_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(bent(), tmp_path / "bent.onnx")
    for index, feed in enumerate(inputs()):
        np.savez(tmp_path / f"{index}.npz", **feed)
    words = ["fix", tmp_path / "bent.onnx", "--inputs", tmp_path / "0.npz", "--inputs", tmp_path / "1.npz"]
    ended = CommandLine(monkeypatch, capsys)(*words, "--target", "toy-1", "--out", tmp_path / "out")
    assert ended.code == 0
    assert str(tmp_path / "out" / "toy.txt") in ended.out.replace("\n", "")


@pytest.mark.parametrize("text", ["toy", "toy-1.3", "toys-1", "toy-1+weak"])
def test_errors_about_it_say_what_is_known(text: str, says: Says) -> None:
    with pytest.raises(InputError) as caught:
        Target.parse(text)
    says(caught.value)


def test_a_format_that_it_does_not_take_is_refused(says: Says) -> None:
    says(Target.parse("toy-1").why_not(Format.BF16))
    with says.raises(InputError):
        fix(bent(), inputs(), target="toy-1", allow_bf16=True)
