"""What tests share: the real models, where there are any, a plain environment, and how properties choose examples."""

from __future__ import annotations

import gc
import secrets
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.paths import REAL_MODELS
from tests.support.says import (  # noqa: F401
    pytest_addoption,
    pytest_cmdline_main,
    pytest_runtest_call,
    pytest_sessionfinish,
    says,
)

# No verdict on how fast a busy machine is.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
EXPLORE = "explore"
settings.register_profile("same-every-time", PATIENT, derandomize=True, max_examples=40)  # for CI
settings.register_profile(
    EXPLORE, PATIENT, print_blob=True, derandomize=False, max_examples=100
)  # --hypothesis-profile explore
settings.load_profile("same-every-time")

SAYING = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """A run that explores has one fresh seed, which all of pytest's workers use, unless it was given one."""
    if config.option.hypothesis_profile == EXPLORE and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbits(32))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Says how to get the same examples again."""
    config = session.config
    if config.option.hypothesis_profile == EXPLORE and not hasattr(config, "workerinput"):
        terminal = config.pluginmanager.get_plugin("terminalreporter")
        terminal.write_line(f"--hypothesis-profile {EXPLORE} --hypothesis-seed {config.option.hypothesis_seed}")


def pytest_collection_finish() -> None:
    """Thousands of tests are a million objects, and whoever collects garbage in between would look through them all."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the width nor the colours of whatever runs the tests reach them; pytest's own workers set the width."""
    for name in SAYING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HALFWISE_CONTAIN", "0")  # what a test changes or looks at is in its own process


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
