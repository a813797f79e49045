"""What is tried: which file is damaged, which sound files stand beside it, and the command that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.fuzz.artifacts import Artifact, OnnxFile
from tools.fuzz.seeds import seed_model

__all__ = ["HERE", "MODEL", "PYTHON", "Attack", "Made", "saved", "sound"]

MODEL = "m.onnx"
HERE = "{here}"  # in a word: the folder of the run
PYTHON = "python"  # instead of a verb: the words are a public function and what it is given


@dataclass(frozen=True)
class Made:
    """The file to be damaged, and the others by name; `name` is its own where the attack does not know it."""

    damaged: Artifact
    beside: Mapping[str, bytes] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Attack:
    """One kind of attempt. `file` is the name of the damaged file, `words` the command line in its folder.

    `kept` is of a file that halfwise left for itself: something else may stand in its place. Where the answer must be
    the `same` as without the damage, results are compared. `large`: the models count as large ones.
    """

    name: str
    file: str
    words: tuple[str, ...]
    seeds: tuple[str, ...]
    make: Callable[[str], Made]
    artifact: type[Artifact]
    kept: bool = False
    same: bool = False
    large: bool = False

    @property
    def verb(self) -> str:
        return self.words[0]

    @property
    def of_model(self) -> bool:
        return self.artifact is OnnxFile


def sound(seed: str) -> bytes:
    return bytes(seed_model(seed).SerializeToString())


@contextmanager
def saved(seed: str) -> Iterator[Path]:
    with TemporaryDirectory(prefix="halfwise-fuzz-") as folder:
        path = Path(folder, MODEL)
        path.write_bytes(sound(seed))
        yield path
