"""Takes the README's picture: the top of the demo's report, light and dark, as Chromium draws it.

python -m tools.picture        (needs the `browser` dependency group and a Chromium; CHROMIUM names another one)
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from halfwise.report.html import write_report
from halfwise.verbs.demo import demo
from halfwise.verbs.scan import scan

__all__ = ["FOLDER", "main"]

FOLDER = Path(__file__).parent.parent / "docs" / "images"
SIZE: Any = {"width": 1180, "height": 1075}
SHARPNESS = 1.0


def main() -> int:
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("there is no Chromium here (apt-get install chromium, or name one in CHROMIUM)", file=sys.stderr)
        return 3
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        result = demo(Path(folder) / "demo").fix
        report = write_report(result, Path(folder) / "report.html", scan=scan(result.model), command="halfwise demo")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport=SIZE, color_scheme=scheme, device_scale_factor=SHARPNESS)
            page = context.new_page()
            page.goto(report.as_uri())
            page.screenshot(path=FOLDER / f"report-{scheme}.png")
            context.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
