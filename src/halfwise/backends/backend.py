"""What every backend takes and gives back: a model file and samples in, outputs and a record of what ran them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from msgspec import field
from numpy.typing import NDArray

from halfwise.core.document import Count, Record
from halfwise.core.errors import HalfwiseError
from halfwise.core.notes import Note, NoteKind

if TYPE_CHECKING:  # a child that runs a model loads little
    from halfwise.model.inputs.rollout import Rollout

__all__ = [
    "OPTIMIZATIONS",
    "Backend",
    "BackendFailure",
    "BackendOptions",
    "BackendRecord",
    "BackendRun",
    "Installed",
    "Optimization",
    "RunsSteps",
    "Traits",
]

Feed = Mapping[str, NDArray[Any]]
Optimization = Literal["disable", "basic", "extended", "all"]

OPTIMIZATIONS: tuple[Optimization, ...] = ("disable", "basic", "extended", "all")


@dataclass(frozen=True)
class BackendOptions:
    """How to run. Every one of these is in the record of the result."""

    device: int = 0
    tf32: bool = False
    optimization: Optimization = "all"  # of ONNX Runtime's graph; TensorRT has no such switch
    io_binding: bool = False  # inputs and outputs held on the device
    time_limit_s: float = 600.0  # for building and running one model


@dataclass(frozen=True)
class Traits:
    """What kind of backend it is, where that bears on its errors."""

    computes_wide: bool = False  # FP16 is computed in FP32, and roundings between nodes are dropped
    rewrites_graph: bool = False  # graph optimizations that `optimization` sets
    picks_tactics: bool = False  # the compiler chooses kernels, and may choose one that accumulates in FP16


class BackendRecord(Record, frozen=True):
    """What really ran a model. `None` and empty texts are what could not be found out."""

    backend: str
    library: str = ""
    version: str = ""
    device: str = ""
    compute_capability: str = ""
    driver: str = ""
    cuda: str = ""  # of the driver
    tf32: bool | None = None
    optimization: str | None = None
    io_binding: bool | None = None
    providers: tuple[str, ...] = ()
    provider_options: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, Count] = field(default_factory=dict)  # by provider, after its graph was optimised
    on_cpu: tuple[str, ...] = ()  # floating-point nodes that the device did not take
    notes: tuple[str, ...] = ()  # what the library itself warned of

    @property
    def title(self) -> str:
        """Library and device in a few words."""
        by = " ".join(part for part in (self.library, self.version) if part)
        return f"{self.backend} ({by}{f' on {self.device}' if self.device else ''})"

    @property
    def remarks(self) -> Iterator[Note]:
        """What a user should know of this run."""
        if self.on_cpu:
            nodes, provider = list(self.on_cpu), self.providers[0] if self.providers else self.library
            yield Note.of(NoteKind.RAN_ON_CPU, count=len(nodes), provider=provider, nodes=nodes)
        if self.providers and self.compute_capability and not self.nodes:
            yield Note.of(NoteKind.PLACEMENT_UNKNOWN)
        for text in self.notes:
            yield Note.of(NoteKind.LIBRARY_WARNS, library=self.library, text=text)


@dataclass(frozen=True)
class BackendRun:
    """The outputs by name, a dictionary for each sample."""

    outputs: tuple[dict[str, NDArray[Any]], ...]
    record: BackendRecord


class BackendFailure(HalfwiseError):
    """This model could not be built or run, though the backend is there; another model may do."""


class Backend(Protocol):
    """Runs models. `run` raises BackendFailure for a model that it cannot build or run, MissingBackend where the
    backend itself is not usable here."""

    @property
    def name(self) -> str: ...

    @property
    def cautions(self) -> tuple[Note, ...]:
        """What its answers do not prove."""

    @property
    def traits(self) -> Traits: ...

    def run(self, model: Path, feeds: Sequence[Feed]) -> BackendRun: ...


@runtime_checkable
class Installed(Protocol):
    """A backend that knows without running a model what it needs."""

    def check_installed(self) -> None:
        """MissingBackend where a library is not installed, or the driver; what is there may not work yet."""


@runtime_checkable
class RunsSteps(Protocol):
    """A backend that hands the state on from step to step itself: it begins once, not for every step."""

    def run_steps(self, model: Path, steps: Sequence[Feed], rollout: Rollout) -> BackendRun:
        """The answers to all steps, of one trajectory behind the other."""
