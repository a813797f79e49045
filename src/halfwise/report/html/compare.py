"""Two documents side by side as one self-contained page, in the look of the report; it needs no script."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from halfwise._version import __version__
from halfwise.report.html.embed import content_hash
from halfwise.report.html.names import SHOWN, short
from halfwise.report.html.numbers import amount, number
from halfwise.report.text import safe
from halfwise.verbs.compare import Comparison
from halfwise.verbs.compare.result import Direction, Value

__all__ = ["comparison_page"]

_STYLES = ("tokens.css", "page.css", "print.css", "compare.css")
_MOST = 500  # rows of one section; --json has them all
_KEPT = 2_000  # characters of one name
_DIRECTIONS: tuple[tuple[Direction, str], ...] = (
    ("worse", "worse"),
    ("better", "better"),
    ("changed", "otherwise different"),
)


def comparison_page(result: Comparison) -> str:
    folder = files("halfwise.report.html").joinpath("assets")
    style = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _STYLES)
    environment = Environment(
        loader=PackageLoader("halfwise.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters.update(short=short, amount=amount, value=_value)
    return environment.get_template("compare.html").render(
        result=result,
        counts=[(result.count(each), words) for each, words in _DIRECTIONS],
        most=_MOST,
        width=SHOWN,
        kept=_KEPT,
        version=__version__,
        style=Markup(style),
        policy=f"default-src 'none'; style-src {content_hash(style)}; base-uri 'none'; form-action 'none'",
    )


def _value(value: Value) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return short(value, 120)
    return amount(value) if isinstance(value, int) else number(value)


def _shown(value: Any) -> Any:
    """Whatever text the template prints is data: what moves, hides or turns text is spelled out."""
    return safe(value) if isinstance(value, str) and not isinstance(value, Markup) else value
