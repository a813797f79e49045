"""Whole reports in a real browser: nothing is fetched, nothing complains, names are text, paper is light."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from halfwise.report.text import safe
from tests.models.report_models import HOSTILE
from tests.support.chromium import AXE, SCROLL, tab

# Least contrast of all text against the ground that its nearest opaque ancestor paints.
CONTRAST = """() => {
  const light = (c) => {
    const [r, g, b] = c.map((x) => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const colour = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  let least = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("svg, script, noscript, [hidden], .skip")) continue;
    if (!element.checkVisibility()) continue;
    let ground = element;
    while (ground && colour(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
    const back = light(colour(ground ? getComputedStyle(ground).backgroundColor : "rgb(255,255,255)"));
    const front = light(colour(getComputedStyle(element).color));
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    if (ratio < least[0] && !element.closest(":disabled")) least = [ratio, element.outerHTML.slice(0, 120)];
  }
  return least;
}"""


@pytest.mark.parametrize("name", ["overflow", "repaired", "healthy", "hostile", "large"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_nothing_complains_and_nothing_is_fetched(
    browser: Any, reports: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    with tab(browser, width=width, color_scheme=scheme) as opened:
        page = opened.open(reports[name])
        page.evaluate(SCROLL)
        assert opened.complaints == []
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.evaluate("window.stolen") is None
        least, where = page.evaluate(CONTRAST)
        assert least >= 4.5, where


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("overflow", 1280, "light"), ("overflow", 390, "dark"), ("repaired", 1280, "dark"), ("healthy", 390, "light"),
     ("hostile", 1280, "light")],
)  # fmt: skip
def test_axe_finds_no_serious_fault(browser: Any, reports: dict[str, Path], name: str, width: int, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not here (pip install axe-playwright-python, or name axe.min.js in AXE_CORE)")
    with tab(browser, width=width, color_scheme=scheme, bypass_csp=True) as opened:
        page = opened.open(reports[name])
        page.evaluate("dispatchEvent(new Event('beforeprint')); dispatchEvent(new Event('afterprint'))")
        page.locator("#scopes > summary").click()
        page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
        serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
        assert serious == []


def test_hostile_names_are_text_everywhere(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser, width=1600) as opened:
        page = opened.open(reports["hostile"])
        page.evaluate(SCROLL)
        page.locator("#scopes > summary").click()
        page.locator("#graph-hops").select_option("8")
        for node in range(page.locator("#graph-view .node").count()):
            page.locator("#graph-view .node").nth(node).hover(force=True)
        assert page.evaluate("window.stolen") is None
        assert page.locator("main img, main script, main b > img").count() == 0
        text = page.locator("main").inner_text()
        for name in HOSTILE[:6]:
            assert safe(name) in text
        long = HOSTILE[-1]
        assert long not in text and "last_of_ten_thousand" in text
        page.evaluate("document.querySelectorAll('#culprits details').forEach((each) => { each.open = true; })")
        button = page.locator("#culprits button[data-more]").first
        button.click()
        assert page.locator("#culprits code", has_text=long).count() == 1
        button.click()
        assert page.locator("#culprits code", has_text=long).count() == 0
        assert opened.complaints == []


def test_paper_is_light_and_without_controls(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser, color_scheme="dark", width=720) as opened:  # of A4, in CSS pixels
        page = opened.open(reports["overflow"])
        page.emulate_media(media="print", color_scheme="dark")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 29, 32)"
        for hidden in ("nav", "#theme", ".copy", ".graph-tools"):
            assert page.locator(hidden).first.is_hidden()
        assert page.locator("#graph-view .node").count() > 0
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.locator('[data-table="tensors"] tbody tr').count() > 10


def test_without_javascript_the_story_is_there(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser, java_script_enabled=False) as opened:
        page = opened.open(reports["overflow"])
        text = page.locator("main").inner_text()
        assert "stays accurate in FP16" in text and "/area/ReduceSum" in text and "This table needs JavaScript" in text


def test_scrolling_a_large_model_has_no_long_task(browser: Any, reports: dict[str, Path]) -> None:
    """Times come from the browser; the worst of the page's own tasks counts, and a busy machine gets more tries."""
    longest = 1e9
    for _ in range(6):
        with tab(browser) as opened:
            page = opened.page
            page.add_init_script(
                "window.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries()"
                ".map((task) => task.duration))).observe({ type: 'longtask', buffered: true });"
            )
            opened.open(reports["large"])
            page.wait_for_timeout(300)
            page.evaluate("tasks.length = 0")
            page.evaluate(SCROLL)
            page.wait_for_timeout(200)
            longest = min(longest, max(page.evaluate("tasks"), default=0))
            if longest < 200:
                break
    assert longest < 200
