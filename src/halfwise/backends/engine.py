"""TensorRT and TensorRT-RTX engines as backends: built strongly typed from the model, run in a child process."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from msgspec import structs

from halfwise.backends.backend import BackendFailure, BackendOptions, BackendRun, Feed, Traits
from halfwise.compiler import rtx, tensorrt
from halfwise.compiler.build import BuildError, BuildRequest, profiles_from_samples
from halfwise.core.errors import MissingBackend
from halfwise.core.notes import Note, NoteKind

__all__ = ["EngineBackend"]


@dataclass(frozen=True)
class EngineBackend:
    """One of `tensorrt` and `rtx`."""

    name: str
    options: BackendOptions

    @property
    def cautions(self) -> tuple[Note, ...]:
        return (Note.of(NoteKind.ENGINE_UNTRIED, self.name),)

    @property
    def traits(self) -> Traits:
        return Traits(picks_tactics=True)

    def check_installed(self) -> None:
        from halfwise.emulation.cuda_driver import driver

        self._library()
        driver()

    def run(self, model: Path, feeds: Sequence[Feed]) -> BackendRun:
        from halfwise.backends.child import run_in_child
        from halfwise.backends.runtime_session import rtx_refuses
        from halfwise.emulation.cuda_driver import gpu_here

        library = self._library()
        gpu = gpu_here(self.options.device)
        if self.name == "rtx" and (why := rtx_refuses(gpu.compute_capability)):
            raise MissingBackend(f"{self.name}: {why} (this is {gpu.name})")
        with tempfile.TemporaryDirectory(prefix="halfwise-engine-") as folder:
            engine = Path(folder, f"{model.stem}.engine")
            request = BuildRequest(
                model_path=model,
                profiles=profiles_from_samples(feeds) if feeds[0] else {},
                time_limit_s=self.options.time_limit_s,
                engine_path=engine,
                tf32=self.options.tf32,
                compute_capabilities=(gpu.compute_capability,) if self.name == "rtx" else (),
            )
            try:
                built = library.build_request(request)
            except BuildError as error:
                raise BackendFailure(str(error)) from error
            done = run_in_child("halfwise.backends.engine_run:serve", self.name, engine, feeds, self.options)
        return replace(done, record=structs.replace(done.record, version=built.version, notes=(*built.warnings[:3],)))

    def _library(self) -> ModuleType:
        library = rtx if self.name == "rtx" else tensorrt
        if not library.available():
            title = "TensorRT-RTX" if self.name == "rtx" else "TensorRT"
            raise MissingBackend(f"{title} is not installed: {library.INSTALL}")
        return library
