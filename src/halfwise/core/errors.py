"""What goes wrong for a user: one line each, with the exit code that the command line answers with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["HalfwiseError", "InputError", "MissingBackend", "NoRoom", "interrupted", "of_sample"]


class HalfwiseError(Exception):
    """Base of every error a user can cause or correct; its text is one line: what, where, what to do."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class InputError(HalfwiseError):
    """Bad usage or bad input; nothing was written."""


class NoRoom(InputError):
    """A disk is full; the same command goes on when it is not."""


class MissingBackend(HalfwiseError):
    """A backend or an extra is not there; the line says what to install."""

    exit_code = 3


def interrupted(error: BaseException | None) -> bool:
    """Whether a Ctrl-C is behind it, of which a library made an error of its own, as while it was loaded."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


@contextmanager
def of_sample(index: int) -> Iterator[None]:
    """An error tells which sample it was, where others went before."""
    try:
        yield
    except InputError as error:
        if index:
            raise InputError(f"{error}, with sample {index + 1}") from error
        raise
