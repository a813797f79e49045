"""Looks at the tensors a user is about to hand to an engine: every mistake is one line, with its remedy."""

from __future__ import annotations

import difflib
import math
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from halfwise.core.document import Documented
from halfwise.core.errors import InputError
from halfwise.core.summary import Summary
from halfwise.core.wording import counted
from halfwise.verbs.torch.document import BindingProblem, BindingsDocument
from halfwise.verbs.torch.held import NAMES_UNCOUNTED, ONE_HOLDER, holders, named, references
from halfwise.verbs.torch.memory import Memory, memory_of
from halfwise.verbs.torch.slots import Slot, slots_of

__all__ = ["BindingProblem", "BindingsCheck", "check_bindings"]

ALIGNMENT = 256  # bytes; what cudaMalloc gives, and kernels are built for
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int8": (-128, 127), "uint8": (0, 255), "int64": (-(2**63), 2**63 - 1)}


@dataclass(frozen=True, repr=False)
class BindingsCheck(Documented):
    """All that is wrong with the bindings, errors first. Printed, it is a line for each."""

    problems: tuple[BindingProblem, ...]
    checked: int
    _seen: Mapping[str, tuple[Any, int]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether there is no error; there may be warnings."""
        return not any(problem.severity == "error" for problem in self.problems)

    def __str__(self) -> str:
        if not self.problems:
            one = self.checked == 1
            return f"{self.checked} binding{'' if one else 's'}: nothing is wrong with {'it' if one else 'them'}"
        return "\n".join(str(problem) for problem in self.problems)

    def summary(self) -> Summary:
        """Each problem, errors first."""
        rows = tuple((each.severity, str(each)) for each in self.problems)
        headline = f"{counted(self.checked, 'binding')}: {counted(len(rows), 'problem')}"
        return Summary(headline, ("severity", "problem"), rows, self.ok)

    def document(self) -> BindingsDocument:
        return BindingsDocument("ok" if self.ok else "wrong", self.checked, self.problems)

    def still_alive(self) -> tuple[BindingProblem, ...]:
        """To ask right before the engine runs: the tensors that were freed, or moved, since they were checked."""
        found = []
        for name, (reference, address) in self._seen.items():
            tensor = reference()
            if tensor is None:
                found.append(
                    _error(
                        name,
                        "freed",
                        "was freed after the check; its memory may hold other values now",
                        "keep a reference to the tensor until the engine has run",
                    )
                )
            elif (memory := memory_of(tensor)) is not None and memory.address != address:
                found.append(_error(name, "moved", "was moved to other memory after the check", "pass the new address"))
        return tuple(found)


def check_bindings(
    bindings: Mapping[str, Any] | Sequence[Any], engine: Any, *, device: str | None = None
) -> BindingsCheck:
    """Check what is about to be handed to an engine against what the engine wants.

    `bindings` are torch tensors, NumPy arrays or bare addresses, by name or in the engine's order. `engine` is a
    TensorRT engine (anything with get_tensor_name, get_tensor_mode, get_tensor_dtype and get_tensor_shape, or the
    get_binding_* of before 8.5), the inspector's JSON, or the ONNX model. Outputs need not be there. `device` says
    where an ONNX model's tensors have to lie, such as "cuda:0"; an engine's lie on one CUDA device.
    """
    passing = sys.getrefcount(bindings) <= references({})
    if passing and NAMES_UNCOUNTED:
        passing = not named(bindings, sys._getframe(1))
    slots = slots_of(engine)
    given = _by_name(bindings, slots)
    problems = list(_names(given, slots))
    seen: dict[str, tuple[Any, int]] = {}
    memories: dict[str, tuple[Slot, Memory]] = {}
    dims: dict[str, tuple[int, str]] = {}
    for slot in slots:
        if slot.name not in given:
            continue
        tensor = given[slot.name]
        memory = memory_of(tensor)
        if memory is None:
            said = f"is a {type(tensor).__name__}, not a tensor, an array or an address"
            problems.append(_error(slot.name, "kind", said, "hand over a contiguous tensor"))
            continue
        problems += _one(slot, memory, tensor, dims, device)
        if passing and slot.place == "cuda" and memory.kind == "tensor" and holders(given, slot.name) <= ONE_HOLDER:
            problems.append(_temporary(slot.name))
        memories[slot.name] = slot, memory
        if memory.kind != "address" and not memory.trouble:
            seen[slot.name] = (weakref.ref(tensor), memory.address)
    problems += _together(memories)
    problems.sort(key=lambda problem: problem.severity != "error")
    return BindingsCheck(tuple(problems), len(given), seen)


def _by_name(bindings: Mapping[str, Any] | Sequence[Any], slots: Sequence[Slot]) -> dict[str, Any]:
    if isinstance(bindings, Mapping):
        return dict(bindings)
    if isinstance(bindings, (str, bytes)) or not isinstance(bindings, Sequence):
        raise InputError("bindings are a dictionary by name, or a list in the engine's order")
    if len(bindings) > len(slots):
        raise InputError(f"{len(bindings)} bindings are given, and the engine has {len(slots)}")
    return {slot.name: tensor for slot, tensor in zip(slots, bindings, strict=False)}


def _names(given: Mapping[str, Any], slots: Sequence[Slot]) -> Iterator[BindingProblem]:
    known = [slot.name for slot in slots]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            remedy = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(map(repr, known[:12]))}"
            yield _error(name, "unknown", "the engine has no tensor of this name", remedy)
    for slot in slots:
        if slot.is_input and slot.name not in given:
            yield _error(slot.name, "missing", "nothing is given for this input", f"hand over {_wanted(slot)}")


def _wanted(slot: Slot) -> str:
    shape = "" if slot.shape is None else f" of shape {_dims(slot.shape)}"
    return f"a {slot.dtype or 'contiguous'} tensor{shape}"


def _one(
    slot: Slot, memory: Memory, tensor: Any, dims: dict[str, tuple[int, str]], device: str | None
) -> Iterator[BindingProblem]:
    name = slot.name
    if memory.kind == "address":
        if memory.address == 0:
            yield _error(name, "null", "the address is 0", "hand over the tensor; an empty one still needs an address")
            return
        yield _warning(
            name,
            "address",
            "is a bare address: nothing keeps its memory alive and nothing can be checked "
            "(the tensor of x.cuda().data_ptr() is gone before the engine runs)",
            "keep the tensor in a variable, and hand over the tensor here",
        )
        return
    if memory.trouble:
        yield _error(name, "memory", f"is {memory.trouble}", "hand over a plain contiguous tensor")
        return
    yield from _type(slot, memory, tensor)
    yield from _shape(slot, memory, dims)
    yield from _order(slot, memory)
    yield from _place(slot, memory, device)
    if slot.place == "cuda" and memory.address % ALIGNMENT and memory.span and memory.device.startswith("cuda"):
        yield _warning(
            name,
            "alignment",
            f"begins {memory.slack * memory.itemsize} bytes into a larger tensor, so its "
            f"address is no multiple of {ALIGNMENT}, as engines expect",
            f"{name} = {name}.clone()",
        )
    if not memory.writable and not slot.is_input:
        yield _error(name, "read-only", "is an output and its memory is read-only", f"{name} = {name}.copy()")


def _temporary(name: str) -> BindingProblem:
    return _warning(
        name,
        "lifetime",
        "is a temporary held only by these bindings, which are temporary, too: its memory is freed before "
        "the engine has run",
        "keep it in a variable until the stream is synchronised",
    )


def _type(slot: Slot, memory: Memory, tensor: Any) -> Iterator[BindingProblem]:
    have, want, name = memory.dtype, slot.dtype, slot.name
    if not want or have == want or (want.startswith("float8") and have.startswith("float8")):
        return
    if not slot.is_input:
        yield _error(
            name,
            "dtype",
            f"is {have}, and the engine writes {want}",
            f"{name} = torch.empty({tuple(memory.shape)}, dtype=torch.{want}, device=...)",
        )
        return
    bits = memory.itemsize * 8
    how = f"its {bits}-bit values would be read as {want}"
    if (have, want) == ("int64", "int32"):
        how = "each id would be read as two, every second of them 0"
    elif (have, want) == ("float32", "float16"):
        how = "each value would be read as two halves"
    yield _error(name, "dtype", f"is {have}, and the engine takes {want}: {how}", _conversion(memory, want, name))
    if have in _RANGES and want in _RANGES and (extent := _extent(tensor)) is not None:
        low, high = _RANGES[want]
        if extent[0] < low or extent[1] > high:
            worst = extent[1] if extent[1] > high else extent[0]
            yield _error(
                name, "narrowing", f"holds {worst}, which {want} cannot hold", "narrowing it changes the values"
            )


def _conversion(memory: Memory, want: str, name: str) -> str:
    if memory.kind == "array":
        return f"{name} = {name}.astype({want!r})"
    return f"{name} = {name}.to(torch.{want})"


def _extent(tensor: Any) -> tuple[int, int] | None:
    size = tensor.size if isinstance(getattr(tensor, "size", None), int) else getattr(tensor, "numel", lambda: 0)()
    return (int(tensor.min()), int(tensor.max())) if size else None


def _shape(slot: Slot, memory: Memory, dims: dict[str, tuple[int, str]]) -> Iterator[BindingProblem]:
    if slot.shape is None:
        return
    have, want = memory.shape, slot.shape
    verb = "takes" if slot.is_input else "gives"
    if len(have) != len(want) or any(isinstance(w, int) and w >= 0 and w != h for h, w in zip(have, want, strict=True)):
        yield _error(
            slot.name,
            "shape",
            f"has shape {_dims(have)}, and the engine {verb} {_dims(want)}",
            _reshaping(slot.name, have, want),
        )
        return
    for h, w in zip(have, want, strict=True):
        if isinstance(w, str):
            first, where = dims.setdefault(w, (h, slot.name))
            if first != h:
                yield _error(
                    slot.name, "shape", f"its dimension {w!r} is {h}, and {first} in {where!r}", "give both the same"
                )
    if slot.least is not None and slot.most is not None:
        bounds = zip(have, slot.least, slot.most, strict=True)
        if any(not low <= h <= high for h, low, high in bounds):
            yield _error(
                slot.name,
                "profile",
                f"has shape {_dims(have)}, outside the optimisation profile, {_dims(slot.least)} to {_dims(slot.most)}",
                "build the engine with a wider profile",
            )


def _reshaping(name: str, have: tuple[int, ...], want: Sequence[int | str | None]) -> str:
    fixed = [w for w in want if isinstance(w, int) and w >= 0]
    if len(have) == len(want) == len(fixed) and sorted(have) == sorted(fixed):
        order = _order_of(have, fixed)
        return f"the same sizes in another order: {name} = {name}.permute{order}.contiguous()"
    if len(have) + 1 == len(want) and _fits((1, *have), want):
        return f"a batch dimension is missing: {name} = {name}[None]"
    if len(fixed) == len(want) and math.prod(fixed) == math.prod(have):
        return (
            f"as many elements, in other dimensions: {name} = {name}.reshape{tuple(fixed)}, if their order is the same"
        )
    return "give it that shape; the engine would read beyond its end, or leave a part of it out"


def _order_of(have: Sequence[int], want: Sequence[int]) -> tuple[int, ...]:
    left = list(range(len(have)))
    order = []
    for size in want:
        order.append(next(axis for axis in left if have[axis] == size))
        left.remove(order[-1])
    return tuple(order)


def _fits(have: Sequence[int], want: Sequence[int | str | None]) -> bool:
    return all(not isinstance(w, int) or w < 0 or w == h for h, w in zip(have, want, strict=True))


def _order(slot: Slot, memory: Memory) -> Iterator[BindingProblem]:
    if memory.contiguous or (memory.channels_last and "HWC" in slot.layout):
        return
    name = slot.name
    if memory.expanded:
        what = "is an expanded view: there is memory for a part of its elements only"
    elif memory.channels_last:
        what = "is in channels_last order: its address hands over (N, H, W, C) where (N, C, H, W) is read"
    else:
        what = (
            f"is a view with strides {_dims(memory.strides)}, permuted or sliced; its address hands over other elements"
        )
    if not slot.is_input:
        yield _error(
            name,
            "contiguity",
            f"{what}; the engine writes its output densely",
            "hand over a contiguous tensor, and copy from it afterwards",
        )
        return
    call = f"np.ascontiguousarray({name})" if memory.kind == "array" else f"{name}.contiguous()"
    yield _error(
        name,
        "contiguity",
        f"{what} than the view shows (a copy to the CPU and back would hide it)" if "other elements" in what else what,
        f"{name} = {call}, and keep {name} until the engine has run",
    )


def _place(slot: Slot, memory: Memory, device: str | None) -> Iterator[BindingProblem]:
    place = slot.place or ("" if device is None else device)
    on_gpu = memory.device.startswith("cuda")
    if place == "host" and on_gpu:
        yield _error(
            slot.name,
            "device",
            f"is on {memory.device}, and the engine reads it on the host",
            f"{slot.name} = {slot.name}.cpu()",
        )
    elif place.startswith("cuda") and not on_gpu:
        if memory.pinned:
            yield _warning(
                slot.name,
                "device",
                "is in pinned host memory: the engine reads it over the bus",
                f"{slot.name} = {slot.name}.cuda(non_blocking=True)",
            )
            return
        where = "is a NumPy array, in host memory" if memory.kind == "array" else "is on the CPU"
        remedy = f"torch.from_numpy({slot.name}).cuda()" if memory.kind == "array" else f"{slot.name}.cuda()"
        yield _error(slot.name, "device", f"{where}, and the engine reads device memory", f"{slot.name} = {remedy}")
    elif place and place not in ("host", "cuda") and memory.device != place:
        yield _error(
            slot.name,
            "device",
            f"is on {memory.device}, and {place} was asked for",
            f"{slot.name} = {slot.name}.to({place!r})",
        )


def _together(memories: Mapping[str, tuple[Slot, Memory]]) -> Iterator[BindingProblem]:
    """Mistakes that only show when several are looked at."""
    gpus: dict[str, str] = {}
    for name, (_, memory) in memories.items():
        if memory.device.startswith("cuda"):
            gpus.setdefault(memory.device, name)
    if len(gpus) > 1:
        (first, one), (other, two) = list(gpus.items())[:2]
        yield _error(two, "device", f"is on {other}, and {one!r} is on {first}", f"{two} = {two}.to({first!r})")
    names = list(memories)
    for index, name in enumerate(names):
        slot, memory = memories[name]
        for other in names[index + 1 :]:
            other_slot, other_memory = memories[other]
            if (slot.is_input and other_slot.is_input) or not memory.overlaps(other_memory):
                continue
            written, beside = (name, other) if not slot.is_input else (other, name)
            yield _error(
                written,
                "aliasing",
                f"shares memory with {beside!r}: the engine would overwrite it while it may still be read",
                f"give {written} memory of its own: torch.empty_like({written})",
            )


def _dims(shape: Sequence[int | str | None]) -> str:
    return f"({', '.join('?' if dim is None or dim == -1 else str(dim) for dim in shape)})"


def _error(name: str, rule: str, message: str, remedy: str) -> BindingProblem:
    return BindingProblem(name, rule, "error", message, remedy)


def _warning(name: str, rule: str, message: str, remedy: str) -> BindingProblem:
    return BindingProblem(name, rule, "warning", message, remedy)
