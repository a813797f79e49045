"""The page of a fleet of 500 models in a real browser: light, read with the keyboard, one click from every report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from halfwise.fleet.write import PAGE, write_all
from tests.fleet.test_page import EVIL, MODELS, filled
from tests.support.chromium import AXE, SCROLL, tab, until

BROKEN = "network-77"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    write_all(folder, filled(folder))
    report = folder / "77" / "fix" / "out" / "m.report.html"
    report.parent.mkdir(parents=True)
    report.write_text("<!doctype html><title>its own report</title>", encoding="utf-8")
    assert (folder / PAGE).stat().st_size < 3_000_000
    return folder / PAGE


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_serious_and_nothing_is_fetched(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    with tab(browser, width=width, color_scheme=scheme, bypass_csp=True) as opened:
        page = opened.open(page_file)
        page.evaluate(SCROLL)
        page.locator("#filter").fill("77")  # a few rows tell as much as a hundred
        page.locator("#rows .open").first.click()
        assert opened.complaints == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.locator("main img").count() == 0  # of a model's evil name
        if not AXE.is_file():
            pytest.skip("axe-core is not here (pip install axe-playwright-python, or name axe.min.js in AXE_CORE)")
        page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")] == []


def test_what_broke_is_first_and_the_keyboard_leads_to_its_report(browser: Any, page_file: Path) -> None:
    with tab(browser) as opened:
        page = opened.open(page_file)
        rows = page.locator("#rows > tr")
        assert rows.count() < MODELS  # the others are built when they are asked for
        assert page.locator("#shown").inner_text() == f"{rows.count()} of {MODELS} models"
        first = rows.first.locator(".open")
        assert first.inner_text().endswith(BROKEN) and "worse" in rows.first.inner_text()
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.className") == "open":
                break
        page.keyboard.press("Enter")
        assert first.get_attribute("aria-expanded") == "true"
        assert page.locator("#rows a").count() == 1
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        until(lambda: page.title() == "its own report")


def test_names_and_states_are_filtered_and_all_are_there(browser: Any, page_file: Path) -> None:
    with tab(browser) as opened:
        page = opened.open(page_file)
        rows = page.locator("#rows > tr")
        page.locator("#state").select_option("not good")
        assert rows.count() == 1
        page.locator("#state").select_option("")
        page.locator("#filter").fill("onerror")
        assert rows.count() == 1 and EVIL in rows.first.inner_text()
        page.locator("#filter").fill("")
        page.locator("#all").click()
        assert rows.count() == MODELS
        page.locator("#theme").click()
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert opened.complaints == []
