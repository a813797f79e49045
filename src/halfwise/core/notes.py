"""A note: one message to the user as data. `core.english` says it in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import field

from halfwise.core.document import Record, about
from halfwise.core.note_kinds import NoteKind

__all__ = ["CAUTIONS", "ENDS_A_BUILD", "QUANTISED_OTHERWISE", "Messages", "Note", "NoteKind", "Severity"]

Severity = Literal["info", "warning", "error"]


_WARNINGS = frozenset(
    {
        NoteKind.MOST_FOR_MEASURE,
        NoteKind.MOST_FOR_NEAR,
        NoteKind.MOST_FOR_COMPILER,
        NoteKind.MOST_PINNED,
        NoteKind.INPUT_TAKEN_AS,
        NoteKind.ROLLOUT_AGAIN,
        NoteKind.ROLLOUT_GROWS,
        NoteKind.ROLLOUT_REUSED,
        NoteKind.SAMPLES_NOT_FINITE,
        NoteKind.SYNTHETIC,
        NoteKind.TYPED_ALREADY,
        NoteKind.AS_TYPED_MISSES,
        NoteKind.AS_TYPED_INVALID,
        NoteKind.REWRITING_MISSES,
        NoteKind.STORED_WEIGHT,
        NoteKind.OUTPUT_WIDENED,
        NoteKind.WEIGHTS_DIFFER,
        NoteKind.WEIGHTS_UNKNOWN,
        NoteKind.ORIGINAL_NEAR,
        NoteKind.ONE_SAMPLE,
        NoteKind.ONE_CONSTANT_SAMPLE,
        NoteKind.NOTHING_FINITE,
        NoteKind.ONLY_ZERO,
        NoteKind.METRIC_BLIND,
        NoteKind.METRIC_TOO_COARSE,
        NoteKind.METRIC_BLIND_IN_PART,
        NoteKind.NOTHING_FINITE_FROM,
        NoteKind.VALIDATION_REPLACED,
        NoteKind.UNSEEN_MAY_MISS,
        NoteKind.UNSEEN_TRAJECTORIES,
        NoteKind.UNSEEN_SCATTERS,
        NoteKind.UNSEEN_LUCK,
        NoteKind.UNSEEN_SIZE,
        NoteKind.UNSEEN_CHOICES,
        NoteKind.UNSEEN_STREAMS,
        NoteKind.BEST_SO_FAR,
        NoteKind.RUNS_SPENT,
        NoteKind.RUNS_RAISED,
        NoteKind.PLAN_UPDATED,
        NoteKind.PLAN_STAYS,
        NoteKind.BASELINE_UPDATED,
        NoteKind.FORCED_MISSES,
        NoteKind.FORCED_NOT_ALONE,
        NoteKind.LOOSELY_MODELLED,
        NoteKind.RANDOM_NODE,
        NoteKind.RUNTIME_OVERWRITES,
        NoteKind.INPUT_FINDING,
        NoteKind.INPUT_NEAR_LIMIT,
        NoteKind.CLAMPED_WEIGHTS,
        NoteKind.SEARCHED_TWICE_IN_VAIN,
        NoteKind.OVERFLOW_LEFT,
        NoteKind.LOOP_MAY_NOT_END,
        NoteKind.GUARD_VANISHES,
        NoteKind.LOOP_MAY_NOT_END,
        NoteKind.EMULATOR_AGREES,
        NoteKind.DELIVERED_FAILS,
        NoteKind.DELIVERED_FAILS_IN_FP32,
        NoteKind.DELIVERED_MISSES,
        NoteKind.DELIVERED_MISSES_IN_FP32,
        NoteKind.RULE_FAILED,
        NoteKind.NOT_COMPILED,
        NoteKind.NOT_PROVEN,
        NoteKind.OPERATORS_REFUSED,
        NoteKind.REFUSED_WHOLE,
        NoteKind.NOT_WRITTEN_OUT,
        NoteKind.QUANTISED_NOT_READ,
        NoteKind.INTEGERS_NOT_READ,
        NoteKind.PARSER_REFUSES,
        NoteKind.NOT_CORRECTED,
        NoteKind.PRODUCT_ALONE,
        NoteKind.PRODUCT_FORCED,
        NoteKind.JOINING_MISSES,
        NoteKind.JOINING_IN_VAIN,
        NoteKind.ATTENTION_UNKNOWN,
        NoteKind.REGION_NOT_FOUND,
        NoteKind.REGION_FORCED,
        NoteKind.REGION_MISSES,
        NoteKind.FUSION_UNKNOWN,
        NoteKind.NO_ENGINE,
        NoteKind.NO_KERNEL_TIED,
        NoteKind.ENGINE_REVERTS,
        NoteKind.SUMS_IN_FP16,
        NoteKind.ORT_REFUSES_NORM,
        NoteKind.ORT_MAY_CRASH,
        NoteKind.ORT_CPU_MAY_CRASH,
        NoteKind.ORT_CPU_REFUSES,
        NoteKind.RTX_WITHOUT_GPU,
        NoteKind.NOT_KEPT,
        NoteKind.MORE_NOT_KEPT,
        NoteKind.KNOWN_DEFECTS,
        NoteKind.DEFECTS_NOT_PREVENTED,
        NoteKind.SHAPES_OPEN,
        NoteKind.PARSER_MISSING,
        NoteKind.PARSER_FAILED,
        NoteKind.NO_COMMAND,
        NoteKind.NO_SCRIPT,
        NoteKind.NAME_SHADOWED,
        NoteKind.NAME_IS_PATTERN,
        NoteKind.ENGINE_UNTRIED,
        NoteKind.CPU_COMPUTES_WIDE,
        NoteKind.PROVIDER_MAY_RETYPE,
        NoteKind.RAN_ON_CPU,
        NoteKind.PLACEMENT_UNKNOWN,
        NoteKind.LIBRARY_WARNS,
        NoteKind.SAVED_IN_OTHER_ORDER,
        NoteKind.OTHER_MODEL,
        NoteKind.NAMES_ONLY,
        NoteKind.NOTHING_IN_FP16,
        NoteKind.STATED_NOT_KEPT,
        NoteKind.MODULE_IS_FORGIVING,
        NoteKind.HALF_FAILS,
        NoteKind.CONVERTED_MISSES,
        NoteKind.CONVERTED_IN_SHORT,
    }
)


# With one of these a yes is none to rely on without a look.
CAUTIONS = frozenset(
    {
        NoteKind.ONLY_ZERO,
        NoteKind.METRIC_BLIND,
        NoteKind.METRIC_TOO_COARSE,
        NoteKind.OVERFLOW_LEFT,
        NoteKind.MOST_FOR_MEASURE,
        NoteKind.MOST_FOR_NEAR,
        NoteKind.MOST_FOR_COMPILER,
        NoteKind.MOST_PINNED,
        NoteKind.DELIVERED_FAILS,
        NoteKind.DELIVERED_FAILS_IN_FP32,
        NoteKind.DELIVERED_MISSES,
        NoteKind.DELIVERED_MISSES_IN_FP32,
        NoteKind.DEFECTS_NOT_PREVENTED,
        NoteKind.NOT_WRITTEN_OUT,
        NoteKind.QUANTISED_NOT_READ,
        NoteKind.INTEGERS_NOT_READ,
        NoteKind.REWRITING_MISSES,
        NoteKind.PARSER_REFUSES,
        NoteKind.UNSEEN_MAY_MISS,
        NoteKind.UNSEEN_TRAJECTORIES,
        NoteKind.UNSEEN_SCATTERS,
        NoteKind.UNSEEN_LUCK,
        NoteKind.UNSEEN_SIZE,
        NoteKind.UNSEEN_CHOICES,
        NoteKind.UNSEEN_STREAMS,
        NoteKind.SYNTHETIC,
    }
)

QUANTISED_OTHERWISE = frozenset({NoteKind.QUANTISED_NOT_READ, NoteKind.INTEGERS_NOT_READ})  # no plugin reads it
ENDS_A_BUILD = QUANTISED_OTHERWISE | {NoteKind.NOT_WRITTEN_OUT, NoteKind.PARSER_REFUSES}


class Note(Record, frozen=True):
    """A note as data; `notes` say the same in words."""

    kind: NoteKind
    severity: Severity = "info"
    subject: Annotated[str, about("The node, tensor, input or file that it is about; empty for none.")] = ""
    values: Annotated[Mapping[str, Any], about("What its sentence is filled with.")] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.kind, self.severity, self.subject))

    @classmethod
    def of(cls, kind: NoteKind, subject: str | None = "", **values: Any) -> Note:
        """A note with the severity of its kind."""
        return cls(kind, "warning" if kind in _WARNINGS else "info", subject or "", values)


Messages = Annotated[Sequence[Note], about("The notes as data.")]
