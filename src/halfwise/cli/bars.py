"""Progress on a terminal: a bar, and below it what is being done, whole, on as many lines as it needs."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

__all__ = ["Bars"]


class Bars(Progress):
    """Vanishes when it ends. A task has a field `doing`, whose text is asked for whenever it is shown."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            SpinnerColumn(style="cyan"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            yield self.make_tasks_table([task])
            if doing := str(task.fields["doing"]):
                yield Text(f"  {doing}")
