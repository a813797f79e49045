"""`prove` from its question to the verdict of `fix`: what is refused is a fact, what is interrupted goes on."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from halfwise.backends import BackendFailure, BackendOptions, backend_named
from halfwise.core.errors import HalfwiseError, InputError
from halfwise.core.notes import NoteKind
from halfwise.emulation.probes import PROBES, Form
from halfwise.emulation.probes.own_sizes import own_forms
from halfwise.emulation.profiles import STRICT, profile_named
from halfwise.emulation.profiles.caveats import caveats
from halfwise.emulation.profiles.machine import MachineDocument, read_machine
from halfwise.emulation.profiles.shape_class import shape_class
from halfwise.emulation.timing.operation import Attribute, Operand, Operation
from halfwise.model.model import load
from halfwise.verbs.compare import compare
from halfwise.verbs.fix.fix import fix
from halfwise.verbs.profiles import profiles
from halfwise.verbs.prove import JOURNAL, prove
from halfwise.verbs.prove.model_operations import nodes_of
from halfwise.verbs.verify import verify
from tests.models.backend_models import typed_model
from tests.support.documents import check
from tests.support.learned import CHOICE, NAMES, SOME, machine, wide_product
from tests.support.paths import ROOT
from tests.support.says import Says
from tests.support.simulated_gpu import SimulatedGpu
from tests.support.simulated_products import narrow_matmul
from tests.support.simulated_rounding import h

RUN_FOLDER = f"{sys.executable} {ROOT / 'examples' / 'prove' / 'run_folder.py'} CPUExecutionProvider"


def conv(x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], op: str = "Conv", group: int = 1) -> Operation:
    steps: tuple[float, ...] = (2.0, 2.0) if op == "ConvTranspose" else (1.0, 1.0)
    pads = ((w[2] - 1) / 2 if op == "Conv" else 0.0,) * 4
    told: dict[str, Attribute] = {"kernel_shape": (float(w[2]),) * 2, "strides": steps, "pads": pads, "group": group}
    return Operation(op, (Operand(x), Operand(w, fixed=True)), (y,), told)


def answers(document: MachineDocument) -> dict[str, tuple[str, str]]:
    return {form.name: (form.status, form.hypotheses[0] if form.hypotheses else "") for form in document.forms}


def test_the_file_holds_what_was_drawn(tmp_path: Path) -> None:
    path = machine(tmp_path)
    document = json.loads(path.read_text(encoding="utf-8"))
    check(document, "machine")
    read = read_machine(path)
    assert answers(read) == {form.name: ("proven", CHOICE[form.rule]) for form in SOME}
    assert read.ran.device == "simulated GPU" and read.seconds >= 0
    assert not (tmp_path / JOURNAL).exists()


def test_a_form_that_is_refused_is_found_by_halves_and_is_a_fact(tmp_path: Path) -> None:
    gpu = SimulatedGpu(CHOICE, SOME, refuses=["softmax over 10"])
    proof = prove(gpu, out=tmp_path / "m.json", forms=SOME)
    refused = {form.name: form.why for form in proof.machine.forms if form.status == "refused"}
    assert refused == {"softmax over 10": "no kernel for softmax over 10"}
    assert proof.machine.counts["refused"] == 1 and proof.machine.counts["proven"] == len(SOME) - 1
    assert "1 refused" in repr(proof)


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    class Stopped(SimulatedGpu):
        def run(self, model: Path, feeds: Any) -> Any:
            if self.models == 2:  # the question whether anybody is there, and one model
                raise KeyboardInterrupt
            return super().run(model, feeds)

    out = tmp_path / "m.json"
    with pytest.raises(KeyboardInterrupt):
        prove(Stopped(CHOICE, SOME), out=out, forms=SOME)
    assert (tmp_path / JOURNAL).exists() and not out.exists()
    again = SimulatedGpu(CHOICE, SOME)
    whole = SimulatedGpu(CHOICE, SOME)
    assert answers(prove(again, out=out, forms=SOME).machine) == answers(prove(whole, forms=SOME).machine)
    assert again.models == whole.models - 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "is no machine file"),
        ("{", "is not valid JSON"),
        ('{"schema": "halfwise.machine/1"}', "'ran' is missing"),
    ],
)
def test_a_file_that_is_no_machine(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        profile_named(str(path))


def test_a_file_that_was_edited_is_refused(tmp_path: Path, says: Says) -> None:
    path = machine(tmp_path)
    path.write_text(path.read_text().replace("affine-after", "affine-before"))
    with says.raises(InputError):
        profile_named(str(path))
    with pytest.raises(InputError, match="cannot be read"):
        profile_named(str(tmp_path / "none.json"))


def test_fix_judges_by_it(tmp_path: Path) -> None:
    """Sums of 16 terms in FP16 err more than `strict` knows."""
    path = machine(tmp_path, MatMul="fp16-sums-16")
    model = wide_product(tmp_path / "net.onnx")
    result = fix(model, out=tmp_path / "fixed", profile=str(path), max_runs=6)
    told = result.document().to_json()["profiles"]
    assert told[str(path)] > 1.5 * told["strict"]
    assert result.plan.profile == str(path)
    profile = profile_named(str(path))
    assert STRICT in profile.beside and not profile.inferred


def test_where_a_form_is_loose_there_are_two_ends(tmp_path: Path) -> None:
    class Odd(SimulatedGpu):
        """A softmax that no hypothesis explains."""

        def run(self, model: Path, feeds: Any) -> Any:
            done = super().run(model, feeds)
            for outputs in done.outputs:
                for name in outputs:
                    if name != "y" and outputs[name].shape[-1] == 10:
                        outputs[name] = outputs[name] * np.float16(1.01)
            return done

    path = tmp_path / "m.json"
    prove(Odd({**CHOICE, "Softmax": "wide"}, SOME), out=path, forms=SOME)
    profile = profile_named(str(path))
    assert [each.name for each in profile.beside] == [f"{path} (least rounding)", "strict"]
    assert profile.loose_spread > 0 and profile.two_ended == {"Softmax"}
    for form in json.loads(path.read_text())["forms"]:
        if form["status"] == "loose":
            errors = {name: form["evidence"][name]["error"] for name in form["evidence"]}
            assert errors[form["hypotheses"][-1]] >= min(form["error"], max(errors.values()))
    nodes = [SimpleNamespace(domain="", op_type=op) for op in ("Softmax", "Relu")]
    (note,) = caveats(profile, nodes)  # type: ignore[arg-type]
    assert (note.kind, note.values["ops"]) == (NoteKind.PROFILE_TWO_ENDED, ["Softmax"])


def test_between_two_sizes_that_differ_a_verdict_has_two_ends(tmp_path: Path) -> None:
    """One machine may sum 256 terms in FP32, the next in FP16: both measurements lie between the ends."""
    forms = tuple(form for form in PROBES if form.name in ("exact matmul 64x64x64", "exact matmul 64x1024x64"))

    class BySize(SimulatedGpu):
        def kernel(self, form: Form) -> str:
            return "wide" if form.length < 100 else "fp16-sums-16"

    path = Path(str(prove(BySize({}, forms), out=tmp_path / "m.json", forms=forms).path))
    model, rng = wide_product(tmp_path / "net.onnx", 256), np.random.default_rng(1)
    feeds = [{"x": rng.random((4, 256)).astype(np.float16).astype(np.float32)} for _ in range(4)]
    result = fix(model, feeds, profile=str(path), tolerance="rel_l2<=0.0004", max_runs=4, force=["op:MatMul"])
    (weight,) = (numpy_helper.to_array(each) for each in onnx.load(model).graph.initializer)
    measured: dict[str, list[float]] = {"wide": [], "narrow": []}
    for feed in feeds:
        x, w = feed["x"].astype(np.float64), h(weight)
        right = x @ weight.astype(np.float64)
        for name, got in (("wide", h(x @ w)), ("narrow", narrow_matmul(x, w, 16))):
            measured[name].append(float(np.linalg.norm(got - right) / np.linalg.norm(right)) / 0.0004)
    ends = result.document().to_json()["profiles"]
    least, most = ends[f"{path} (least rounding)"], ends[str(path)]
    assert least <= 1.01 * max(measured["wide"]) < max(measured["narrow"]) <= 1.01 * most
    assert least < 1 < most and not result.met
    (note,) = (note for note in result.notes if note.kind is NoteKind.PROFILE_TWO_ENDED)
    assert note.values["ops"] == ["MatMul"]


def test_a_probe_of_a_nodes_own_sizes_decides(tmp_path: Path) -> None:
    """A kernel may be chosen by any size: this machine sums in FP16 where a product has 4 rows of 256 terms."""
    model, rng = wide_product(tmp_path / "net.onnx", 256), np.random.default_rng(2)
    general = tuple(form for form in PROBES if form.name in ("exact matmul 1x256x256", "exact matmul 64x256x64"))
    own = tuple(own_forms(nodes_of(model)))
    assert [(form.op, form.length) for form in own] == [("MatMul", 256)]

    class ByRows(SimulatedGpu):
        def kernel(self, form: Form) -> str:
            assert form.inputs[0] is not None
            return "fp16-sums-16" if form.inputs[0].shape == (4, 256) else "wide"

    feeds = [{"x": rng.random((4, 256)).astype(np.float16).astype(np.float32)} for _ in range(2)]
    (weight,) = (numpy_helper.to_array(each) for each in onnx.load(model).graph.initializer)
    worst = {"wide": 0.0, "narrow": 0.0}
    for x in (feed["x"].astype(np.float64) for feed in feeds):
        right = x @ weight.astype(np.float64)
        for name, got in (("wide", h(x @ h(weight))), ("narrow", narrow_matmul(x, h(weight), 16))):
            worst[name] = max(worst[name], float(np.linalg.norm(got - right) / np.linalg.norm(right)))
    assert worst["narrow"] > 2 * worst["wide"]
    for models, name in (((), "wide"), ((model,), "narrow")):
        machine = ByRows({}, (*general, *own))
        path = prove(machine, out=tmp_path / f"{name}.json", forms=general, own=models).path
        found = fix(model, feeds, profile=str(path), tolerance="rel_l2<=1", max_runs=4, force=["op:MatMul"])
        told = found.document().to_json()["profiles"]
        assert told[str(path)] == pytest.approx(worst[name], rel=0.02)
        if models:  # both ends know the kernel of this size
            assert told[f"{path} (least rounding)"] == pytest.approx(worst[name], rel=0.02)


@pytest.mark.parametrize(
    ("operation", "terms"),
    [
        (conv((1, 6, 9, 9), (4, 3, 3, 3), (1, 4, 9, 9), group=2), 27),
        (conv((1, 4, 5, 5), (4, 3, 2, 2), (1, 6, 10, 10), "ConvTranspose", group=2), 8),
        (Operation("AveragePool", (Operand((1, 2, 6, 6)),), ((1, 2, 2, 2),), {"kernel_shape": (3.0, 3.0)}), 9),
        (Operation("GlobalAveragePool", (Operand((1, 2, 6, 6)),), ((1, 2, 1, 1),)), 36),
        (Operation("Gemm", (Operand((7, 5)), Operand((7, 3), fixed=True)), ((5, 3),), {"transA": 1}), 7),
    ],
)
def test_a_probe_at_own_sizes_is_the_node_that_it_asks_about(operation: Operation, terms: int) -> None:
    (form,) = own_forms([operation, operation, Operation("Relu", (Operand((2,)),), ((2,),))])
    (node,) = load(form.model()).ir.graph
    assert (form.length, shape_class(node).sizes) == (terms, operation.key)


def test_a_profile_that_nobody_ran_says_so(tmp_path: Path) -> None:
    model = wide_product(tmp_path / "net.onnx")
    for target, said in (("trt-10.9", True), ("ort-cuda", False)):
        notes = fix(model, target=target, max_runs=2).notes
        assert (NoteKind.PROFILE_UNPROVEN in {note.kind for note in notes}) is said
    found = verify(model, model, profile="tensorrt")
    assert NoteKind.PROFILE_UNPROVEN in {note.kind for note in found.notes}


def test_machines_are_listed_and_told_apart(tmp_path: Path) -> None:
    one, other = machine(tmp_path), machine(tmp_path, "other.json", Softmax="wide")
    (tmp_path / "broken.json").write_text("{")
    found = profiles([tmp_path])
    check(found.to_json(), "profiles")
    learned = {each.name for each in found.records if each.evidence == "learned"}
    assert learned == {"ort-cuda", "ort-cuda-unfused", one.as_posix(), other.as_posix()}
    assert {each.name for each in found.records if each.evidence == "inferred"} == {
        "tensorrt", "tensorrt-fp16-accumulate",
    }  # fmt: skip
    (section,) = (section for section in compare(one, other).sections if section.id == "rounding")
    assert [(each.name, each.before, each.after) for each in section.changes] == [("softmax over 10", "steps", "wide")]
    with pytest.raises(InputError, match="no such file or folder"):
        profiles([tmp_path / "none"])


# -- a program of the user's ------------------------------------------------------------------------------------------


def program(path: Path, text: str) -> str:
    path.write_text(
        f"#!{sys.executable}\nimport sys, pathlib, json\nimport numpy as np\n"
        f"folder = pathlib.Path(sys.argv[-1])\n{text}"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"cmd:{path}"


def test_onnx_runtime_behind_a_program_is_one_round(tmp_path: Path) -> None:
    forms = tuple(form for form in SOME if form.name in NAMES[:4])
    proof = prove(f"cmd:{RUN_FOLDER}", out=tmp_path / "m.json", forms=forms)
    assert set(answers(proof.machine).values()) == {("proven", "wide")}
    assert proof.machine.ran.library == "ONNX Runtime"


TRTEXEC = """
import json, shutil, sys
import numpy as np
import onnxruntime as ort
asked = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
if "onnx" in asked:
    if "1-" in asked["onnx"]:
        sys.exit(print("[01/01/2026-00:00:00] [E] no kernel for this model") or 1)
    print("[01/01/2026-00:00:00] [I] TensorRT version: 10.9.0")
    shutil.copy(asked["onnx"], asked["saveEngine"])
    sys.exit()
session = ort.InferenceSession(asked["loadEngine"])
files = dict(each.split(":") for each in asked["loadInputs"].split(","))
kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32}
feed = {v.name: np.fromfile(files[v.name], kinds[v.type]).reshape(v.shape) for v in session.get_inputs()}
told = []
for value, array in zip(session.get_outputs(), session.run(None, feed)):
    values = [float("%g" % each) for each in array.ravel()]
    told.append({"name": value.name, "dimensions": "x".join(map(str, array.shape)), "values": values})
open(asked["exportOutput"], "w").write(json.dumps(told))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script")
def test_the_script_for_trtexec_with_a_program_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second model of two is refused, and so is each half of it: forms of another opset."""
    forms = tuple(form for form in PROBES if form.name in ("exact matmul 64x64x64", "RMS norm of offset values"))
    program(tmp_path / "trtexec", TRTEXEC)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    proof = prove(f"cmd:sh {ROOT / 'examples' / 'prove' / 'trtexec.sh'}", forms=forms)
    assert {form.name: (form.status, form.why[-14:]) for form in proof.machine.forms} == {
        "exact matmul 64x64x64": ("proven", ""),
        "RMS norm of offset values": ("refused", "for this model"),
    }
    assert (proof.machine.ran.library, proof.machine.ran.version) == ("TensorRT", "10.9.0")


@pytest.mark.parametrize("text", ["print('no GPU'); sys.exit(3)", ""])
def test_a_program_that_does_nothing(text: str, says: Says, tmp_path: Path) -> None:
    with says.raises(HalfwiseError):
        prove(program(tmp_path / "run", text), forms=SOME)


def test_what_a_program_says_of_one_model(tmp_path: Path, says: Says) -> None:
    refuses = "[(each / 'error.txt').write_text('no such kernel') for each in (folder / 'outputs').iterdir()]"
    backend = backend_named(program(tmp_path / "run", refuses), BackendOptions())
    with pytest.raises(BackendFailure, match="no such kernel"):
        backend.run(typed_model(tmp_path / "m.onnx"), [{"x": np.zeros((1, 4), np.float32)}])
    few = "[np.savez(each / '0.npz', y=np.zeros(4)) for each in (folder / 'outputs').iterdir()]"
    backend = backend_named(program(tmp_path / "run", few), BackendOptions())
    with says.raises(InputError):
        backend.run(tmp_path / "m.onnx", [{"x": np.zeros((1, 4), np.float32)}] * 2)
    about = f"{few}\n(folder / 'about.json').write_text('[]')"
    backend = backend_named(program(tmp_path / "run", about), BackendOptions())
    with pytest.raises(InputError, match=r"about\.json is no JSON object"):
        backend.run(tmp_path / "m.onnx", [{"x": np.zeros((1, 4), np.float32)}])


@pytest.mark.parametrize("backend", ["saved:outputs", "cmd:", "cmd:/no/such/program", "nothing"])
def test_backends_that_cannot_be_asked(backend: str, says: Says) -> None:
    with says.raises(HalfwiseError):
        prove(backend)


def test_a_folder_is_no_file_to_write(tmp_path: Path, says: Says) -> None:
    with says.raises(InputError):
        prove(SimulatedGpu(CHOICE, SOME), out=tmp_path, forms=SOME)


def test_where_nothing_runs_there_is_no_file(tmp_path: Path, says: Says) -> None:
    gpu = SimulatedGpu(CHOICE, SOME, refuses=[form.name for form in SOME])
    with says.raises(HalfwiseError):
        prove(gpu, out=tmp_path / "m.json", forms=SOME)
    assert list(tmp_path.iterdir()) == []
