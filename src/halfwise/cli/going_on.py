"""What is said when a command is interrupted that writes no results: whether the same one goes on from what it did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halfwise.cli.options import Interrupted

__all__ = ["going_on"]


@contextmanager
def going_on(command: str, *sources: Path) -> Iterator[None]:
    """A Ctrl-C tells how many walks through a large model are kept."""
    try:
        yield
    except KeyboardInterrupt:
        from halfwise.core.wording import counted
        from halfwise.emulation.cached_walks import finished_walks

        done = finished_walks(command, *sources)
        kept = f"; run the same command to resume from {counted(done, 'finished walk')}" if done else ""
        raise Interrupted(f"interrupted{kept}") from None
