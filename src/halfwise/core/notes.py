"""A note: one message to the user as data. `core.english` says it in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Literal

from msgspec import field

from halfwise.core.document import Record, about

__all__ = ["Messages", "Note", "NoteKind", "Severity"]

Severity = Literal["info", "warning", "error"]


class NoteKind(Enum):
    """Every message that a note can carry."""

    # Inputs
    NO_INPUTS = "no-inputs"
    SAMPLES_THINNED = "samples-thinned"
    SAMPLES_REPEATED = "samples-repeated"
    SAMPLES_NOT_FINITE = "samples-not-finite"
    SYNTHETIC = "synthetic"
    ONE_SAMPLE = "one-sample"
    ONE_CONSTANT_SAMPLE = "one-constant-sample"
    # How outputs are judged
    OUTPUT_IN_PARTS = "output-in-parts"
    OUTPUT_CHOICES = "output-choices"
    OUTPUT_ROWS = "output-rows"
    OUTPUT_FLOOR = "output-floor"
    ROLLOUT = "rollout"
    ROLLOUT_AGAIN = "rollout-again"
    ROLLOUT_GROWS = "rollout-grows"
    ROLLOUT_REUSED = "rollout-reused"
    MOST_FOR_MEASURE = "most-for-measure"
    # A model that is typed already
    TYPED_ALREADY = "typed-already"
    AS_TYPED_MISSES = "as-typed-misses"
    STORED_WEIGHT = "stored-weight"
    IO_WIDENED = "io-widened"
    WEIGHTS_RESTORED = "weights-restored"
    WEIGHTS_DIFFER = "weights-differ"
    WEIGHTS_UNKNOWN = "weights-unknown"
    # The search and its verdict
    VALIDATION_MOVED = "validation-moved"
    VALIDATION_REPLACED = "validation-replaced"
    UNSEEN_MAY_MISS = "unseen-may-miss"
    RUNS_SPENT = "runs-spent"
    FORCED_REPAIRED = "forced-repaired"
    FORCED_MISSES = "forced-misses"
    FORCED_NOT_ALONE = "forced-not-alone"
    LOSSY_NOTHING = "lossy-nothing"
    LOSSY_COST = "lossy-cost"
    LOSSY_COST_BESIDE = "lossy-cost-beside"
    WORST_OF_PROFILES = "worst-of-profiles"
    LOOSELY_MODELLED = "loosely-modelled"
    RANDOM_NODE = "random-node"
    QUANTISERS_MOVE = "quantisers-move"
    INPUT_FINDING = "input-finding"
    CLAMPED_WEIGHTS = "clamped-weights"
    SEARCHED_TWICE = "searched-twice"
    SEARCHED_TWICE_IN_VAIN = "searched-twice-in-vain"
    OVERFLOW_HEALED = "overflow-healed"
    OVERFLOW_LEFT = "overflow-left"
    EMULATOR_AGREES = "emulator-agrees"
    DELIVERED_NOT_RUN = "delivered-not-run"
    DELIVERED_FAILS = "delivered-fails"
    DELIVERED_MISSES = "delivered-misses"
    TRIAL_NOT_RUN = "trial-not-run"
    NOT_STEPPED = "not-stepped"
    RULE_FAILED = "rule-failed"
    REPAIR_NOT_RUN = "repair-not-run"
    REPAIR_UNFAITHFUL = "repair-unfaithful"
    # The compiler
    NOT_COMPILED = "not-compiled"
    NOT_PROVEN = "not-proven"
    NOT_CORRECTED = "not-corrected"
    PRODUCT_ALONE = "product-alone"
    PRODUCT_FORCED = "product-forced"
    JOINING_MISSES = "joining-misses"
    JOINING_IN_VAIN = "joining-in-vain"
    PRODUCTS_JOINED = "products-joined"
    ATTENTION_UNKNOWN = "attention-unknown"
    REGION_NOT_FOUND = "region-not-found"
    REGION_FOUND = "region-found"
    REGION_TRIED = "region-tried"
    REGION_FORCED = "region-forced"
    REGION_MISSES = "region-misses"
    FUSION = "fusion"
    FUSION_UNKNOWN = "fusion-unknown"
    NORMS_FUSED = "norms-fused"
    ATTENTION_STAYS_FUSED = "attention-stays-fused"
    ATTENTION_UNFUSED = "attention-unfused"
    NO_ENGINE = "no-engine"
    NO_KERNEL_TIED = "no-kernel-tied"
    ENGINE_JUDGES = "engine-judges"
    ENGINE_REVERTS = "engine-reverts"
    SUMS_IN_FP16 = "sums-in-fp16"
    SUMS_IN_FP32 = "sums-in-fp32"
    SUMS_UNKNOWN = "sums-unknown"
    # ONNX Runtime
    NORMS_WHOLE = "norms-whole"
    NORMS_LOADABLE = "norms-loadable"
    ORT_REFUSES_NORM = "ort-refuses-norm"
    ORT_MAY_CRASH = "ort-may-crash"
    ORT_CPU_MAY_CRASH = "ort-cpu-may-crash"
    ORT_CPU_REFUSES = "ort-cpu-refuses"
    # Deploying
    RTX_SM75 = "rtx-sm75"
    RTX_WITHOUT_GPU = "rtx-without-gpu"
    IMPORTERS_RETYPE = "importers-retype"
    COMPILED = "compiled"
    PRECISION_UNKNOWN = "precision-unknown"
    NOT_KEPT = "not-kept"
    MORE_NOT_KEPT = "more-not-kept"
    NEAREST_COMPILER = "nearest-compiler"
    KNOWN_DEFECTS = "known-defects"
    DEFECTS_NOT_PREVENTED = "defects-not-prevented"
    WEAK_NOT_COMPILED = "weak-not-compiled"
    SHAPES_OPEN = "shapes-open"
    FP32_MODEL_WRITTEN = "fp32-model-written"
    PARSER_MISSING = "parser-missing"
    PARSER_FAILED = "parser-failed"
    PARSER_TOLD = "parser-told"
    FOLDED = "folded"
    LOOPS = "loops"
    NO_COMMAND = "no-command"
    NO_SCRIPT = "no-script"
    TF32 = "tf32"
    SHAPE_LIMITS = "shape-limits"
    SCRIPT_SHAPE_LIMITS = "script-shape-limits"
    TOOL_UNVERIFIED = "tool-unverified"
    IO_TYPES_FIXED = "io-types-fixed"
    NAMES_PREDICTED = "names-predicted"
    NAME_SHADOWED = "name-shadowed"
    NAME_IS_PATTERN = "name-is-pattern"
    NO_LAYER_METADATA = "no-layer-metadata"
    WEAK_TYPING_LIMITS = "weak-typing-limits"
    STRONG_TYPING_HELPS = "strong-typing-helps"
    CHANNELS_PADDED = "channels-padded"
    # Backends
    ENGINE_UNTRIED = "engine-untried"
    CPU_COMPUTES_WIDE = "cpu-computes-wide"
    PROVIDER_MAY_RETYPE = "provider-may-retype"
    OUTPUTS_UNCHECKED = "outputs-unchecked"
    RAN_ON_CPU = "ran-on-cpu"
    PLACEMENT_UNKNOWN = "placement-unknown"
    LIBRARY_WARNS = "library-warns"
    # Engines that are audited
    REGIONS_OPAQUE = "regions-opaque"
    NAMES_ONLY = "names-only"
    OTHER_MODEL = "other-model"
    NOTHING_IN_FP16 = "nothing-in-fp16"
    LAST_ENGINE = "last-engine"
    COMPILED_FOR_INPUTS = "compiled-for-inputs"
    COMPILED_FOR_SYNTHETIC = "compiled-for-synthetic"
    # Checkpoints and modules
    STATE_CHOSEN = "state-chosen"
    STATE_CHOSEN_AMONG = "state-chosen-among"
    FP16_EMULATED = "fp16-emulated"
    MODULE_IS_FORGIVING = "module-is-forgiving"
    HALF_FAILS = "half-fails"
    # Why a node stays out of FP16: what happens there
    WRITES_BEYOND = "writes-beyond"
    READS_BEYOND = "reads-beyond"
    BREAKS_INSIDE = "breaks-inside"
    ROUNDS_COARSELY = "rounds-coarsely"
    ROUNDS_EXPONENT = "rounds-exponent"
    ROUNDS = "rounds"
    # Why a node stays out of FP16: what was measured without it
    NOT_TESTED_ALONE = "not-tested-alone"
    KEPT_IN_VAIN = "kept-in-vain"
    NOT_FINITE_ALONE = "not-finite-alone"
    MISSES_ALONE = "misses-alone"
    NEAR_ALONE = "near-alone"
    NEEDED_TOGETHER = "needed-together"
    # Why a node stays out of FP16: who wants it
    USER_KEEPS = "user-keeps"
    IN_PLAN = "in-plan"
    AS_STATED = "as-stated"
    AFTER_STAGE = "after-stage"
    BACKEND_WRONG = "backend-wrong"
    NOT_CLEARED = "not-cleared"
    KEEPS_PRODUCT = "keeps-product"
    KEEPS_KERNEL_OUT = "keeps-kernel-out"
    KEEPS_NORM_WHOLE = "keeps-norm-whole"
    KEEPS_NORM_LOADABLE = "keeps-norm-loadable"
    KEEPS_TRANSPOSE_LOADABLE = "keeps-transpose-loadable"
    KEEPS_BIAS_STEPS = "keeps-bias-steps"
    KEEPS_RUNNABLE = "keeps-runnable"
    OWN_KERNELS_MISS = "own-kernels-miss"
    OWN_NOT_READ = "own-not-read"
    OWN_WITHOUT_KERNEL = "own-without-kernel"
    OWN_WIDE_ON_CPU = "own-wide-on-cpu"
    # Why a node cannot narrow
    FOREIGN_DOMAIN = "foreign-domain"
    CONTROL_FLOW = "control-flow"
    READS_BITS = "reads-bits"
    FP32_DEFINITION = "fp32-definition"
    TABLE = "table"
    RANDOM = "random"
    QUANTISATION = "quantisation"
    QUANTISED_GROUP = "quantised-group"
    QUANTISES_WEIGHT = "quantises-weight"
    CONTAINER = "container"
    NOT_IN_OPSET = "not-in-opset"
    NO_NARROW_FORM = "no-narrow-form"
    NO_NARROW_KERNEL = "no-narrow-kernel"
    SHAPE_ARITHMETIC = "shape-arithmetic"
    POSITION = "position"
    UNKNOWN_TYPE = "unknown-type"
    NO_FP32_TENSOR = "no-fp32-tensor"
    NOT_ALSO_BF16 = "not-also-bf16"
    # Findings about weights and types
    TENSORRT_WILL_WARN = "tensorrt-will-warn"
    WEIGHT_NOT_FINITE = "weight-not-finite"
    STORED_AS_INFINITY = "stored-as-infinity"
    DIVISOR_VANISHES = "divisor-vanishes"
    WEIGHT_BEYOND = "weight-beyond"
    WEIGHT_TINY = "weight-tiny"
    CHANNELS_TINY = "channels-tiny"
    TYPES_DOUBLE = "types-double"
    FOREIGN_NODES = "foreign-nodes"
    QUANTISED_MODEL = "quantised-model"
    OLD_OPSET = "old-opset"
    TYPES_NARROW = "types-narrow"
    WEIGHTS_DEAD = "weights-dead"
    WEIGHT_CLAMPED = "weight-clamped"
    # Findings about constants
    MASK_JOINED = "mask-joined"
    MASK_ADDED = "mask-added"
    STANDS_FOR_INFINITY = "stands-for-infinity"
    EPSILON_VANISHES = "epsilon-vanishes"
    EPSILON_CHANGES = "epsilon-changes"
    CONSTANTS_INFINITE = "constants-infinite"
    # Findings about patterns
    TIMES = "times"
    NORM_SQUARES = "norm-squares"
    MOMENTS_CANCEL = "moments-cancel"
    LENGTH_SQUARES = "length-squares"
    EXP_UNSHIFTED = "exp-unshifted"
    LOGIT_UNGUARDED = "logit-unguarded"
    LOGIT_BOUND_IS_ONE = "logit-bound-is-one"
    SUM_LONG = "sum-long"
    GRAM_LONG = "gram-long"
    RUNNING_SUM = "running-sum"
    RUNNING_SUM_OVER = "running-sum-over"
    REMAINDER = "remainder"
    COORDINATES = "coordinates"
    WAVES = "waves"
    WAVES_UP_TO = "waves-up-to"
    SELECTION = "selection"
    IDS_OF_TABLE = "ids-of-table"
    IDS_AS_FLOATS = "ids-as-floats"
    INTEGERS_AS_FLOATS = "integers-as-floats"
    # What an audit can tell of a node
    NODE_NOT_IN_ENGINE = "node-not-in-engine"
    NO_LAYER_NAMED = "no-layer-named"
    MAYBE_IN_REGION = "maybe-in-region"
    NO_LAYER_HAS_IT = "no-layer-has-it"
    KERNELS_DIFFER = "kernels-differ"
    ONLY_TYPE_ALLOWED = "only-type-allowed"
    NORM_WARNED = "norm-warned"
    IN_REGION = "in-region"
    IN_REGION_UNTYPED = "in-region-untyped"
    MAYBE_IN_ANY_REGION = "maybe-in-any-region"
    NO_KERNEL_NAMED = "no-kernel-named"
    LIST_NOT_WHOLE = "list-not-whole"
    FOLDED_AWAY = "folded-away"
    LIST_NAMES_NO_NODES = "list-names-no-nodes"
    UNROLLED = "unrolled"
    UNROLLED_ONE_TYPE = "unrolled-one-type"
    UNROLLED_AS_STATED = "unrolled-as-stated"
    KERNEL_UNTYPED = "kernel-untyped"
    KERNEL_PARTLY_TYPED = "kernel-partly-typed"
    MULTIPLIES_NARROW = "multiplies-narrow"
    STATED_OTHERWISE = "stated-otherwise"
    TACTIC_MATH = "tactic-math"
    BEFORE_CASTS = "before-casts"
    AFTER_CASTS = "after-casts"
    AS_MODEL_STATES = "as-model-states"
    AS_MODEL_STATES_CASTS = "as-model-states-casts"
    BETWEEN_CASTS = "between-casts"
    CASTS_UNPLACED = "casts-unplaced"
    COMPUTES_UNSEEN = "computes-unseen"
    READS_AND_WRITES = "reads-and-writes"
    IN_ATTENTION = "in-attention"
    RAN_OTHERWISE = "ran-otherwise"
    NOT_SHOWN = "not-shown"
    # What the gate checks
    PLAN_OF_ANY = "plan-of-any"
    PLAN_OF_THIS = "plan-of-this"
    PLAN_OF_OTHER_WEIGHTS = "plan-of-other-weights"
    PLAN_OF_OTHER_SIZE = "plan-of-other-size"
    PLAN_OF_OTHER_GRAPH = "plan-of-other-graph"
    PLAN_OF_OTHER_FILE = "plan-of-other-file"
    PLAN_REFUSED = "plan-refused"
    NODE_MISSING = "node-missing"
    NODES_MISSING = "nodes-missing"
    NODES_CHANGED = "nodes-changed"
    OPERATOR_CHANGED = "operator-changed"
    NODES_FIT = "nodes-fit"
    REPAIRS_FIT = "repairs-fit"
    PLAN_EMPTY = "plan-empty"
    GATE_MEASURED = "gate-measured"
    GATE_MEASURED_SYNTHETIC = "gate-measured-synthetic"
    NOT_MEASURED = "not-measured"
    PLAN_NOT_APPLIED = "plan-not-applied"
    COMPILER_REFUSES = "compiler-refuses"
    NOT_AUDITED = "not-audited"
    NO_ENGINE_GIVEN = "no-engine-given"
    PLAN_BROKEN = "plan-broken"
    PLAN_NOT_SHOWN = "plan-not-shown"
    PLAN_KEPT = "plan-kept"
    NODES_UNVERIFIED = "nodes-unverified"
    NO_BASELINE = "no-baseline"
    NO_NEW_FINDINGS = "no-new-findings"
    NEW_FINDINGS = "new-findings"
    FINDINGS_FOR_INFORMATION = "findings-for-information"
    FINDINGS_GONE = "findings-gone"
    AT_NODE = "at-node"
    FINDING_OF = "finding-of"
    # What to change in training
    TRAIN_NO_DECAY = "train-no-decay"
    TRAIN_LESS_DECAY = "train-less-decay"
    TRAIN_MORE_DECAY = "train-more-decay"
    TRAIN_NORM_OPERATOR = "train-norm-operator"
    TRAIN_NORM_PLACE = "train-norm-place"
    TRAIN_MASK_VALUE = "train-mask-value"
    TRAIN_MASK_JOIN = "train-mask-join"
    TRAIN_EPSILON = "train-epsilon"
    TRAIN_LENGTH = "train-length"
    TRAIN_SOFTMAX = "train-softmax"
    TRAIN_LOGIT = "train-logit"
    TRAIN_SUM = "train-sum"
    TRAIN_RUNNING_SUM = "train-running-sum"
    TRAIN_COORDINATES = "train-coordinates"
    TRAIN_POSITIONS = "train-positions"
    TRAIN_IDS = "train-ids"
    # Findings about inputs in FP16
    INPUT_IDS = "input-ids"
    INPUT_BEYOND = "input-beyond"
    INPUT_COARSE = "input-coarse"
    INPUT_PIXELS = "input-pixels"
    INPUT_ALONE = "input-alone"
    # Findings on a real backend, and their likely causes
    CANNOT_RUN = "cannot-run"
    NOT_FINITE_THERE = "not-finite-there"
    NOT_AS_PREDICTED = "not-as-predicted"
    CAUSE_TF32 = "cause-tf32"
    CAUSE_FUSION = "cause-fusion"
    CAUSE_CPU_WIDE = "cause-cpu-wide"
    CAUSE_RAN_ON_CPU = "cause-ran-on-cpu"
    CAUSE_KEPT_WIDE = "cause-kept-wide"
    CAUSE_TACTIC = "cause-tactic"
    CAUSE_ACCUMULATOR = "cause-accumulator"


_WARNINGS = frozenset(
    {
        NoteKind.MOST_FOR_MEASURE,
        NoteKind.ROLLOUT_AGAIN,
        NoteKind.ROLLOUT_GROWS,
        NoteKind.ROLLOUT_REUSED,
        NoteKind.SAMPLES_NOT_FINITE,
        NoteKind.SYNTHETIC,
        NoteKind.TYPED_ALREADY,
        NoteKind.AS_TYPED_MISSES,
        NoteKind.STORED_WEIGHT,
        NoteKind.WEIGHTS_DIFFER,
        NoteKind.WEIGHTS_UNKNOWN,
        NoteKind.ONE_SAMPLE,
        NoteKind.ONE_CONSTANT_SAMPLE,
        NoteKind.VALIDATION_REPLACED,
        NoteKind.UNSEEN_MAY_MISS,
        NoteKind.FORCED_MISSES,
        NoteKind.FORCED_NOT_ALONE,
        NoteKind.LOOSELY_MODELLED,
        NoteKind.RANDOM_NODE,
        NoteKind.INPUT_FINDING,
        NoteKind.CLAMPED_WEIGHTS,
        NoteKind.SEARCHED_TWICE_IN_VAIN,
        NoteKind.OVERFLOW_LEFT,
        NoteKind.EMULATOR_AGREES,
        NoteKind.DELIVERED_FAILS,
        NoteKind.DELIVERED_MISSES,
        NoteKind.RULE_FAILED,
        NoteKind.NOT_COMPILED,
        NoteKind.NOT_PROVEN,
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
        NoteKind.OTHER_MODEL,
        NoteKind.NAMES_ONLY,
        NoteKind.NOTHING_IN_FP16,
        NoteKind.MODULE_IS_FORGIVING,
        NoteKind.HALF_FAILS,
    }
)


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
