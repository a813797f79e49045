"""The graph of a report in a real browser: jumps, the panel of a node, the overview, the tree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.support.chromium import Tab, tab, until


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
    page.locator(".show-node:visible").first.click()
    view = page.locator("#graph-view")
    view.scroll_into_view_if_needed()
    page.wait_for_selector("#graph-view .node.current")
    assert page.locator("#graph-detail h3").inner_text() == page.locator("#culprits header code").first.inner_text()
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


def test_the_panel_tells_shapes_attributes_weights_and_results(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser) as opened:
        page = opened.open(reports["healthy"])
        page.locator("#graph").scroll_into_view_if_needed()
        told = ""
        for node in range(page.evaluate("JSON.parse(document.getElementById('data').textContent).graph.nodes.length")):
            page.evaluate(f"location.hash = 'node-{node}'")
            until(lambda node=node: page.locator(f'#graph-view .current[data-node="{node}"]').count() == 1)
            told += page.locator("#graph-detail").inner_text()
            if page.locator("#graph-detail .bins").count() > 1:
                break
        assert page.locator("#graph-detail .bins [class^=column-]").count() > 6
        assert re.search(r"gives\n\d+", told) and "weights" in told and "results" in told


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


def test_the_graph_shows_a_neighbourhood_of_a_large_model(browser: Any, reports: dict[str, Path]) -> None:
    with tab(browser) as opened:
        page = opened.open(reports["large"])
        page.locator("#graph").scroll_into_view_if_needed()
        page.locator("#graph-hops").select_option("8")
        assert 10 < page.locator("#graph-view .node").count() <= 90
        assert re.search(r"nodes of 1,477; [\d,]+ edges lead on", page.locator("#graph-status").inner_text())


def test_the_tree_holds_every_node(overflow: Tab) -> None:
    page = overflow.page
    page.locator("#scopes > summary").click()
    until(lambda: page.locator("#tree summary").count() > 0)
    while page.locator("#tree details:not([open]) > summary").count():
        page.locator("#tree details:not([open]) > summary").first.click()
    until(lambda: page.locator("#tree li").count() == 22)
    page.locator("#tree li button").first.click()
    assert page.locator("#graph-detail h3").count() == 1
