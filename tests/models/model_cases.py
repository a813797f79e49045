"""Models to load, and how loading refuses them."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from halfwise.core.errors import InputError
from halfwise.model.model import load
from tests.models.build import model, node, value


def refusal(source: Any) -> str:
    with pytest.raises(InputError) as caught:
        load(source)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def relu(**changes: Any) -> onnx.ModelProto:
    return model([node("Relu", "x", "y")], [value("x")], [value("y")], **changes)
