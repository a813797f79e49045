"""One graph through the main job, the checker, the runtime at every level and the strict judge; meant for a child."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.strict import draw_alike
from benchmarks.thousand.graph import Feed, Graph, keep, kept_feeds
from benchmarks.thousand.judging import Answers, judged_strictly, worst_error

__all__ = ["END", "FIRST", "UNRUN", "Row", "stage_of", "try_graph"]

END = "row.json"
STAGE = "stage"
FIRST = "running FP32"  # the stage in which nothing was asked of halfwise yet
UNRUN = "not run in FP32"
OFF = 0.1  # relative error of a provider in FP32 from which it computes something else
CPU = "CPUExecutionProvider"
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
FURTHER = 1.1  # times as far from the model before quantisation as FP32 is
SLACK = 1.5  # times the tolerance: the judge may use inputs on which the search did not promise


@dataclass(frozen=True)
class Row:
    """How one graph ended; `cause` says why in a line where it did not end well."""

    name: str
    kind: str
    end: str
    cause: str = ""
    status: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0
    nodes: int = 0
    fp32: int = 0
    runs: float = 0.0
    strict: float | None = None
    levels: tuple[float | str, ...] = ()
    allowed: float = 0.01  # what `fix` was asked for, or found that quantisers take
    further: float | None = None  # from the model before quantisation, over how far FP32 is from it

    @staticmethod
    def load(path: Path) -> Row:
        return Row(**json.loads(path.read_text(encoding="utf-8")))

    def save(self, folder: Path) -> None:
        part = folder / f"{END}.part"
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        part.rename(folder / END)


def stage_of(folder: Path) -> str:
    """What a child was doing when it was seen last."""
    path = folder / STAGE
    return path.read_text(encoding="utf-8") if path.exists() else "starting"


def try_graph(graph: Graph, folder: Path, target: str, provider: str = CPU) -> Row:
    """Make the graph where it is not there yet, fix it, and look hard at what came out."""
    folder.mkdir(parents=True, exist_ok=True)
    row = Row(graph.name, graph.kind, "")
    if not (folder / "model.onnx").exists():
        _note(folder, "making")
        try:
            keep(graph.make(), folder)
        except Exception as error:
            return replace(row, end="not made", cause=_said(error))
    _note(folder, FIRST)
    feeds = kept_feeds(folder)
    try:
        for path in {_reference(folder), folder / "model.onnx"}:
            _run(path, feeds, LEVELS[0])
        wanted = _run(_reference(folder), feeds, LEVELS[0])
        for level in LEVELS if provider != CPU else ():
            _note(folder, f"{FIRST} with {level}")
            got = _run(_reference(folder), feeds, level, provider)
            off = max((worst_error(one, other, ()) for one, other in zip(wanted, got, strict=True)), default=0.0)
            if off > OFF:
                return replace(row, end=UNRUN, cause=f"{provider} is off by {off:.2g} in FP32 with {level}")
    except Exception as error:
        return replace(row, end=UNRUN, cause=_said(error))
    return _fixed(row, folder, feeds, target, provider)


def _fixed(row: Row, folder: Path, feeds: Sequence[Feed], target: str, provider: str) -> Row:
    from halfwise import fix
    from halfwise.core.errors import HalfwiseError

    _note(folder, "fixing")
    before, started = _megabytes(), time.perf_counter()
    out = folder / "out"
    _empty(out)
    try:
        result = fix(folder / "model.onnx", folder / "inputs" if feeds else None, out=out, target=target)
    except HalfwiseError as error:
        return replace(row, end="refused", cause=_said(error), seconds=time.perf_counter() - started)
    except Exception as error:
        return replace(row, end="internal error", cause=_said(error), seconds=time.perf_counter() - started)
    row = replace(
        row,
        status="met" if result.met else "missed",
        seconds=time.perf_counter() - started,
        megabytes=max(0.0, _megabytes() - before),
        nodes=len(result.model.nodes),
        fp32=len(result.plan.fp32) if hasattr(result.plan, "fp32") else len(result.to_json()["fp32_nodes"]),
        runs=result.cost.model_runs,
    )
    assert result.typed is not None
    row = replace(row, allowed=result.plan.tolerance.to_json().get("*:rel_l2", 0.01))
    return _judged(row, folder, Path(result.typed.path), feeds, provider, result.plan.tolerance.kinds)


def _judged(row: Row, folder: Path, typed: Path, feeds: Sequence[Feed], provider: str, kinds: Sequence[Any]) -> Row:
    _note(folder, "checking")
    if (why := _invalid(typed)) and not _invalid(folder / "model.onnx"):
        return replace(row, end="invalid model", cause=why)
    if not feeds:
        return replace(row, end="made-up inputs")
    row = replace(row, levels=tuple(_at_levels(folder, typed, feeds, provider, kinds)))
    if any(isinstance(level, str) for level in row.levels):
        said = [level for level in row.levels if isinstance(level, str)]
        # The CPU provider has no FP16 kernel for every operator, which is no fault of the model.
        return replace(
            row, end="no kernel" if all("NOT_IMPLEMENTED" in s for s in said) else "does not run", cause=said[0]
        )
    _note(folder, "judging")
    try:
        strict = judged_strictly(onnx.load(_reference(folder)), onnx.load(typed), feeds, kinds)
        row = replace(row, strict=strict, further=_further(folder, typed, feeds) if row.allowed > 0.01 else None)
    except Exception as error:
        row = replace(row, cause=f"not judged: {_said(error)}")
    return replace(row, end=_verdict(row))


def _invalid(path: Path) -> str:
    """What ONNX's checker holds against a model; nothing where it holds nothing."""
    foreign = any(node.domain not in ("", "ai.onnx") for node in onnx.load(path, load_external_data=False).graph.node)
    try:
        onnx.checker.check_model(str(path), full_check=not foreign)
    except Exception as error:
        return _said(error)
    return ""


def _verdict(row: Row) -> str:
    """By 1%. Where more was allowed for quantisers, the answer has to be as near to the model before them as FP32's."""
    if row.status != "met":
        return "missed, and said"
    worst = max((level for level in row.levels if not isinstance(level, str)), default=0.0)
    if row.strict is not None and row.strict > row.allowed * SLACK:
        return "met, the judge disagrees"
    if row.further is not None and row.further > FURTHER:
        return "met, further from the model before"
    if worst > row.allowed * SLACK:
        return "met, the runtime disagrees"
    return "met, confirmed" if row.strict is not None else "met, confirmed by the runtime"


def _at_levels(
    folder: Path, typed: Path, feeds: Sequence[Feed], provider: str, kinds: Sequence[Any]
) -> Iterator[float | str]:
    """The worst error over inputs and float outputs, at each level of optimisation."""
    wanted = _run(_reference(folder), feeds, LEVELS[0])
    for level in LEVELS:
        _note(folder, f"running the typed model with {level}")
        try:
            got = _run(typed, feeds, level, provider)
        except Exception as error:
            yield _said(error)
            continue
        yield max((worst_error(one, other, kinds) for one, other in zip(wanted, got, strict=True)), default=0.0)


def _further(folder: Path, typed: Path, feeds: Sequence[Feed]) -> float | None:
    """How much further than FP32 the typed model is from the model that was quantised, over all inputs."""
    original = folder / "original.onnx"
    if not original.exists():
        return None
    wanted = _run(original, feeds, LEVELS[0])
    far = []
    for path in (typed, folder / "model.onnx"):
        got = _run(path, feeds, LEVELS[0])
        far.append(sum(worst_error(one, other, ()) ** 2 for one, other in zip(wanted, got, strict=True)))
    return float(np.sqrt(far[0] / far[1])) if far[1] else None


def _run(path: Path, feeds: Sequence[Feed], level: str, provider: str = CPU) -> list[Answers]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    wanted: list[Any] = [(provider, {"use_tf32": "0"}), CPU] if provider != CPU else [CPU]
    if provider != CPU:
        onnxruntime.preload_dlls()
    random = draw_alike(onnx.load(path, load_external_data=False).graph)
    session = onnxruntime.InferenceSession(_seeded(path) if random else str(path), options, providers=wanted)
    if provider not in session.get_providers():
        raise RuntimeError(f"{provider} could not be loaded")
    kinds = {value.name: value.type for value in session.get_inputs()}
    names = [value.name for value in session.get_outputs()]
    given = ({name: _as(feed.get(name), kind) for name, kind in kinds.items()} for feed in feeds)
    return [dict(zip(names, session.run(None, each), strict=True)) for each in given]


def _seeded(path: Path) -> bytes:
    model = onnx.load(path)
    draw_alike(model.graph)
    return bytes(model.SerializeToString())


def _as(array: Any, kind: str) -> Any:
    """An input of another float type than the model's is handed over in the model's."""
    if not isinstance(array, np.ndarray):
        return array
    if kind == "tensor(float16)" and array.dtype == np.float32:
        return array.astype(np.float16)
    if kind == "tensor(float)" and array.dtype == np.float16:
        return array.astype(np.float32)
    return array.copy()  # the runtime writes running statistics over the array that it was handed


def _reference(folder: Path) -> Path:
    """What is right: for a model typed FP16 that which it was made from; any other model itself."""
    original = folder / "original.onnx"
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    half = sum(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in model.graph.initializer)
    return original if original.exists() and half else folder / "model.onnx"


def _empty(folder: Path) -> None:
    for path in folder.glob("*"):
        path.unlink()


def _note(folder: Path, what: str) -> None:
    (folder / STAGE).write_text(what, encoding="utf-8")


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
