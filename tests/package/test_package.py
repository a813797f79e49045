"""The public API: its names, that importing them costs nothing, and that modules of the same names do not hide them."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import halfwise
from tests.support.says import Says


def ran(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_loads_nothing_heavy() -> None:
    names = ran("import sys, halfwise; print(*sys.modules)").split()
    assert not {"onnx", "onnx_ir", "onnxruntime", "numpy", "typer", "rich", "ml_dtypes", "msgspec"} & set(names)
    assert {name for name in names if name.startswith("halfwise.")} == {
        "halfwise._version",
        "halfwise.core",
        "halfwise.core.lazy",
    }


def test_the_process_that_runs_a_written_model_loads_little() -> None:
    """It starts beside the job, and a short job would wait for it."""
    names = ran("import sys, halfwise.backends.as_written; print(*sys.modules)").split()
    assert not {"onnx", "onnx_ir", "sympy"} & set(names)


def test_a_command_starts_without_what_it_seldom_needs() -> None:
    found = ran(
        "import sys; from halfwise.core.put_off import put_off; put_off()\n"
        "import halfwise.verbs.fix.fix, onnx_ir\n"
        "print('sympy.core' in sys.modules); dim = onnx_ir.SymbolicDim('n')\n"
        "print(hasattr(dim, '__mul__') and dim * 2)"
    )
    assert found.splitlines() in (["False", "2*n"], ["False", "False"])  # older ones of onnx_ir do no sums


def test_a_public_name_is_loaded_without_what_onnx_ir_seldom_needs() -> None:
    """Nobody else meets what stands in for it meanwhile."""
    found = ran(
        "import sys, halfwise; halfwise.convert; print('sympy' in sys.modules)\n"
        "import onnx_ir; dim = onnx_ir.SymbolicDim('n'); print(hasattr(dim, '__mul__') and dim * 2)\n"
        "import importlib.util; print(importlib.util.find_spec('sympy') is None or __import__('sympy').Symbol('x') + 1)"
    )
    assert found.splitlines() in (["False", "2*n", "x + 1"], ["False", "False", "x + 1"], ["False", "False", "True"])


def test_every_name_is_there_and_listed(says: Says) -> None:
    assert halfwise.__all__ == sorted(halfwise.__all__)
    for name in halfwise.__all__:
        found = getattr(halfwise, name)
        assert getattr(found, "__module__", found.__name__).startswith("halfwise.")
        assert found.__name__.rpartition(".")[2] == name
        assert name in dir(halfwise)
    assert "__version__" in dir(halfwise)
    with says.raises(AttributeError):
        halfwise.nothing  # noqa: B018


VERBS = ("scan", "trace", "fix", "verify", "demo")


@pytest.mark.parametrize(
    "first",
    [
        "import halfwise",
        ", ".join(["import halfwise", *(f"halfwise.verbs.{verb}" for verb in VERBS)]),
        "import halfwise.cli.main, halfwise.verbs.fix.fix, halfwise.torch",
    ],
)
def test_a_verb_is_a_function_whatever_was_imported_before(first: str) -> None:
    asked = [f"from halfwise import {verb} as f; print(halfwise.{verb} is f, type(f).__name__)" for verb in VERBS]
    assert ran("\n".join([first, "import halfwise", *asked])).splitlines() == ["True function"] * len(VERBS)


def test_the_package_is_typed_and_says_its_version() -> None:
    assert (Path(halfwise.__file__).parent / "py.typed").exists()
    assert metadata.version("halfwise") == halfwise.__version__
