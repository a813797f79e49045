"""The `halfwise` command, and `python -m halfwise`: a Ctrl-C is answered in one line from the first moment on."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; loading it takes long enough to be interrupted."""
    try:
        from halfwise.cli.supervise import supervised

        supervised(_command_line)
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one does not spoil the line
        print("halfwise: interrupted", file=sys.stderr)
        sys.exit(130)


def _command_line() -> None:
    from halfwise.core.put_off import put_off

    put_off()
    try:
        from halfwise.cli.main import main as command_line
    except (MemoryError, SystemError, ImportError) as error:  # what a small limit of memory makes of an import
        print(f"halfwise: it cannot be loaded: {type(error).__name__}: {error}"[:300], file=sys.stderr)
        sys.exit(2)
    command_line()


if __name__ == "__main__":
    main()
