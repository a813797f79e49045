"""What tests share: the real models, where there are any, a plain environment, and the same examples every time."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.paths import REAL_MODELS

# The same examples every time, and no verdict on how fast a busy machine is.
settings.register_profile(
    "same-every-time", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same-every-time")

SAYING = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the width nor the colours of whatever runs the tests reach them; pytest's own workers set the width."""
    for name in SAYING:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """A shell's background job ignores Ctrl-C, and so would every program that the tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_models() -> Path:
    """The folder of trained models beside the project; each has `model.onnx` and `inputs_*.npz`."""
    folder = REAL_MODELS
    if not folder.is_dir():
        pytest.skip("the folder of real models (../shared/models) is not there")
    return folder
