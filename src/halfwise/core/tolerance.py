"""What error the user accepts: bounds on metrics per output, and how far measured metrics are from them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

from halfwise.core.choosing import Changes
from halfwise.core.errors import InputError
from halfwise.core.metrics import ERRORS, LIKENESSES, Metrics
from halfwise.core.notes import Note, NoteKind
from halfwise.core.output_kinds import OutputKind, Reading, inner_names
from halfwise.core.shares import share_of
from halfwise.core.wording import listed

__all__ = ["EVERY_OUTPUT", "USER_METRIC", "Bound", "Bounds", "Tolerance", "Verdict"]

Bounds = Annotated[
    Mapping[str, float], Meta(min_length=1, description="'OUTPUT:METRIC' to its bound; '*' is every output.")
]

EVERY_OUTPUT = "*"
USER_METRIC = "metric"  # the name under which a bound speaks of the user's own function

_UP_TO_ONE = ("cosine", "topk", "exact", "found")
_NAMES = f"{', '.join(ERRORS)} (<=), {', '.join(LIKENESSES)} (>=), or {USER_METRIC} (<=, with --metric)"
_FORM = re.compile(r"(?:(?P<output>.+):)?(?P<metric>[^:<>=]*)(?P<op><=|>=|=)(?P<value>[^<>=]*)")


@dataclass(frozen=True)
class Bound:
    """One metric of one output and what it may be. `*` as the output means every output of the metric's kind:
    `exact` is meant for integer, bool and text outputs, every other metric for float outputs."""

    output: str
    metric: str
    op: Literal["<=", ">="]
    value: float

    @classmethod
    def of(cls, output: str, metric: str, value: float) -> Bound:
        """The bound in the metric's own direction, checked."""
        if metric not in (*ERRORS, *LIKENESSES, USER_METRIC):
            raise InputError(f"tolerance: there is no metric {metric!r}; there are {_NAMES}")
        if metric == USER_METRIC and output != EVERY_OUTPUT:
            raise InputError(
                f"tolerance {output}:{metric}: the function of --metric sees all outputs at once; write 'metric<=VALUE'"
            )
        if not math.isfinite(value):
            raise InputError(f"tolerance {output}:{metric}: the bound {value} is not a finite number")
        if metric in (*ERRORS, USER_METRIC) and value < 0:
            raise InputError(f"tolerance {output}:{metric}: the bound {value:g} is negative, and an error never is")
        if metric in _UP_TO_ONE and value > 1:
            raise InputError(f"tolerance {output}:{metric}: the bound {value:g} is out of reach, {metric} is at most 1")
        return cls(output, metric, ">=" if metric in LIKENESSES else "<=", value)

    @classmethod
    def parse(cls, text: str) -> Bound:
        """Read 'OUTPUT:METRIC<=VALUE', or 'METRIC<=VALUE' for every output. A name may hold colons; a `=` is either."""
        form = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if form is None:
            raise InputError(f"tolerance {text!r}: write 'OUTPUT:METRIC<=VALUE', with METRIC one of {_NAMES}")
        try:
            value = float(form["value"])
        except ValueError:
            raise InputError(f"tolerance {text!r}: {form['value'].strip()!r} is not a number") from None
        bound = cls.of((form["output"] or EVERY_OUTPUT).strip(), form["metric"].strip(), value)
        if form["op"] not in ("=", bound.op):
            better = "larger" if bound.op == ">=" else "smaller"
            raise InputError(f"tolerance {text!r}: of {bound.metric} {better} is better; write {bound.op}")
        return bound

    @property
    def key(self) -> str:
        return f"{self.output}:{self.metric}"

    @property
    def void(self) -> bool:
        """Whether nothing can miss it, as with exact>=0: so an output is left out of the judgement."""
        return self.metric in _UP_TO_ONE and self.value <= (-1.0 if self.metric == "cosine" else 0.0)

    def holds(self, value: float) -> bool:
        return value >= self.value if self.op == ">=" else value <= self.value

    def relaxed(self, factor: float) -> Bound:
        """The bound that allows `factor` times the error."""
        if self.metric == "psnr":
            return replace(self, value=self.value - 20.0 * math.log10(factor))
        value = 1.0 - (1.0 - self.value) * factor if self.metric in _UP_TO_ONE else self.value * factor
        return replace(self, value=float(f"{value:.12g}"))

    def ratio(self, value: float) -> float:
        """Error over allowed error: at most 1 exactly where the bound holds, and growing as the value gets worse.

        Errors: value / bound. cosine, topk, exact: what is missing to 1, over what may be missing. psnr: the ratio of
        the rms errors that the two levels stand for. Where no error is allowed: 0 or inf. NaN: inf. Void: 0.
        """
        if self.void and self.holds(value):
            return 0.0
        if math.isnan(value):
            return math.inf
        if self.metric == "psnr":
            ratio = _power_of_ten((self.value - value) / 20.0)
        elif self.metric in _UP_TO_ONE:
            ratio = _ratio(1.0 - value, 1.0 - self.value)
        else:
            ratio = _ratio(value, self.value)
        # A division rounds; the answer to "is it met" must not hang on that.
        return min(ratio, 1.0) if self.holds(value) else max(ratio, math.nextafter(1.0, math.inf))


def _ratio(error: float, allowed: float) -> float:
    if error <= 0.0:
        return 0.0
    return error / allowed if allowed else math.inf


def _power_of_ten(exponent: float) -> float:
    return math.inf if exponent > 300.0 else 10.0**exponent


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison against the tolerance, and the bound nearest to failing or failing worst.

    `metric` is "nonfinite", with `allowed` 0, where a value is not finite that is finite in the reference. `uncompared`
    says why that output could not be compared place by place.
    """

    met: bool
    ratio: float
    worst_output: str
    metric: str
    value: float
    allowed: float
    uncompared: tuple[Note, ...] = ()
    part: str = ""  # of the output, where slices are measured apart; or the ready measure

    @property
    def because(self) -> Note:
        """What decided: the value measured, and what was allowed."""
        where = self.worst_output + self.part
        if not self.metric:
            return Note.of(NoteKind.NOTHING_JUDGED)
        if self.metric == "nonfinite":
            return Note.of(NoteKind.NOT_FINITE, self.worst_output, count=int(self.value))
        if self.uncompared:
            return Note.of(NoteKind.NOT_COMPARED, self.worst_output, why=list(self.uncompared))
        if self.metric == USER_METRIC and not self.part:
            return Note.of(NoteKind.MEASURED_BY_YOU, value=self.value, allowed=self.allowed)
        if self.metric == USER_METRIC:
            return Note.of(NoteKind.MEASURED_BY, self.part, value=self.value, allowed=self.allowed)
        if self.metric in LIKENESSES:
            return Note.of(NoteKind.LIKENESS_OF, where, metric=self.metric, value=self.value, allowed=self.allowed)
        return Note.of(NoteKind.ERROR_OF, where, metric=self.metric, value=self.value, allowed=self.allowed)


@dataclass(frozen=True)
class Tolerance:
    """The bounds that outputs must keep. Whatever they say, a non-finite value the reference lacks is a miss.

    A bound on a named output stands in for the `*` bound on the same metric there, and adds to the others. `kinds` say
    how outputs are read that no bound of the user speaks of.
    """

    bounds: tuple[Bound, ...]
    kinds: tuple[OutputKind, ...] = ()
    measure: str = ""  # the ready measure that a bound on `metric` speaks of

    @classmethod
    def default(cls) -> Tolerance:
        return cls(_DEFAULTS)

    @classmethod
    def parse(
        cls,
        texts: Sequence[str],
        outputs: Collection[str],
        floats: Collection[str],
        *,
        user_metric: bool = False,
        measure: str = "",
        kinds: Sequence[OutputKind] = (),
    ) -> Tolerance:
        """The user's bounds, completed by the default for the outputs they say nothing of.

        `outputs` are the names of the model's outputs, `floats` those of its float outputs, `user_metric` says whether
        --metric was given. A bound on `metric` judges the whole result, so that no default is added to it. A share,
        such as "0.5%" or 0.005, is the error allowed by the default measure of every output.
        """
        listed = [texts] if isinstance(texts, (str, int, float)) else list(texts)
        shares = [share_of(text) for text in listed]
        asked = USER_METRIC if user_metric else "rel_l2"
        general = [Bound.of(EVERY_OUTPUT, asked, share) for share in shares if share is not None]
        bounds = [Bound.parse(text) for text, share in zip(listed, shares, strict=True) if share is None]
        kinds = _kinds_left(kinds, bounds, floats)
        bounds += general
        keys = [bound.key for bound in bounds]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise InputError(f"tolerance {twice}: given twice; give one bound")
        bounded = any(bound.metric == USER_METRIC for bound in bounds)
        if user_metric and not bounded:
            raise InputError("--metric needs a bound for its result: add --tol 'metric<=VALUE'")
        if bounded and not user_metric:
            raise InputError("tolerance 'metric': there is no function to bound; add --metric package.module:function")
        tolerance = cls(tuple(bounds))
        tolerance.check_outputs(outputs)
        if bounded:
            return replace(tolerance, measure=measure)
        return cls((*bounds, *_defaults_left(bounds, outputs, floats), *_found(kinds, bounds)), kinds)

    def check_outputs(self, outputs: Collection[str]) -> None:
        """Refuse bounds on outputs that are not there."""
        for bound in self.bounds:
            if bound.output != EVERY_OUTPUT and bound.output not in outputs:
                raise InputError(
                    f"tolerance {bound.key}: the model has no such output; its outputs are {listed(outputs, 20)}"
                )

    def relaxed(self, factor: float) -> Tolerance:
        """The same where `factor` times the error is allowed."""
        return replace(self, bounds=tuple(bound.relaxed(factor) for bound in self.bounds))

    @property
    def uses_user_metric(self) -> bool:
        return any(bound.metric == USER_METRIC for bound in self.bounds)

    def ratio(self, metrics: Mapping[str, Metrics], floats: Collection[str], user_metric: float | None = None) -> float:
        """The worst of error over allowed error: at most 1 means met; inf where a non-finite value is new.

        `metrics` hold every output of the model, `floats` name the float ones, and `user_metric` is what the user's
        function returned, where a bound asks for it.
        """
        return self.verdict(metrics, floats, user_metric).ratio

    def verdict(
        self, metrics: Mapping[str, Metrics], floats: Collection[str], user_metric: float | None = None
    ) -> Verdict:
        """The outcome, with the bound of the largest ratio; the first of equals."""
        worst = Verdict(True, 0.0, "", "", 0.0, 0.0)
        for output, measured in metrics.items():
            if measured.nonfinite and measured.nonfinite > worst.value:
                worst = Verdict(False, math.inf, output, "nonfinite", float(measured.nonfinite), 0.0)
        if not worst.met:
            return worst
        for output, bound, value in self._measured(metrics, floats, user_metric):
            ratio = bound.ratio(value)
            if not worst.metric or ratio > worst.ratio:
                why = tuple(metrics[output].uncompared) if output in metrics and ratio > 1.0 else ()
                part = metrics[output].part if bound.metric == "rel_l2" else ""
                part = self.measure if bound.metric == USER_METRIC else part
                worst = Verdict(ratio <= 1.0, ratio, output, bound.metric, value, bound.value, why, part)
        return worst

    def _measured(
        self, metrics: Mapping[str, Metrics], floats: Collection[str], user_metric: float | None
    ) -> Iterator[tuple[str, Bound, float]]:
        """Every bound on every output that it speaks of, with the measured value."""
        self.check_outputs(metrics)
        named = {bound.key for bound in self.bounds}
        for bound in self.bounds:
            if bound.metric == USER_METRIC:
                if user_metric is None:
                    raise ValueError("the tolerance bounds the user's metric, and its value was not passed")
                yield EVERY_OUTPUT, bound, user_metric
            elif bound.output != EVERY_OUTPUT:
                yield bound.output, bound, getattr(metrics[bound.output], bound.metric)
            else:
                for output, measured in metrics.items():
                    real = output in self.floats_among(floats)
                    if _speaks_of(bound, real) and f"{output}:{bound.metric}" not in named:
                        yield output, bound, getattr(measured, bound.metric)

    def chance(self, changes: Mapping[str, Changes]) -> float:
        """Of the outputs that choose: the differences to expect, over those with which 95% of such inputs keep their
        bound; the worst."""
        bounds = {bound.output: bound.value for bound in self.bounds if bound.metric == "exact"}
        every = bounds.get(EVERY_OUTPUT, 0.0)
        return max(
            (each.expected / each.bearable(bounds.get(name, every)) for name, each in changes.items()), default=0.0
        )

    def floats_among(self, floats: Collection[str]) -> frozenset[str]:
        """What is judged as real numbers: the float outputs but masks, and the tensors from which rows are selected."""
        chosen = {kind.output for kind in self.kinds if kind.reading is Reading.CHOICES}
        inner = {kind.output for kind in self.kinds if kind.reading is Reading.SELECTED_FROM}
        return frozenset(floats) - chosen | inner

    @property
    def inner(self) -> tuple[str, ...]:
        """The tensors inside the model that have to be known for a judgement."""
        return inner_names(self.kinds)

    def decided_by_floor(self, *measured: Mapping[str, Metrics]) -> dict[str, float]:
        """The outputs that would miss their bound relative to their own norm, and by what error."""
        kinds = {kind.output for kind in self.kinds}
        allowed = {bound.output: bound.value for bound in self.bounds if bound.metric == "rel_l2"}
        found: dict[str, float] = {}
        for name, metrics in ((name, each) for outputs in measured for name, each in outputs.items() if name in kinds):
            if metrics.rel_l2 <= allowed.get(name, allowed.get(EVERY_OUTPUT, math.inf)) < metrics.unfloored:
                found[name] = max(found.get(name, 0.0), metrics.unfloored)
        return found

    def uncompared(self, metrics: Mapping[str, Metrics], floats: Collection[str]) -> tuple[str, ...]:
        """The outputs that it judges place by place, and that have other places than the reference."""
        judged = {output for output, bound, _ in self._measured(metrics, floats, math.inf) if not bound.void}
        return tuple(name for name, measured in metrics.items() if measured.uncompared and name in judged)

    def to_json(self) -> dict[str, float]:
        """'OUTPUT:METRIC' to the bound's value; the metric tells the direction."""
        return {bound.key: bound.value for bound in self.bounds}

    @classmethod
    def from_json(cls, document: Any) -> Tolerance:
        if not isinstance(document, Mapping) or not document:
            raise InputError('tolerance: must be an object such as {"*:rel_l2": 0.01}')
        bounds = []
        for key, value in document.items():
            output, colon, metric = str(key).rpartition(":")
            if not (colon and output):
                raise InputError(f"tolerance {key!r}: must be 'OUTPUT:METRIC', '*' being every output")
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputError(f"tolerance {key!r}: {value!r} is not a number")
            bounds.append(Bound.of(output, metric, float(value)))
        return cls(tuple(bounds))


_DEFAULTS = (Bound.of(EVERY_OUTPUT, "rel_l2", 0.01), Bound.of(EVERY_OUTPUT, "exact", 0.999))


FOUND = 0.95  # of selected rows, to be found again


def _kinds_left(
    kinds: Sequence[OutputKind], bounds: Sequence[Bound], floats: Collection[str]
) -> tuple[OutputKind, ...]:
    """The kinds of the outputs whose error no bound of the user speaks of."""
    stated = [bound for bound in bounds if bound.metric != "found"]
    taken = {bound.output for bound in stated}
    every = {bound.metric == "exact" for bound in stated if bound.output == EVERY_OUTPUT}

    def free(kind: OutputKind) -> bool:
        exact = kind.output not in floats and kind.reading is not Reading.SELECTED_FROM
        return kind.output not in taken and (exact or kind.reading is Reading.CHOICES) not in every

    left = [kind for kind in kinds if free(kind)]
    left += [structs.replace(kind, reading=Reading.COUNTED) for kind in kinds if _counted(kind, left, stated, floats)]
    rows = {kind.output for kind in left if kind.reading is Reading.ROWS}
    return tuple(
        structs.replace(kind, together=tuple(name for name in kind.together if name in rows))
        for kind in left
        if rows or kind.reading is not Reading.SELECTED_FROM
    )


def _counted(kind: OutputKind, left: Sequence[OutputKind], stated: Sequence[Bound], floats: Collection[str]) -> bool:
    """Whether the user bounds the differences of a choice, and nothing else of it."""
    own = {bound.metric for bound in stated if bound.output == kind.output}
    return kind.reading is Reading.CHOICES and kind not in left and kind.output not in floats and own <= {"exact"}


def _found(kinds: Sequence[OutputKind], bounds: Sequence[Bound]) -> Iterator[Bound]:
    """How many rows of each list have to be found again, where the user did not say."""
    stated = {bound.output for bound in bounds if bound.metric == "found"}
    for kind in kinds:
        alone = kind.reading is Reading.ROWS and kind.together[0] == kind.output
        if alone and stated.isdisjoint({EVERY_OUTPUT, *kind.together}):
            yield Bound.of(kind.output, "found", FOUND)


def _speaks_of(bound: Bound, float_output: bool) -> bool:
    """Whether a bound on `*` means an output of this kind."""
    return float_output != (bound.metric == "exact")


def _defaults_left(bounds: Sequence[Bound], outputs: Collection[str], floats: Collection[str]) -> Iterator[Bound]:
    """The default for the outputs that no bound of the user speaks of; as one bound on `*` where that is the same."""
    named = {bound.output for bound in bounds if bound.metric != "found"}
    for default in _DEFAULTS:
        if any(
            bound.output == EVERY_OUTPUT
            and bound.metric != "found"
            and (bound.metric == "exact") == (default.metric == "exact")
            for bound in bounds
        ):
            continue
        kind = [output for output in outputs if _speaks_of(default, output in floats)]
        if named.isdisjoint(kind):
            yield default
        else:
            yield from (
                Bound(output, default.metric, default.op, default.value) for output in kind if output not in named
            )
