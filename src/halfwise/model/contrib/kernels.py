"""Which of ONNX Runtime's own operators have a kernel that takes a format: the CPU's as installed, CUDA's as listed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from halfwise.core.child.kept import ask
from halfwise.core.child.serve import Answer, Request
from halfwise.core.child.worker import ChildDied, ChildFailed
from halfwise.core.formats import Format
from halfwise.model.contrib.kernel_lists import CPU, CUDA

__all__ = ["FP32_SLOTS", "cpu_runs", "cpu_takes", "cuda_takes", "narrow_kernel", "only_narrow_on_cuda"]

_LIMIT_S = 60.0
_FLOATS = frozenset(fmt.schema_type for fmt in (Format.FP32, Format.FP16, Format.BF16))

# Slots whose kernels read FP32 beside narrow data, though their schemas let them be narrow.
FP32_SLOTS: Mapping[str, frozenset[int]] = {"GroupNorm": frozenset({1, 2}), "SkipGroupNorm": frozenset({1, 2})}


def narrow_kernel(op: str, domain: str, fmt: Format) -> bool:
    """Whether any provider computes the operator on tensors of a narrow format."""
    return cuda_takes(op, fmt) or cpu_takes(op, domain, fmt)


def only_narrow_on_cuda(op: str) -> bool:
    """Whether the CUDA provider computes the operator, but not in FP32."""
    return op in CUDA and Format.FP32 not in CUDA[op]


def cuda_takes(op: str, fmt: Format) -> bool:
    return fmt in CUDA.get(op, ())


def cpu_takes(op: str, domain: str, fmt: Format) -> bool:
    """Whether the CPU provider, as it is installed, has a kernel for data of a format."""
    return fmt.schema_type in _cpu().get((domain, op), frozenset())


def cpu_runs(op: str, domain: str) -> bool:
    """Whether it has one for an FP32 model: for data in FP32, or one that takes no floats, as of quantised data."""
    data = _cpu().get((domain, op))
    return data is not None and (not data or Format.FP32.schema_type in data)


@cache
def _cpu() -> Mapping[tuple[str, str], frozenset[str]]:
    """The types of data that CPU kernels take.

    Asked in a child: the list covers all providers, and where the library of one cannot be loaded, as TensorRT's beside
    CUDA's, asking ends the process. Then those count that are listed here.
    """
    try:
        answer = ask(f"{__name__}:cpu_kernels", {}, time_limit_s=_LIMIT_S)
    except (ChildDied, ChildFailed):
        return {key: frozenset(fmt.schema_type for fmt in formats) for key, formats in CPU.items()}
    return {(domain, op): frozenset(types) for domain, op, types in answer.data["kernels"]}


def cpu_kernels(request: Request) -> Answer:
    """In the child: of each operator the types of the first type variable that takes floats."""
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    found: dict[tuple[str, str], frozenset[str]] = {}
    for kernel in getattr(runtime, "get_all_opkernel_def", tuple)():
        if kernel.provider != "CPUExecutionProvider":
            continue
        data = (_FLOATS.intersection(types) for _, types in sorted(kernel.type_constraints.items()))
        key = (kernel.domain, kernel.op_name)
        found[key] = found.get(key, frozenset()).union(next(filter(None, data), frozenset()))
    return Answer({"kernels": [(domain, op, sorted(types)) for (domain, op), types in found.items()]})
