"""Tables, pictures and buttons of a report in a real browser."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

from halfwise.report.numbers import percent
from halfwise.verbs.fix.output_shares import shares_by_output
from tests.models.report_models import hostile_result, overflow_result
from tests.support.chromium import SCROLL, Tab, tab, until


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
        assert "26 to 50 of 1," in box.locator("[role=status]").inner_text()
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

    def stays() -> bool:  # another process of the browser keeps the choice, and may be a moment behind
        page.reload()
        return bool(page.evaluate(ground) == dark)

    until(stays)
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
    assert any(text.startswith("/normalize/ReduceL2\nReduceL2: 28% of the error") for text in texts)
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
    output = choice.locator("option").nth(1).text_content()
    most = max(shares_by_output(overflow_result())[output].items(), key=lambda item: item[1])
    told = next(text for text in shown if text.startswith(most[0]))
    assert f"{percent(most[1])} of the error" in told or "breaks in FP16" in told
    choice.select_option(index=0)
    assert strips.first.is_visible() and strips.nth(1).is_hidden()


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
