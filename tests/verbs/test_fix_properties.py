"""What holds of `fix` whatever the model: plans, processes, threads, the order of inputs, and looser tolerances."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from halfwise.core.errors import HalfwiseError
from halfwise.precision.plan import read_plan
from halfwise.verbs.fix.fix import JOURNAL, FixResult, fix
from tests.models.random_nets import feeds, random_net
from tests.models.zoo import SHAPES, ZooModel

SEEDS = st.integers(0, 10**6)
NEEDY = (4, 9, 17)  # random nets that need nodes in FP32
ZOO = ("layer_norm_overflow", "two_masks_added", "sum_over_512x512")


def net(seed: int) -> ZooModel:
    """A random net with four inputs that differ in loudness."""
    return ZooModel(f"net{seed}", random_net(seed), [*feeds(seed), *feeds(seed + 1)], 0.01)


def fixed(zoo: ZooModel, inputs: Any = None, **options: Any) -> FixResult:
    tolerance = [f"*:rel_l2<={zoo.tolerance}"]
    try:
        return fix(zoo.model, zoo.inputs if inputs is None else inputs, **{"tolerance": tolerance, **options})
    except HalfwiseError:  # FP32 itself has no answer
        assume(False)
        raise


def answer(result: FixResult) -> dict[str, Any]:
    """Everything of a result but what was spent on it."""
    document = result.to_json()
    return {key: each for key, each in document.items() if key not in ("cost", "artifacts")}


def verdict(result: FixResult) -> dict[str, Any]:
    return {key: answer(result)[key] for key in ("status", "fp32_nodes", "repairs", "error", "inputs")}


def files(folder: Path) -> dict[str, bytes]:
    """All but the measurements from which a search whose runs are spent would go on."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != JOURNAL)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def check_applied_again(zoo: ZooModel, folder: Path) -> None:
    first = fixed(zoo, out=folder / "first")
    plan = read_plan(folder / "first" / "model.plan.json")
    again = fixed(zoo, out=folder / "again", plan=plan, tolerance=())
    assert files(folder / "again") == files(folder / "first")
    assert (again.fp32_nodes, again.met, again.fp16_verdict.met) == (
        first.fp32_nodes,
        first.met,
        first.fp16_verdict.met,
    )


@settings(max_examples=3)
@given(SEEDS)
def test_a_plan_applied_again_changes_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    check_applied_again(net(seed), tmp_path_factory.mktemp("applied"))


@pytest.mark.parametrize("name", ZOO)
def test_a_plan_of_a_known_model_applied_again_changes_nothing(name: str, tmp_path: Path) -> None:
    check_applied_again(SHAPES[name](), tmp_path)


@settings(max_examples=3)
@given(SEEDS, st.permutations(range(4)))
def test_the_order_of_the_inputs_decides_nothing(seed: int, order: list[int]) -> None:
    zoo = net(seed)
    assert verdict(fixed(zoo, [zoo.inputs[i] for i in order])) == verdict(fixed(zoo))


@pytest.mark.parametrize("name", ZOO)
def test_of_two_inputs_neither_is_the_first(name: str) -> None:
    zoo = SHAPES[name]()
    assert verdict(fixed(zoo, zoo.inputs[:2])) == verdict(fixed(zoo, zoo.inputs[1::-1]))


def check_looser(zoo: ZooModel, tolerances: list[float], **options: Any) -> None:
    results = [fixed(zoo, tolerance=[f"*:rel_l2<={tolerance}"], **options) for tolerance in sorted(tolerances)]
    for tight, loose in pairwise(results):
        assert loose.met >= tight.met
        if tight.met:
            assert len(loose.plan.nodes) <= len(tight.plan.nodes)


@settings(max_examples=3)
@given(SEEDS, st.lists(st.sampled_from([1e-3, 3e-3, 1e-2, 3e-2, 0.1]), min_size=2, max_size=2, unique=True))
def test_a_looser_tolerance_needs_no_more(seed: int, tolerances: list[float]) -> None:
    check_looser(net(seed), tolerances, repairs="none")


@pytest.mark.parametrize("seed", NEEDY)
def test_a_looser_tolerance_of_a_net_in_need_needs_no_more(seed: int) -> None:
    check_looser(net(seed), [3e-3, 3e-2])


def test_with_repairs_a_looser_tolerance_needs_no_more() -> None:
    zoo = net(24)
    check_looser(ZooModel(zoo.name, zoo.model, [*feeds(24), *feeds(1024)], zoo.tolerance), [3e-3, 1e-2])


# -- another process --------------------------------------------------------------------------------------------------


def written(folder: Path, threads: int) -> None:
    """Fixes some models into a folder, with so many threads of ONNX Runtime."""
    from halfwise.emulation import ort

    options = ort._options
    ort._options = lambda *, lean, device, **_: options(lean=lean, threads=threads, device=device)  # type: ignore[assignment]
    for zoo in (net(NEEDY[0]), *(SHAPES[name]() for name in ZOO[:2])):
        result = fixed(zoo, out=folder / zoo.name)
        (folder / zoo.name / "document.json").write_text(json.dumps(answer(result), indent=1))


def of_a_process(folder: Path, threads: str, hashes: str) -> dict[str, bytes]:
    """The files that another process writes; `hashes` seeds the order of its sets."""
    script = "import sys; from pathlib import Path; from tests.verbs.test_fix_properties import written; "
    script += "written(Path(sys.argv[1]), int(sys.argv[2]))"
    blas = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    environment = {**os.environ, **blas, "PYTHONHASHSEED": hashes, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, folder, threads], env=environment, check=True)
    return files(folder)


def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    one, other = (of_a_process(tmp_path / hashes, "3", hashes) for hashes in ("1", "2"))
    assert [name for name, content in one.items() if content != other.get(name)] == [] and len(one) == len(other) == 9


def test_the_same_call_twice_gives_the_same_document() -> None:
    zoo = net(NEEDY[0])
    assert answer(fixed(zoo)) == answer(fixed(zoo))
    assert np.array_equal(zoo.inputs[0]["x"], net(NEEDY[0]).inputs[0]["x"])  # nothing that was given was changed
