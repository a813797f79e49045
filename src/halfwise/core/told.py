"""What a job is at: a text for whoever listens, and with it, as data, the step and how long the rest takes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Stand", "TimeLeft", "Told"]


@dataclass(frozen=True)
class TimeLeft:
    """How long the rest takes, as estimated at a moment of `time.monotonic`; `least`: no less than that.

    Of each second that passes so much was foreseen as `pace` tells: less than all of it where the end is not known.
    """

    seconds: float
    at: float
    least: bool = False
    pace: float = 1.0

    def after(self, now: float) -> float:
        return max(self.seconds - self.pace * (now - self.at), 0.0)

    def text(self, now: float) -> str:
        """Empty where it took longer than was thought: nobody knows."""
        seconds = self.after(now)
        if seconds < 0.5:
            return ""
        spoken = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return f"{'at least' if self.least else 'about'} {spoken} left"


@dataclass(frozen=True)
class Stand:
    """The step, where in it, the model runs spent, and the time left. What `stays` is a message, no step: it is to be
    seen while the job goes on."""

    step: str = ""
    part: str = ""
    runs: float | None = None
    left: TimeLeft | None = None
    stays: bool = False

    def text(self, now: float) -> str:
        left = "" if self.left is None else self.left.text(now)
        spent = f", {self.runs:.0f} runs done" if left and self.runs is not None else ""
        return ": ".join(each for each in (f"{left}{spent}", self.step, self.part) if each)


class Told(str):
    """The text of a stand, as a caller's `notify` gets it; who shows it for long can count the time down."""

    stand: Stand

    def __new__(cls, text: str, stand: Stand) -> Told:
        made = super().__new__(cls, text)
        made.stand = stand
        return made

    def __getnewargs__(self) -> tuple[str, Stand]:  # type: ignore[override]
        return str(self), self.stand

    @staticmethod
    def stand_of(text: str) -> Stand:
        return text.stand if isinstance(text, Told) else Stand(text)
