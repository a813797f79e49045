"""The page of a comparison in a real browser: no complaint, no request, readable at every width, no serious fault."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from halfwise.report.html.compare import comparison_page
from halfwise.verbs.compare import compare
from tests.models.report_models import HOSTILE, overflow_result
from tests.support.chromium import AXE, open_browser, tab


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Better, worse and otherwise different, with hostile names among them."""
    a = overflow_result().to_json()
    b = json.loads(json.dumps(a))
    b["nodes"] = [{**a["nodes"][0], "name": name, "reason": name} for name in HOSTILE]
    b["target"] = "trt-10.9@t4"
    path = tmp_path_factory.mktemp("compare") / "c.html"
    path.write_text(comparison_page(compare(a, b)), encoding="utf-8")
    return path


def test_it_complains_of_nothing_and_asks_for_nothing(browser: Any, page_file: Path) -> None:
    with tab(browser) as opened:
        page = opened.open(page_file)
        assert page.locator("h1").inner_text() == "Some better, some worse"
        assert page.evaluate("window.stolen") is None
        assert page.locator(".way-worse").count() == len(HOSTILE)
        assert "<script>window.stolen=1</script>" in page.locator("#nodes").inner_text()
        assert opened.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_it_fits_and_axe_finds_no_serious_fault(browser: Any, page_file: Path, width: int, scheme: str) -> None:
    with tab(browser, width=width, color_scheme=scheme, bypass_csp=True) as opened:
        page = opened.open(page_file)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if not AXE.is_file():
            pytest.skip("axe-core is not here (pip install axe-playwright-python, or name axe.min.js in AXE_CORE)")
        page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
        assert serious == []
