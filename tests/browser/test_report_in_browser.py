"""The report in a real browser: nothing is fetched, nothing complains; search, sort, graph, copying and paper work."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halfwise.report.html import write_report
from halfwise.report.numbers import percent
from halfwise.report.text import safe
from halfwise.verbs.fix.output_shares import shares_by_output
from tests.models.report_models import (
    HOSTILE,
    healthy_result,
    hostile_result,
    large_result,
    overflow_result,
    repaired_result,
)
from tests.support.chromium import AXE, Tab, open_browser, tab

SCROLL = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += 500) {
    scrollTo({ top: y, behavior: "instant" });
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  }
}"""
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    results = {
        "overflow": overflow_result,
        "repaired": repaired_result,
        "healthy": healthy_result,
        "hostile": hostile_result,
        "large": large_result,
    }
    command = "halfwise fix model.onnx --inputs data"
    return {
        name: write_report(result, folder / f"{name}.html", command=command, by_output=shares_by_output(result))
        for name, result in ((name, make()) for name, make in results.items())
    }


@pytest.fixture
def overflow(browser: Any, reports: dict[str, Path]) -> Iterator[Tab]:
    with tab(browser, permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.open(reports["overflow"])
        yield opened
        assert opened.complaints == []


def until(holds: Callable[[], bool]) -> None:
    """What the page does a moment later; its policy forbids the browser driver to wait inside it."""
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come to hold")


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


def test_the_verdict_and_a_culprit_are_drawn(overflow: Tab) -> None:
    page = overflow.page
    verdict = page.locator("#verdict svg.meter")
    line = verdict.locator("line.allowed").bounding_box()
    bad, good = (verdict.locator(f".mark-{word}").bounding_box() for word in ("bad", "ok"))
    assert good["x"] + good["width"] / 2 < line["x"] < bad["x"]
    card = page.locator(".card", has_text="/area/ReduceSum").first
    axis = card.locator("svg.axis")
    over = axis.locator(".zone-over").bounding_box()
    writes, reads = (axis.locator(f".range-{word}").first.bounding_box() for word in ("writes", "reads"))
    assert writes["x"] >= over["x"] > reads["x"] + reads["width"]
    assert "reads" in card.inner_text() and "128,516 … 160,030" in card.inner_text()


def test_tensors_are_searched_filtered_and_sorted(overflow: Tab) -> None:
    page = overflow.page
    box = page.locator('[data-table="tensors"]')
    box.scroll_into_view_if_needed()
    rows = box.locator("tbody tr")
    until(lambda: rows.count() > 0)
    assert "O overflow" in rows.first.inner_text()  # the worst first
    box.locator("input").fill("entropy")
    matching = sum("entropy" in name for name in overflow_result().measured.ranges)
    until(lambda: rows.count() == matching)
    assert all("entropy" in text or "Reduce" in text for text in rows.all_inner_texts())
    box.locator("input").fill("no such tensor")
    until(lambda: rows.all_inner_texts() == ["No tensor matches."])
    box.locator("input").fill("")
    box.locator("select").select_option(label="overflow (3)")
    until(lambda: rows.count() == 3)
    box.locator("select").select_option("")
    head = box.locator("thead th", has_text="Values")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert "2,648,000" in rows.first.inner_text()
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"


def test_a_long_table_has_pages(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser) as opened:
        page = opened.open(reports["large"])
        box = page.locator('[data-table="tensors"]')
        box.scroll_into_view_if_needed()
        until(lambda: box.locator("tbody tr").count() == 25)
        first = box.locator("tbody tr").first.inner_text()
        box.get_by_role("button", name="Next").click()
        assert "26 to 50 of 2,5" in box.locator("[role=status]").inner_text()
        assert box.locator("tbody tr").first.inner_text() != first
        box.get_by_role("button", name="Previous").click()
        assert box.locator("tbody tr").first.inner_text() == first


def test_a_command_is_copied_as_it_is_shown(overflow: Tab) -> None:
    page = overflow.page
    command = page.locator("#about .command")
    command.locator("button").click()
    command.locator("button", has_text="Copied").wait_for()  # the clipboard answers when it likes
    assert page.evaluate("navigator.clipboard.readText()") == "halfwise fix model.onnx --inputs data"


def test_the_colours_change_and_stay(overflow: Tab) -> None:
    page = overflow.page
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    button = page.locator("#theme")
    button.click()
    assert page.evaluate(ground) == light and "light" in button.inner_text()
    button.click()
    dark = page.evaluate(ground)
    assert dark != light and "dark" in button.inner_text()
    page.reload()
    assert page.evaluate(ground) == dark
    button.click()
    assert page.evaluate(ground) == light


def test_pointing_and_arrow_keys_read_the_strip(overflow: Tab) -> None:
    page = overflow.page
    strip = page.locator('[data-strip="ranges"]')
    strip.scroll_into_view_if_needed()
    strip.locator("> svg").hover()
    page.wait_for_selector("#hover:not([hidden])")
    strip.focus()
    page.keyboard.press("Home")
    first = page.locator("#hover").inner_text()
    page.keyboard.press("ArrowRight")
    assert page.locator("#hover").inner_text() != first
    page.keyboard.press("Escape")
    assert page.locator("#hover").is_hidden()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.locator("#graph-detail h3").inner_text().startswith("/entropy/")


def test_the_error_along_the_model_is_pointed_at(overflow: Tab) -> None:
    page = overflow.page
    strip = page.locator('[data-strip="shares"]').first
    strip.scroll_into_view_if_needed()
    broken = strip.locator("svg .share-line-break")  # one line a node, to the top: larger than any share
    until(lambda: broken.count() == 1)
    assert re.findall("V(.*?)(?=M|$)", broken.get_attribute("d")) == ["0"] * 5
    strip.focus()
    page.keyboard.press("Home")
    texts = [page.locator("#hover").inner_text()]
    for _ in range(21):
        page.keyboard.press("ArrowRight")
        texts.append(page.locator("#hover").inner_text())
    assert sum("breaks in FP16" in text for text in texts) == 5
    assert any(text.startswith("/normalize/ReduceL2\nReduceL2: 33% of the error") for text in texts)
    assert sum("kept in FP32" in text for text in texts) == len(overflow_result().plan.nodes)
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    until(lambda: page.locator("#graph-detail h3").all_inner_texts() == ["/area/ReduceSum"])


def test_the_error_along_the_model_is_shown_output_by_output(overflow: Tab) -> None:
    page = overflow.page
    choice, strips = page.locator("#along-view"), page.locator('[data-strip="shares"]')
    assert choice.locator("option").first.inner_text() == "all outputs together"
    assert strips.count() == choice.locator("option").count() > 2
    choice.select_option(index=1)
    assert strips.first.is_hidden() and strips.nth(1).is_visible()
    strips.nth(1).scroll_into_view_if_needed()
    until(lambda: strips.nth(1).locator("svg .thin").count() > 0)
    strips.nth(1).focus()
    page.keyboard.press("Home")
    shown = [page.locator("#hover").inner_text()]
    for _ in range(60):
        page.keyboard.press("ArrowRight")
        shown.append(page.locator("#hover").inner_text())
    output = choice.locator("option").nth(1).inner_text()
    most = max(shares_by_output(overflow_result())[output].items(), key=lambda item: item[1])
    told = next(text for text in shown if text.startswith(most[0]))
    assert f"{percent(most[1])} of the error" in told or "breaks in FP16" in told
    choice.select_option(index=0)
    assert strips.first.is_visible() and strips.nth(1).is_hidden()


def test_a_repaired_culprit_leads_to_what_replaced_it(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser) as opened:
        page = opened.open(reports["repaired"])
        card = page.locator(".card", has_text="/log_sum_exp/Exp").first
        card.get_by_role("button", name="Show what replaced it").click()
        page.wait_for_selector("#graph-view .node.current.state-repaired")
        assert "ReduceLogSumExp" in page.locator("#graph-detail .tags").inner_text()
        assert opened.complaints == []


def test_the_graph_is_walked_by_keyboard_and_zoomed(overflow: Tab) -> None:
    page = overflow.page
    page.locator(".show-node").first.click()
    view = page.locator("#graph-view")
    view.scroll_into_view_if_needed()
    page.wait_for_selector("#graph-view .node.current")
    assert page.locator("#graph-detail h3").inner_text() == page.locator("#culprits h3 code").first.inner_text()
    assert "32" in view.locator(".node.current .letter").text_content()
    assert "share of the error" in page.locator("#graph-detail dl").inner_text()
    assert view.locator(".cast").count() >= 1
    before = view.locator("> g").get_attribute("transform")
    page.locator("#zoom-in").click()
    zoomed = view.locator("> g").get_attribute("transform")
    assert zoomed != before
    view.focus()
    page.keyboard.press("ArrowDown")
    assert view.locator("> g").get_attribute("transform") != zoomed
    other = view.locator(".node:not(.current)").first
    name = other.get_attribute("data-node")
    other.focus()
    page.keyboard.press("Enter")
    assert view.locator(".node.current").get_attribute("data-node") == name
    page.locator("#graph-search").fill("log_sum_exp/Log")
    page.keyboard.press("Enter")
    assert "log_sum_exp/Log" in page.locator("#graph-detail h3").inner_text()


def test_jumps_land_where_they_point(browser: Any, reports: dict[str, Path]) -> None:
    """Tables and pictures above the place are built before the page moves."""
    with tab(browser, reduced_motion="reduce") as opened:
        page = opened.open(reports["large"])
        for link in page.locator("#contents a").all()[::-1]:
            page.evaluate("scrollTo(0, 0)")
            link.click()
            place = link.get_attribute("href").removeprefix("#")
            top = f"document.getElementById({place!r}).getBoundingClientRect().top"
            end = "scrollY + innerHeight >= document.documentElement.scrollHeight - 2"
            until(lambda top=top, end=end: -2 <= page.evaluate(top) <= 40 or page.evaluate(end))
        page.reload()
        assert opened.complaints == []


def test_the_chosen_node_is_in_the_address_and_back_works(overflow: Tab, reports: dict[str, Path]) -> None:
    page = overflow.page
    heading = page.locator("#graph-detail h3")
    page.locator(".show-node:visible").first.click()
    first, named = page.evaluate("location.hash"), heading.inner_text()
    assert re.fullmatch(r"#node-\d+", first)
    page.locator("#graph-detail ul button").first.click()
    assert heading.inner_text() != named and page.evaluate("location.hash") != first
    page.go_back()
    until(lambda: heading.inner_text() == named)
    page.goto(reports["healthy"].as_uri())
    page.goto(reports["overflow"].as_uri() + first)
    until(lambda: heading.all_inner_texts() == [named])
    assert abs(page.evaluate("document.getElementById('graph').getBoundingClientRect().top")) < 60


def test_the_panel_tells_shapes_attributes_and_weights(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser) as opened:
        page = opened.open(reports["healthy"])
        page.locator("#graph").scroll_into_view_if_needed()
        told = ""
        for node in range(page.evaluate("JSON.parse(document.getElementById('data').textContent).graph.nodes.length")):
            page.evaluate(f"location.hash = 'node-{node}'")
            until(lambda node=node: page.locator(f'#graph-view .current[data-node="{node}"]').count() == 1)
            told += page.locator("#graph-detail").inner_text()
            if page.locator("#graph-detail .bins").count():
                break
        assert page.locator("#graph-detail .bins [class^=column-]").count() > 3
        assert re.search(r"gives\n\d+", told) and "weights" in told


def test_the_overview_has_every_node_and_opens_one(overflow: Tab) -> None:
    page = overflow.page
    strip = page.locator('[data-strip="overview"]')
    strip.scroll_into_view_if_needed()
    until(lambda: strip.locator("[class*=area-]").count() > 1)
    drawn = [path.get_attribute("d") for path in strip.locator("[class*=area-]").all()]
    kinds = [path.get_attribute("class") for path in strip.locator("[class*=area-]").all()]
    nodes = [d for d, kind in zip(drawn, kinds, strict=True) if not re.search("share|break", kind)]
    assert sum(d.count("M") for d in nodes) == 22
    strip.focus()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    until(lambda: page.locator("#graph-detail h3").count() == 1)


def test_every_table_is_saved_as_csv(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser, accept_downloads=True) as opened:
        page = opened.open(reports["hostile"])
        page.evaluate(SCROLL)
        buttons = page.locator("button.csv")
        assert buttons.count() >= page.locator("main table").count() > 2
        with page.expect_download() as saved:
            page.locator('[data-table="tensors"] button.csv').click()
        with Path(saved.value.path()).open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
        tensors = hostile_result().measured.ranges
        assert len(rows) == 1 + len(tensors) and {len(row) for row in rows} == {len(rows[0])}
        assert not any(cell[:1] in ("=", "+", "@") for row in rows for cell in row)
        assert opened.complaints == []


def test_the_tree_holds_every_node(overflow: Tab) -> None:
    page = overflow.page
    page.locator("#scopes > summary").click()
    until(lambda: page.locator("#tree summary").count() > 0)
    while page.locator("#tree details:not([open]) > summary").count():
        page.locator("#tree details:not([open]) > summary").first.click()
    until(lambda: page.locator("#tree li").count() == 22)
    page.locator("#tree li button").first.click()
    assert page.locator("#graph-detail h3").count() == 1


def test_the_graph_shows_a_neighbourhood_of_a_large_model(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser) as opened:
        page = opened.open(reports["large"])
        page.locator("#graph").scroll_into_view_if_needed()
        page.locator("#graph-hops").select_option("8")
        assert 10 < page.locator("#graph-view .node").count() <= 90
        assert re.search(r"nodes of 2,941; [\d,]+ edges lead on", page.locator("#graph-status").inner_text())


def test_scrolling_a_large_model_has_no_long_task(browser: Any, reports: dict[str, Path]) -> None:
    """Times come from the browser; the worst of the page's own tasks counts, and a busy machine gets a second try."""
    longest = 1e9
    for _ in range(3):
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
        button = page.locator("#culprits button.more").first
        button.click()
        assert page.locator("#culprits h3 code", has_text=long).count() == 1
        button.click()
        assert page.locator("#culprits h3 code", has_text=long).count() == 0
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


@pytest.mark.parametrize("name", ["overflow", "repaired", "healthy", "hostile"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
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
