"""Doctor beside a build: which model was built, which files are its weights, and what it lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import halfwise
from halfwise.core.files.kinds import FileKind
from halfwise.core.finding import Finding
from halfwise.core.notes import NoteKind
from halfwise.model.model import load
from halfwise.verbs.audit import Wanted
from halfwise.verbs.doctor import Diagnosed, doctor
from halfwise.verbs.fix.fix import fix
from tests.models.typed_graphs import states_fp32
from tests.models.zoo import SHAPES
from tests.support.messages import only
from tests.support.paths import DATA


def of(result: Diagnosed, rule: str) -> Finding:
    (found,) = [finding for finding in result.findings if finding.rule == rule]
    return found


def test_fp32_that_a_typed_model_states_and_its_engine_lost_is_named(tmp_path: Path) -> None:
    """Without a plan, too: under strong typing the model's own types are the wish."""
    onnx.save(states_fp32(), tmp_path / "m.onnx")
    engine_layers = DATA / "layers" / "inspector_11.json"
    lost = of(doctor([tmp_path / "m.onnx", engine_layers]), "HW605")
    assert (lost.severity, lost.numbers["nodes"], lost.numbers["asked"]) == ("error", ["mm"], 3)
    result = halfwise.audit(engine_layers, model=tmp_path / "m.onnx")
    told = only(result.audit.notes, NoteKind.STATED_NOT_KEPT)
    assert (told.values["names"], told.values["total"]) == (["mm"], 3)
    assert [(each.node, each.wanted, each.got) for each in result.audit.violations] == [("mm", "fp32", "bf16")]
    assert not result.kept and not result.audit.unproven and result.summary().good is False
    (row,) = result.only(Wanted.of("violations", None, None)).nodes
    assert (row.node, row.asked, row.status) == ("mm", "fp32", "violation")
    assert [each.rule for each in result.findings] == ["HW801"]


def test_of_two_models_the_one_that_was_built_is_examined(tmp_path: Path) -> None:
    """By the nodes that the parser read, where no command names the file."""
    zoo = SHAPES["layer_norm_overflow"]()
    onnx.save(zoo.model, tmp_path / "m.onnx")
    fixed = fix(zoo.model, zoo.inputs, out=tmp_path / "out", repairs="none")
    assert fixed.typed is not None
    typed = fixed.typed.path.rename(tmp_path / "typed.onnx")
    for built in (typed, tmp_path / "m.onnx"):
        nodes = [(each.name, each.op_type) for each in load(built).nodes]
        (tmp_path / "build.log").write_text(
            "".join(f"[V] [TRT] {name} [{op}] outputs: [a -> (4)[FLOAT]], \n" for name, op in nodes)
        )
        result = doctor([tmp_path / "m.onnx", typed, tmp_path / "build.log"])
        assert only(result.notes, NoteKind.ONE_MODEL_EXAMINED).subject == str(built)


def test_external_data_by_any_name_is_told_as_such(tmp_path: Path) -> None:
    """As an exporter writes each weight into a file of its own."""
    zoo = SHAPES["layer_norm_overflow"]()
    onnx.save(
        zoo.model, tmp_path / "m.onnx", save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0
    )
    found = doctor([tmp_path])
    assert {each.kind for each in found.files} == {FileKind.ONNX, FileKind.EXTERNAL_DATA} and len(found.files) > 2


def test_answers_in_another_order_than_the_samples_are_not_judged(tmp_path: Path) -> None:
    """As they come of names that are sorted as text."""
    zoo = SHAPES["healthy_mlp"]()
    onnx.save(zoo.model, tmp_path / "m.onnx")
    session, random = onnxruntime.InferenceSession(tmp_path / "m.onnx"), np.random.default_rng(0)
    feeds = [
        {name: random.normal(size=x.shape).astype(x.dtype) for name, x in zoo.inputs[0].items()} for _ in range(11)
    ]
    for folder in ("samples", "answers"):
        (tmp_path / folder).mkdir()
    names = [each.name for each in session.get_outputs()]
    for place, at in enumerate(sorted(range(11), key=str)):
        np.savez(tmp_path / "samples" / f"{at}.npz", **feeds[at])
        np.savez(
            tmp_path / "answers" / f"out{place}.npz", **dict(zip(names, session.run(None, feeds[at]), strict=True))
        )
    found = doctor([tmp_path])
    assert only(found.notes, NoteKind.SAVED_IN_OTHER_ORDER).values == {"output": 3, "sample": 11}
    assert not {"HW615", "HW616"} & {each.rule for each in found.findings}
