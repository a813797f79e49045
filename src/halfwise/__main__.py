"""The `halfwise` command, and `python -m halfwise`: a Ctrl-C is answered in one line from the first moment on."""

from __future__ import annotations

import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; loading it takes long enough to be interrupted."""
    _fill_closed_streams()
    try:
        from halfwise.cli.supervise import supervised

        supervised(_command_line)
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one does not spoil the line
        print("halfwise: interrupted", file=sys.stderr)
        sys.exit(130)


def _fill_closed_streams() -> None:
    """Or a file of results gets the number of a stream that was closed, and what libraries print goes into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", errors="backslashreplace"))


def _command_line() -> None:
    from halfwise.core.put_off import put_off

    put_off()
    try:
        from halfwise.cli.main import main as command_line
    except (MemoryError, SystemError, ImportError) as error:  # what a small limit of memory makes of an import
        from halfwise.core.errors import interrupted

        if interrupted(error):
            raise KeyboardInterrupt from None
        print(f"halfwise: it cannot be loaded: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        sys.exit(2)
    command_line()


if __name__ == "__main__":
    main()
