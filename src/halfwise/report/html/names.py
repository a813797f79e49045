"""Names out of a model, kept once each for the page: made safe, long ones shortened in the middle, full on demand."""

from __future__ import annotations

from halfwise.report.text import safe

__all__ = ["Names", "short"]

SHOWN = 72  # characters of a name in a line of text
KEPT = 12_000  # characters of one name that the page holds
ALL_KEPT = 500_000  # characters of all names beyond their shown part, in one page


class Names:
    """A table of safe names; each text has one index, however often it is shown."""

    def __init__(self) -> None:
        self.table: list[str] = []
        self._index: dict[str, int] = {}
        self._room = ALL_KEPT

    def __call__(self, text: str) -> int:
        index = self._index.get(text)
        if index is None:
            index = self._index[text] = len(self.table)
            self.table.append(self._kept(safe(text)))
        return index

    def _kept(self, name: str) -> str:
        """The whole name, while names of this length have room."""
        more = len(name) - SHOWN
        if more <= 0:
            return name
        if len(name) <= KEPT and more <= self._room:
            self._room -= more
            return name
        return f"{short(name)} [{len(name) - SHOWN:,} characters left out of this report]"


def short(text: str, width: int = SHOWN) -> str:
    """The text made safe, with its middle left out where it is longer than `width`."""
    return safe(text, width)
