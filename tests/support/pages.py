"""The HTML report as a browser would see it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

from halfwise.report.html.write import render
from halfwise.verbs.fix.result import FixResult

__all__ = ["WHEN", "Page", "shown"]


WHEN = datetime(2024, 5, 6, 7, 8, tzinfo=UTC)


class Page(HTMLParser):
    """What a browser would see: text, attributes, and the content of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._inside = tag if tag in self.raw else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.raw[self._inside].append(data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    @property
    def lines(self) -> list[str]:
        """The text piece by piece, as the tags part it."""
        return [" ".join(words.split()) for words in self.words if words.strip()]

    @property
    def data(self) -> dict[str, Any]:
        return dict(json.loads(self.raw["script"][0]))

    @property
    def policy(self) -> str:
        return next(a["content"] for t, a in self.tags if a.get("http-equiv") == "Content-Security-Policy")


def shown(result: FixResult, command: str = "", **more: Any) -> Page:
    others = {"scan": None, "trace": None, "by_output": {}, **more}
    return Page(render(result, command=command, when=WHEN, **others))
