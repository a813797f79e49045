"""The pytest plugin: a fixture that fails a test where a committed plan no longer holds for its model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from halfwise.verbs.gate import Gate

__all__ = ["halfwise_keeps"]


@pytest.fixture(scope="session")
def halfwise_keeps() -> Callable[..., Gate]:
    """`halfwise_keeps(model, plan, inputs)` fails where the plan does not hold, and warns where it
    holds on these inputs alone; other arguments are those of `gate`."""

    def keeps(model: Any, plan: Any, inputs: Any = None, **options: Any) -> Gate:
        __tracebackhide__ = True
        from halfwise import gate
        from halfwise.core.english import say
        from halfwise.core.errors import HalfwiseError

        refused = ""
        try:
            checked = gate(plan, model, inputs, **options)
        except HalfwiseError as error:
            refused = str(error)
        if refused:  # outside of the handler, so that one line is all that is told
            pytest.fail(f"halfwise: {refused}", pytrace=False)
        said = f"{checked.plan} {checked.told} for {checked.model.path or 'the model'}"
        if not checked.holds:
            failed = [check for check in checked.checks if check.status == "fail"]
            told = [f"{check.id}: {check.message}" for check in failed]
            pytest.fail("\n  ".join([f"{said}:", *told]), pytrace=False)
        if checked.caution is not None:
            warnings.warn(f"{said}: {say(checked.caution)}", UserWarning, stacklevel=2)
        return checked

    return keeps
