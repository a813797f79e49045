"""One browser for the tests of a file's pages, and the reports of five models, each made when it is first opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halfwise.report.html import write_report
from halfwise.verbs.fix.output_shares import shares_by_output
from tests.models.report_models import healthy_result, hostile_result, large_result, overflow_result, repaired_result
from tests.support.chromium import Tab, open_browser, tab

MAKERS = {
    "overflow": overflow_result,
    "repaired": repaired_result,
    "healthy": healthy_result,
    "hostile": hostile_result,
    "large": large_result,
}


class Reports(dict[str, Path]):
    """The report of a model by its name."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Path:
        result, path = MAKERS[name](), self.folder / f"{name}.html"
        command = "halfwise fix model.onnx --inputs data"
        self[name] = write_report(result, path, command=command, by_output=shares_by_output(result))
        return self[name]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Reports:
    return Reports(tmp_path_factory.mktemp("reports"))


@pytest.fixture
def overflow(browser: Any, reports: Reports) -> Iterator[Tab]:
    with tab(browser, permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.open(reports["overflow"])
        yield opened
        assert opened.complaints == []
