"""FP16 in PyTorch on any device: every operator computes in FP32 and rounds its result, as a kernel does.

A CPU's own FP16 kernels accumulate in various ways, and some operators have none. Here tensors are real FP16 tensors,
so that a module's own code sees the types it would see; only the arithmetic is done in FP32. With `autocast`, operators
are cast as `torch.autocast("cuda", torch.float16)` casts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from halfwise.verbs.torch.policy import (
    ATTENTION_PREFIX,
    FP16_FUNCTIONS,
    FP16_OPERATORS,
    FP32_FUNCTIONS,
    FP32_OPERATORS,
    WIDEST_FUNCTIONS,
    public_name,
)

__all__ = ["OperatorUse", "Recorder", "half_arithmetic"]

_FOLLOWS_FIRST = ("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit")


@dataclass
class OperatorUse:
    """One operator that autocast keeps in FP32, as a module used it."""

    calls: int = 0
    modules: dict[str, None] = field(default_factory=dict)
    largest_input: float = 0.0
    largest_result: float = 0.0


@dataclass
class Recorder:
    """Notes the operators that autocast keeps in FP32; `where` names the module at work."""

    where: Callable[[], str]
    uses: dict[str, OperatorUse] = field(default_factory=dict)

    def note(self, name: str, given: Any, made: Any) -> None:
        use = self.uses.setdefault(name, OperatorUse())
        use.calls += 1
        use.modules[self.where()] = None
        use.largest_input = max(use.largest_input, _largest(given))
        use.largest_result = max(use.largest_result, _largest(made))


@contextmanager
def half_arithmetic(
    *,
    autocast: bool,
    without: frozenset[str] = frozenset(),
    everything: bool = False,
    recorder: Recorder | None = None,
    flagged: bool = True,
) -> Iterator[None]:
    """While it lasts, FP16 is emulated.

    `without`: operators by public name that autocast is not to keep in FP32. `everything`: tensors that a module makes
    in FP32 are put into FP16, too. `flagged`: autocast shows as enabled for CUDA, so that a module's own
    `torch.autocast("cuda", enabled=False)` is heeded; not where tensors lie on CUDA, which it would cast itself.
    """
    state = _State(autocast, without, everything, recorder, flagged and autocast)
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    if state.flagged:
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.float16)
    try:
        with _Operators(state), _Functions(state):
            yield
    finally:
        if state.flagged:
            torch.set_autocast_enabled("cuda", before[0])
            torch.set_autocast_dtype("cuda", before[1])


@dataclass
class _State:
    autocast: bool
    without: frozenset[str]
    everything: bool
    recorder: Recorder | None
    flagged: bool
    enabled: bool = True  # by the module's own code; below the function called this cannot be asked any more
    inside: int = 0  # functions that were cast as a whole; what they are made of is left alone

    def casts(self) -> bool:
        return self.autocast and self.enabled and not self.inside

    def note(self, name: str, given: Any, made: Any) -> None:
        if self.recorder is not None:
            self.recorder.note(name, given, made)


class _Functions(TorchFunctionMode):  # type: ignore[misc]
    """Functions that autocast casts as a whole, before they fall into operators."""

    def __init__(self, state: _State) -> None:
        super().__init__()
        self.state = state

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = {**(kwargs or {})}
        name = getattr(func, "__name__", "").removeprefix("_linalg_").removeprefix("linalg_")
        state = self.state
        state.enabled = not state.flagged or torch.is_autocast_enabled("cuda")
        wide = name in FP32_FUNCTIONS and name not in state.without
        narrow = name in FP16_FUNCTIONS or name in FP32_FUNCTIONS
        if state.casts() and name in WIDEST_FUNCTIONS:
            wide = _has_type(torch.float32, args, kwargs)
            narrow = not wide
        if not state.casts() or not (wide or narrow) or not _has_floats(args, kwargs):
            return func(*args, **kwargs)
        args, kwargs = _cast((args, kwargs), torch.float32 if wide else torch.float16)
        state.inside += 1
        try:
            made = func(*args, **kwargs)
        finally:
            state.inside -= 1
        if name in FP32_FUNCTIONS:
            state.note(name, args, made)
        return made


class _Operators(TorchDispatchMode):  # type: ignore[misc]
    """Every operator, right above its kernel."""

    def __init__(self, state: _State) -> None:
        super().__init__()
        self.state = state

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords: dict[str, Any] = dict(kwargs or {})
        state = self.state
        operator = func.overloadpacket.__name__
        attention = operator.startswith(ATTENTION_PREFIX)
        name = public_name(operator)
        kept = operator in FP32_OPERATORS or operator.rstrip("_") in FP32_OPERATORS
        if state.casts() and (kept or operator in FP16_OPERATORS) and _has_floats(args, keywords):
            given = (args, keywords)
            if kept and name not in state.without:
                if operator not in FP32_OPERATORS:  # in place: the tensor keeps its type
                    return _computed(func, args, keywords)
                args, keywords = _cast(given, torch.float32)
                made = func(*args, **keywords)
            else:
                args, keywords = _cast(given, torch.float16)
                made = _attention(func, args, keywords) if attention and name in state.without else None
                made = _computed(func, args, keywords) if made is None else made
            if kept or attention:
                state.note(name, given, made)
            return made
        if attention and state.inside:  # the function of that name has cast its inputs
            made = _attention(func, args, keywords) if name in state.without else _computed(func, args, keywords)
            state.note(name, (args, keywords), made)
            return made
        if state.everything:
            return _narrowed(func, args, keywords)
        if operator in FP16_OPERATORS:
            _refuse_mixture(name, args, keywords)
        return _computed(func, args, keywords)


def _narrowed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator whose FP32 tensors, those that it makes of nothing included, are all put into FP16."""
    writes = any(each.alias_info is not None for each in func._schema.returns)
    if not writes:
        args, kwargs = _cast((args, kwargs), torch.float16)
    made = _computed(func, args, kwargs)
    return made if writes else tree_map_only(torch.Tensor, lambda t: t.half() if t.dtype is torch.float32 else t, made)


def _refuse_mixture(name: str, args: Any, kwargs: Any) -> None:
    """Products take one type only; PyTorch refuses another."""
    floats = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor) and t.is_floating_point()]
    types = {str(tensor.dtype).removeprefix("torch.") for tensor in floats}
    if "float16" in types and len(types) > 1:
        raise RuntimeError(f"{name} is given both {' and '.join(sorted(types))}")


def _has_type(dtype: Any, *trees: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype is dtype for leaf in tree_flatten(trees)[0])


def _has_floats(*trees: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in tree_flatten(trees)[0])


def _computed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator on FP16 tensors: FP32 inside, one rounding of what comes out."""
    tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
    if not any(tensor.dtype is torch.float16 for tensor in tensors):
        return func(*args, **kwargs)
    schema = func._schema
    if func.overloadpacket.__name__ == "convolution" and args[2] is not None:
        made = _computed(func, (*args[:2], None, *args[3:]), kwargs)  # on a GPU the bias is added to what is rounded
        return (made.float() + args[2].float().reshape(-1, *[1] * (made.dim() - 2))).to(made.dtype)
    if any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns):
        return func(*args, **kwargs)  # a view moves nothing
    if func.overloadpacket.__name__.startswith(ATTENTION_PREFIX) and tensors[0].is_cuda:
        return func(*args, **kwargs)  # these kernels are made for FP16, and compute in FP32 inside
    wide: dict[Any, Any] = {}  # by the tensor itself: what is written to must stay one tensor however often it is given

    def widened(tensor: Any) -> Any:
        if tensor.dtype is not torch.float16:
            return tensor
        return wide.setdefault(tensor, tensor.float())

    given_args, given_kwargs = tree_map_only(torch.Tensor, widened, (args, kwargs))
    written = _written(schema, args, kwargs)
    made = func(*given_args, **given_kwargs)
    for tensor in written:
        if tensor in wide:
            tensor.copy_(wide[tensor])
    if any(each.alias_info is not None for each in schema.returns):
        return _originals(schema, args, kwargs, made)
    if kwargs.get("dtype") is not None or not _gives_half(func, args, tensors):
        return made
    if func.overloadpacket.__name__ in _FOLLOWS_FIRST and isinstance(made, tuple):
        return (made[0].half(), *made[1:])
    return tree_map_only(torch.Tensor, lambda t: t.half() if t.dtype in (torch.float32, torch.float64) else t, made)


def _gives_half(func: Any, args: tuple[Any, ...], tensors: list[Any]) -> bool:
    """By PyTorch's promotion of types: a tensor without dimensions does not widen one that has some."""
    if func.overloadpacket.__name__ in _FOLLOWS_FIRST:
        return bool(args[0].dtype is torch.float16)
    floats = [tensor for tensor in tensors if tensor.is_floating_point()]
    deciding = [tensor for tensor in floats if tensor.dim()] or floats
    return all(tensor.dtype is torch.float16 for tensor in deciding)


def _written(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The tensors that an operator changes in place or is told to write to."""
    found: list[Any] = []
    for index, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            found += [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]
    return found


def _originals(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], made: Any) -> Any:
    """The very tensors that were written to stand where the operator returns them."""
    written = _written(schema, args, kwargs)
    if len(schema.returns) == 1:
        return written[0] if written else made
    return tuple(written) if len(written) == len(schema.returns) else made


def _attention(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Attention as an exported graph computes it: each step rounded to FP16."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    made = _computed(func, args, kwargs)
    query, key, value = (given[name].float() for name in ("query", "key", "value"))
    scale = given.get("scale") or query.shape[-1] ** -0.5
    logits = ((query * scale).half().float() @ key.transpose(-2, -1)).half().float()
    mask = given.get("attn_mask", given.get("attn_bias"))
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else (logits + mask).half().float()
    if given.get("is_causal"):
        logits = logits.masked_fill(
            ~torch.ones(logits.shape[-2:], dtype=torch.bool, device=logits.device).tril(), -torch.inf
        )
    result = (torch.softmax(logits, -1).half().float() @ value).half()
    return (result, *made[1:]) if isinstance(made, tuple) else result


def _cast(tree: Any, dtype: Any) -> Any:
    """Floating-point tensors in the other type; FP64 is left alone, as autocast leaves it."""
    return tree_map_only(
        torch.Tensor,
        lambda t: t.to(dtype) if t.is_floating_point() and t.dtype is not torch.float64 else t,
        tree,
    )


def _largest(tree: Any) -> float:
    found = [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    largest = 0.0
    for tensor in found:
        finite = tensor.detach().abs()
        finite = finite[torch.isfinite(finite)]
        if finite.numel():
            largest = max(largest, float(finite.max()))
    return largest
