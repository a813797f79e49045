"""Without PyTorch: `import halfwise.torch` costs nothing, and what needs it says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.says import Says

WITHOUT = """
import sys
sys.modules["torch"] = None  # as if it were not installed
import halfwise.torch
from halfwise import MissingBackend
"""


def ran(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_imports_nothing_heavy() -> None:
    names = ran("import sys, halfwise.torch; print(*sys.modules)").split()
    assert not {"torch", "onnx", "numpy"} & set(names)


@pytest.mark.parametrize("call", ["check_autocast(None, None)", "stages(None, None)"])
def test_what_needs_pytorch_says_so_in_one_line(call: str, says: Says) -> None:
    told = ran(f"{WITHOUT}\ntry: halfwise.torch.{call}\nexcept MissingBackend as e: print(e.exit_code, e)")
    says(told)


def test_bindings_of_arrays_are_checked_without_it(says: Says) -> None:
    code = f"""{WITHOUT}
import numpy as np, onnx
from onnx import TensorProto, helper
x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y]))
print(halfwise.torch.check_bindings({{"x": np.zeros(2)}}, model))
"""
    says(ran(code))


def test_names() -> None:
    import halfwise.torch

    assert set(halfwise.torch.__all__) <= set(dir(halfwise.torch))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        halfwise.torch.nothing  # noqa: B018
