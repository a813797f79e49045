"""Stage by stage from PyTorch: the module is exported with its modules' names, and judged as an engine sees it."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.tolerance import Tolerance
from halfwise.verbs.contained.calling import contained
from halfwise.verbs.stages import StagesResult
from halfwise.verbs.stages import stages as onnx_stages
from halfwise.verbs.torch.inputs import Call, calls_of
from halfwise.verbs.torch.leaves import mapped, tensors_in
from halfwise.verbs.torch.need import need_torch

__all__ = ["stages"]

_EMBEDDED = 1 << 30  # bytes of weights that fit a protobuf beside its nodes


def stages(
    module: Any,
    inputs: Any,
    *,
    cut: Sequence[str] = (),
    depth: int = 1,
    tolerance: Sequence[str] | Tolerance = (),
    profile: str = "strict",
    out: str | Path | None = None,
    upto: str | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> StagesResult:
    """Cut a module at its submodules, run each alone and chained in FP16, and compare; see `halfwise.stages`.

    `inputs` are a tensor, a tuple of arguments, a dictionary of keywords, or a list of these. The module is exported
    as it is (on a copy in FP32 and eval mode, on the CPU); with `out`, the whole model is kept there as `model.onnx`.
    """
    torch = need_torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"stages takes a torch.nn.Module, not a {type(module).__name__}; an ONNX file: halfwise.stages"
        )
    calls = calls_of(inputs)
    with TemporaryDirectory(prefix="halfwise-") as scratch:
        folder = Path(out) if out is not None else Path(scratch)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be made: {error.strerror}; choose another folder") from None
        path = folder / "model.onnx"
        notify("exporting to ONNX")
        names = _names(module, calls[0])
        feeds = [_feed(call, names, calls[0]) for call in calls]
        _export(module, calls[0], names, path)
        in_worker: Callable[..., StagesResult] = contained(onnx_stages, "halfwise.verbs.stages:stages")
        result = in_worker(
            path,
            feeds,
            cut=cut,
            depth=depth,
            tolerance=tolerance,
            profile=profile,
            out=out,
            upto=upto,
            notify=notify,
        )
    return replace(result, model=type(module).__name__)


def _names(module: Any, call: Call) -> list[str]:
    """One for each tensor of a call: after the parameter it is given for."""
    try:
        bound = inspect.signature(module.forward).bind(*call.args, **call.kwargs)
        given: dict[str, Any] = dict(bound.arguments)
    except (TypeError, ValueError) as error:
        raise InputError(f"{type(module).__name__} cannot be called with these inputs: {error}") from None
    flat: list[str] = []
    seen: dict[Any, str] = {}  # a tensor is hashed by its identity
    for parameter, value in given.items():
        for name, tensor in tensors_in(value, parameter):
            seen.setdefault(tensor, name)
    for value in (*call.args, *call.kwargs.values()):
        flat += [seen[tensor] for _, tensor in tensors_in(value)]
    return [name if flat.index(name) == index else f"{name}_{index}" for index, name in enumerate(flat)]


def _tensors(call: Call) -> list[Any]:
    return [tensor for value in (*call.args, *call.kwargs.values()) for _, tensor in tensors_in(value)]


def _feed(call: Call, names: Sequence[str], first: Call) -> dict[str, NDArray[Any]]:
    """A sample as the exported model takes it: floats in FP32, shapes as in the first."""
    tensors = _tensors(call)
    shapes = [tuple(tensor.shape) for tensor in _tensors(first)]
    if [tuple(tensor.shape) for tensor in tensors] != shapes:
        raise InputError(
            "the samples differ in their number of tensors or in shapes; an export takes one set of shapes"
        )
    return {name: _wide(tensor).numpy() for name, tensor in zip(names, tensors, strict=True)}


def _wide(tensor: Any) -> Any:
    tensor = tensor.detach().cpu()
    return tensor.float() if tensor.is_floating_point() else tensor


def _export(module: Any, call: Call, names: Sequence[str], path: Path) -> None:
    """With PyTorch's newer exporter where it works, else with the older one; both leave the modules' names."""
    try:
        wide = copy.deepcopy(module).float().cpu().eval()
    except Exception as error:
        raise InputError(f"{type(module).__name__} cannot be copied, to leave it as it is: {_line(error)}") from error
    tensors = tuple(_wide(tensor) for tensor in _tensors(call))
    problem: Exception | None = None
    for dynamo in (True, False) if find_spec("onnxscript") else (False,):
        try:
            _export_with(dynamo, wide, call, tensors, names, path)
            return
        except Exception as error:
            problem = problem or error
    assert problem is not None
    hint = "" if find_spec("onnxscript") else " (the newer exporter needs onnxscript: pip install 'halfwise[torch]')"
    raise InputError(f"{type(module).__name__} cannot be exported to ONNX: {_line(problem)}{hint}") from problem


def _export_with(
    dynamo: bool, module: Any, call: Call, tensors: tuple[Any, ...], names: Sequence[str], path: Path
) -> None:
    torch = need_torch()

    class Whole(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The module between plain tensors, whatever it takes and gives them in."""

        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *given: Any) -> tuple[Any, ...]:
            left = iter(given)
            args, kwargs = mapped((tuple(call.args), dict(call.kwargs)), lambda _: next(left))
            return tuple(tensor for _, tensor in tensors_in(self.module(*args, **kwargs)))

    with torch.no_grad(), _quiet():
        given = mapped((tuple(call.args), dict(call.kwargs)), _wide)
        outputs = [name for name, _ in tensors_in(module(*given[0], **given[1]), "output")]
        if not outputs:
            raise InputError("it returns no tensor")
        torch.onnx.export(
            Whole().eval(),
            tensors,
            str(path),
            input_names=list(names),
            output_names=[name.removeprefix("output.") for name in outputs],
            dynamo=dynamo,
            **({"external_data": False} if dynamo and _bytes(module) < _EMBEDDED else {}),
        )


def _bytes(module: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in (*module.parameters(), *module.buffers()))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters print what they do; a caller asked for a result."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _line(error: BaseException) -> str:
    """What lies at the root, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    told = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {told}"[:300]
