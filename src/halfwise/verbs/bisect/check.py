"""The user's own program as the judge of a build."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from halfwise.core.child.process import run
from halfwise.core.errors import InputError, MissingBackend
from halfwise.verbs.bisect.culprits import Answer

__all__ = ["Checker"]

_SKIP = 125  # as in `git bisect run`


@dataclass(frozen=True)
class Checker:
    """Calls `command MODEL [OUTPUTS]`: the typed model, and the folder with what the backend answered, if one ran it.

    OUTPUTS holds 0.npz, 1.npz, ..., one file a sample; HALFWISE_REFERENCE names the folder with the FP32 answers.
    """

    command: str

    def words(self) -> list[str]:
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise InputError(f"--check {self.command!r}: {error}") from None
        if not words:
            raise InputError("--check: the command is empty")
        if shutil.which(words[0]) is None:
            raise InputError(
                f"--check: {words[0]!r} is no program that can be started; write its path, or put it on PATH"
            )
        return words

    def judge(self, model: Path, outputs: Path | None, reference: Path | None, time_limit_s: float) -> Answer:
        """Exit code 0 is good, 1 is bad, 125 says nothing; any other is an error of the program's own."""
        words = [*self.words(), str(model), *([str(outputs)] if outputs is not None else [])]
        environment = {} if reference is None else {"HALFWISE_REFERENCE": str(reference)}
        try:  # what it prints is for people: it goes to stderr, because stdout is for the answer
            ended = run(words, log_path=None, time_limit_s=time_limit_s, environment=environment)
        except MissingBackend as error:
            raise InputError(f"--check: {error}") from None
        if ended.timed_out:
            return Answer.FAILED
        code = ended.returncode
        if code in (0, 1):
            return Answer.GOOD if code == 0 else Answer.BAD
        if code == _SKIP:
            return Answer.FAILED
        told = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise InputError(f"--check: {words[0]!r} {told}; 0 means good, 1 bad, 125 cannot tell; no other code is known")
