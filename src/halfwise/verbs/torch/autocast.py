"""FP32 against autocast and against all FP16, output by output and submodule by submodule: what did training have?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from halfwise.core.errors import InputError
from halfwise.core.evaluation import Evaluation, float_outputs, sample_error
from halfwise.core.formats import Format
from halfwise.core.metrics import compare
from halfwise.core.notes import Note, NoteKind
from halfwise.core.tolerance import EVERY_OUTPUT, Tolerance, Verdict
from halfwise.verbs.torch.inputs import Call, calls_of
from halfwise.verbs.torch.leaves import mapped, tensors_in
from halfwise.verbs.torch.need import need_torch
from halfwise.verbs.torch.policy import family_of
from halfwise.verbs.torch.results import AutocastCheck, Kept, RunErrors, Submodule

__all__ = ["check_autocast"]

Array = NDArray[Any]

INPUTS, PARAMETERS = "inputs", "parameters"
_ANY_LOAD = Tolerance.default()


def check_autocast(
    module: Any,
    inputs: Any,
    *,
    tolerance: Sequence[str] | Tolerance = (),
    emulate: bool | None = None,
    notify: Callable[[str], None] = lambda text: None,
) -> AutocastCheck:
    """Run a module in FP32, under CUDA's autocast, and all in FP16 as `.half()` makes it, and compare.

    `inputs` are a tensor, a tuple of arguments, a dictionary of keywords, or a list of these. Where the module lies on
    a GPU its kernels are used; else, or with `emulate`, every operator computes in FP32 and rounds. The module is left
    as it was: parameters, buffers, hooks, mode and attributes.
    """
    torch = need_torch()
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"check_autocast takes a torch.nn.Module, not a {type(module).__name__}")
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError("a TorchScript module cannot be inspected: give the torch.nn.Module that it was made from")
    calls = calls_of(inputs)
    device = _device(module, calls)
    emulated = device.type != "cuda" if emulate is None else emulate
    if not emulated and device.type != "cuda":
        raise InputError(f"the module is on {device}, where autocast casts other operators: leave emulate=False out")
    return _Check(module, calls, device, emulated, tolerance, notify).run()


def _device(module: Any, calls: Sequence[Call]) -> Any:
    torch = need_torch()
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device
    for call in calls:
        for _, tensor in tensors_in((call.args, dict(call.kwargs))):
            return tensor.device
    return torch.device("cpu")


@dataclass
class _Seen:
    """A submodule's call over all samples."""

    type: str
    max_abs: float = 0.0
    overflowing: int = 0
    loads: dict[str, float] = field(default_factory=dict)


@dataclass
class _Check:
    module: Any
    calls: Sequence[Call]
    device: Any
    emulated: bool
    stated: Sequence[str] | Tolerance
    notify: Callable[[str], None]
    seen: dict[str, _Seen] = field(default_factory=dict)

    def run(self) -> AutocastCheck:
        from halfwise.verbs.torch.half_mode import Recorder

        self.notify("FP32")
        answers: list[dict[str, Array]] = []
        inner: list[dict[str, Array]] = []
        for call in self.calls:
            values: dict[str, Array] = {}
            answers.append(self._exact(call, values))
            inner.append(values)
        floats = float_outputs(answers[0])
        real = [answer[name] for answer in answers for name in floats if answer[name].size]
        if real and not any(np.isfinite(array).any() for array in real):
            raise InputError("in FP32 the module gives no finite value for any input: check the inputs")
        tolerance = self._tolerance(answers[0], floats)
        within = _inner_tolerance(tolerance)

        def judged(how: str, answer: Callable[[Call, Any], dict[str, Array]], column: str = "") -> RunErrors:
            each = []
            try:
                for call, wanted, values in zip(self.calls, answers, inner, strict=True):
                    got = answer(call, self._comparer(values, within, column) if column else None)
                    each.append(sample_error(wanted, got))
            except InputError:
                raise
            except Exception as error:  # whatever a module does not bear in FP16
                return RunErrors(how, {}, Verdict(False, math.inf, "", "", 0.0, 0.0), _line(error))
            found = Evaluation(tolerance, floats, tuple(each))
            return RunErrors(how, found.outputs, found.verdict)

        stack: list[str] = []
        recorder = Recorder(lambda: stack[-1] if stack else "(root)")
        how = "emulated" if self.emulated else "real"
        self.notify("autocast")
        autocast = judged(how, lambda call, see: self._autocast(call, see), "autocast")
        self.notify("running the module in FP16")
        half = judged(how, lambda call, see: self._half(call, see), "half")
        notes = list(self._notes())
        if half.failure and not autocast.failure:
            notes.append(Note.of(NoteKind.HALF_FAILS, failure=half.failure))
            half = judged("emulated", lambda call, see: self._half(call, see, everything=True), "half")
        self.notify("finding the operators that autocast keeps in FP32")
        judged("emulated", lambda call, see: self._emulated(call, recorder=recorder, stack=stack))
        kept = []
        for name in (INPUTS, PARAMETERS, *recorder.uses):
            self.notify(f"running under autocast with {name} in FP16")
            without = judged("emulated", lambda call, see, name=name: self._emulated(call, without=name))  # type: ignore[misc]
            use = recorder.uses.get(name)
            kept.append(
                Kept(
                    name,
                    family_of(name) if use else "FP32 to begin with",
                    use.calls if use else 0,
                    tuple(use.modules) if use else (),
                    use.largest_input if use else 0.0,
                    use.largest_result if use else self._largest(name),
                    None if without.failure else without.ratio,
                )
            )
        kept.sort(key=lambda each: -(each.without or 0.0))
        submodules = tuple(
            Submodule(name, s.type, s.max_abs, s.overflowing, s.loads.get("autocast"), s.loads.get("half"))
            for name, s in self.seen.items()
        )
        return AutocastCheck(
            type(self.module).__name__,
            tolerance,
            len(self.calls),
            str(self.device),
            autocast,
            half,
            submodules,
            tuple(kept),
            tuple(notes),
        )

    def _notes(self) -> Iterator[Note]:
        if self.emulated:
            yield Note.of(NoteKind.FP16_EMULATED)
        yield Note.of(NoteKind.MODULE_IS_FORGIVING)

    # -- the ways of running ----------------------------------------------------------------------------------------

    def _exact(self, call: Call, values: dict[str, Array]) -> dict[str, Array]:
        """FP32; what every submodule gives is kept."""
        torch = need_torch()

        def see(name: str, kind: str, output: Any) -> None:
            seen = self.seen.setdefault(name, _Seen(kind))
            for key, tensor in tensors_in(output):
                if tensor.is_floating_point():
                    array = _array(tensor)
                    values[f"{name}\0{key}"] = array
                    finite = np.abs(array[np.isfinite(array)])
                    seen.max_abs = max(seen.max_abs, float(finite.max()) if finite.size else 0.0)
                    seen.overflowing += int(np.count_nonzero(finite > Format.FP16.max))

        try:
            return self._called(call, torch.float32, torch.float32, see)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{type(self.module).__name__} does not run on these inputs: {_line(error)}") from error

    def _comparer(self, values: Mapping[str, Array], within: Tolerance, column: str) -> Any:
        def see(name: str, kind: str, output: Any) -> None:
            for key, tensor in tensors_in(output):
                wanted = values.get(f"{name}\0{key}")
                if wanted is None or name not in self.seen:
                    continue
                metrics = {"": compare(wanted, _array(tensor))}
                loads = self.seen[name].loads
                loads[column] = max(loads.get(column, 0.0), within.verdict(metrics, {""}).ratio)

        return see

    def _autocast(self, call: Call, see: Any) -> dict[str, Array]:
        torch = need_torch()
        if self.emulated:
            return self._emulated(call, see=see)
        with torch.autocast("cuda", torch.float16):
            return self._called(call, torch.float32, torch.float32, see)

    def _half(self, call: Call, see: Any, *, everything: bool = False) -> dict[str, Array]:
        torch = need_torch()
        if not self.emulated and not everything:
            return self._called(call, torch.float16, torch.float16, see)
        from halfwise.verbs.torch.half_mode import half_arithmetic

        with half_arithmetic(autocast=False, everything=everything):
            return self._called(call, torch.float16, torch.float16, see)

    def _emulated(
        self, call: Call, *, see: Any = None, without: str = "", recorder: Any = None, stack: list[str] | None = None
    ) -> dict[str, Array]:
        """Autocast as a GPU does it; `without` names what is in FP16 besides."""
        torch = need_torch()
        from halfwise.verbs.torch.half_mode import half_arithmetic

        given = torch.float16 if without == INPUTS else torch.float32
        held = torch.float16 if without == PARAMETERS else torch.float32
        with half_arithmetic(
            autocast=True,
            without=frozenset({without}),
            recorder=recorder,
            flagged=self.device.type != "cuda",
        ):
            return self._called(call, given, held, see, stack)

    def _called(
        self, call: Call, given: Any, held: Any, see: Any = None, stack: list[str] | None = None
    ) -> dict[str, Array]:
        """One call, with inputs and parameters in these types; the module is as before when it is over."""
        torch = need_torch()

        def typed(dtype: Any) -> Callable[[Any], Any]:
            return lambda t: t.detach().to(dtype, copy=True) if t.is_floating_point() else t.detach().clone()

        args, kwargs = mapped((tuple(call.args), dict(call.kwargs)), typed(given))
        state = {name: typed(held)(t) for name, t in (*self.module.named_parameters(), *self.module.named_buffers())}
        with ExitStack() as undo:
            undo.enter_context(_left_alone(self.module))
            undo.enter_context(torch.no_grad())
            undo.enter_context(_plain_kernels(fused=not self.emulated))
            self.module.eval()
            undo.enter_context(_watched(self.module, see, stack))
            output = torch.func.functional_call(self.module, state, args, kwargs)
        outputs = {name: _array(tensor) for name, tensor in tensors_in(output, "output")}
        if not outputs:
            raise InputError(f"{type(self.module).__name__} returns no tensor, so there is nothing to compare")
        return {name.removeprefix("output."): array for name, array in outputs.items()}

    # -- what is asked ----------------------------------------------------------------------------------------------

    def _tolerance(self, answer: Mapping[str, Array], floats: frozenset[str]) -> Tolerance:
        if isinstance(self.stated, Tolerance):
            return self.stated
        return Tolerance.parse((self.stated,) if isinstance(self.stated, str) else self.stated, answer, floats)

    def _largest(self, name: str) -> float:
        if name == PARAMETERS:
            tensors = [*self.module.parameters(), *self.module.buffers()]
        else:
            tensors = [t for call in self.calls for _, t in tensors_in((call.args, dict(call.kwargs)))]
        return max((float(t.detach().abs().max()) for t in tensors if t.is_floating_point() and t.numel()), default=0.0)


def _inner_tolerance(tolerance: Tolerance) -> Tolerance:
    """What holds for every output holds for what submodules give, or else the default."""
    bounds = tuple(b for b in tolerance.bounds if b.output == EVERY_OUTPUT and b.metric != "exact")
    return Tolerance(bounds) if bounds else _ANY_LOAD


@contextmanager
def _left_alone(module: Any) -> Iterator[None]:
    """Whatever a run sets on the module and its submodules, their mode included, is undone."""
    saved = [(each, dict(each.__dict__)) for each in module.modules()]
    dicts = [(each.__dict__[key], dict(each.__dict__[key])) for each, _ in saved for key in ("_buffers", "_parameters")]
    try:
        yield
    finally:
        for each, attributes in saved:
            each.__dict__.clear()
            each.__dict__.update(attributes)
        for held, content in dicts:
            held.clear()
            held.update(content)


@contextmanager
def _plain_kernels(*, fused: bool) -> Iterator[None]:
    """The same random numbers every time; no TF32, no fused encoder that steps over submodules, and, unless `fused`,
    no kernels that take weights in a packing of their own."""
    torch = need_torch()
    cuda, cudnn, mha = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends.mha
    before = mha.get_fastpath_enabled(), cuda.allow_tf32, cudnn.allow_tf32, cudnn.enabled
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mha.set_fastpath_enabled(False)
        cuda.allow_tf32 = cudnn.allow_tf32 = False
        cudnn.enabled = cudnn.enabled and fused
        try:
            yield
        finally:
            mha.set_fastpath_enabled(before[0])
            cuda.allow_tf32, cudnn.allow_tf32, cudnn.enabled = before[1:]


@contextmanager
def _watched(module: Any, see: Any, stack: list[str] | None) -> Iterator[None]:
    """Hooks that tell `see` what each submodule gives, once for each call, and keep the names at work on `stack`."""
    counts: dict[str, int] = {}
    working: list[str] = [] if stack is None else stack
    handles = []

    def before(name: str) -> Any:
        def hook(_: Any, __: Any) -> None:
            counts[name] = counts.get(name, 0) + 1
            working.append(name)

        return hook

    def after(name: str) -> Any:
        def hook(child: Any, _: Any, output: Any) -> None:
            working.pop()
            if see is not None:
                count = counts[name]
                see(name if count == 1 else f"{name} ({count})", type(child).__name__, output)

        return hook

    try:
        for name, child in module.named_modules():
            if name:
                handles.append(child.register_forward_pre_hook(before(name)))
                handles.append(child.register_forward_hook(after(name)))
        yield
    finally:
        for handle in handles:
            handle.remove()
        working.clear()


def _array(tensor: Any) -> Array:
    tensor = tensor.detach()
    wide = tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor
    return np.array(wide.cpu().numpy())


def _line(error: BaseException) -> str:
    told = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {told}"[:300]
