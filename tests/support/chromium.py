"""A real browser for the tests: Debian's Chromium, driven by Playwright; skipped with a reason where one is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["AXE", "SCROLL", "Tab", "open_browser", "tab", "until"]

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""


def _axe() -> Path:
    """The script of axe-core: where `AXE_CORE` says, or in the Python package that brings it along."""
    found = importlib.util.find_spec("axe_playwright_python")
    folder = Path(found.origin).parent if found is not None and found.origin else Path()
    return Path(os.environ.get("AXE_CORE") or folder / "axe.min.js")


AXE = _axe()
# A page that is not painted is given no frames.
SCROLL = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += 500) {
    scrollTo({ top: y, behavior: "instant" });
    await new Promise((done) => { setTimeout(done, 250); requestAnimationFrame(() => setTimeout(done, 0)); });
  }
}"""
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


class Tab:
    """One page with everything that went wrong in it: console messages, errors, and requests beyond the file."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith("file:") else self.complaints.append(r.url))

    def open(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        return self.page


@contextmanager
def open_browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (pip install playwright)")
    if not CHROMIUM:
        pytest.skip("there is no Chromium (apt-get install chromium, or name one in CHROMIUM)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@contextmanager
def tab(browser: Any, **options: Any) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": options.pop("width", 1280), "height": 900}, **options)
    yield Tab(context.new_page())
    context.close()


def until(holds: Callable[[], bool]) -> None:
    """What the page does a moment later; its policy forbids the browser driver to wait inside it."""
    for _ in range(200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come to hold")
