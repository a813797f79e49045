"""The catalogue: each message about precision that TensorRT and its tools print, what it means and what to do.

A message is found by a literal part first (a search over raw bytes), then read by its pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from halfwise.core.finding import PlaceKind, Severity

__all__ = ["LAYERNORM_ADVICE", "LAYERNORM_DETECTED", "MESSAGES", "RULES", "WEIGHT_ISSUES", "Message", "Remedy", "Rule"]


@dataclass(frozen=True)
class Remedy:
    """What to do where layer precisions are flags (weak typing, up to 10.16) and where they are types in the ONNX.

    A log that tells neither version nor typing gets the former: most messages are of such builds only.
    """

    weak: str
    strong: str

    def text(self, version: tuple[int, ...], strongly_typed: bool | None) -> str:
        if self.weak == self.strong:
            return self.weak
        return self.strong if strongly_typed or version >= (11,) else self.weak


def _always(text: str) -> Remedy:
    return Remedy(text, text)


@dataclass(frozen=True)
class Rule:
    """What a finding made from a message says. `message` is filled from the pattern's groups."""

    id: str
    severity: Severity
    message: str
    remedy: Remedy
    where: PlaceKind = "build"  # kind of place: the pattern's group of that name tells which
    dependent: bool = False  # on the graph being built: counts only for the backend strategy that was chosen
    unconstrained: Severity | None = None  # its severity in a build that set no precision constraints
    strong: bool = False  # said of strongly typed networks only
    title: str = ""  # the message without what a log fills in

    @property
    def description(self) -> str:
        """The rule in one line, whatever the log."""
        return self.title or self.message


@dataclass(frozen=True)
class Message:
    """One message of the catalogue; `literal` occurs in every line that `pattern` matches."""

    id: str
    literal: bytes
    pattern: str
    rule: Rule

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


_KEEP_FP32 = Remedy(
    "keep the layers in FP32 with --precisionConstraints=obey and exact names in --layerPrecisions and "
    "--layerOutputTypes (`halfwise fix MODEL --target ...` writes them)",
    "keep the nodes in FP32 in a typed ONNX model (`halfwise fix MODEL --target ...` writes it)",
)

_COUNT_THEM = "such values seldom break a model; `halfwise scan MODEL` counts them. If accuracy suffers, "

# By the words that name the issue, in the old form (8.4, 8.5) and in the new one (from 8.6).
WEIGHT_ISSUES: dict[str, Rule] = {
    "subnormal": Rule(
        "HW701",
        "warning",
        "{weights:many weight holds/weights hold} values that are subnormal in FP16 and lose bits",
        Remedy(_COUNT_THEM + _KEEP_FP32.weak, _COUNT_THEM + _KEEP_FP32.strong),
        title="weights with values that are subnormal in FP16",
    ),
    "underflow": Rule(
        "HW702",
        "warning",
        "{weights:many weight holds/weights hold} values below the smallest FP16 value; TensorRT raised them to it",
        _KEEP_FP32,
        title="weights with values below the smallest FP16 value",
    ),
    "overflow": Rule(
        "HW703",
        "error",
        "{weights:many weight holds/weights hold} values beyond FP16's range; TensorRT clamped them to 65504",
        _KEEP_FP32,
        title="weights with values beyond FP16's range",
    ),
}

LAYERNORM_DETECTED = Rule(
    "HW711",
    "warning",
    "{count:many layer of a LayerNorm pattern runs/layers of LayerNorm patterns run} in FP16",
    Remedy(
        "export with opset 17 or later, which has LayerNormalization as one node. Or " + _KEEP_FP32.weak,
        "export with opset 17 or later, which has LayerNormalization as one node. Or " + _KEEP_FP32.strong,
    ),
    title="layers of LayerNorm patterns run in FP16",
)
LAYERNORM_ADVICE = Rule(
    "HW712",
    "warning",
    "TensorRT warns that LayerNorm in FP16 may overflow ({what}); TensorRT saw the pattern, not an overflow",
    Remedy(
        "check with `halfwise trace MODEL` whether the squares overflow; then export with opset 17 or later. Or "
        + _KEEP_FP32.weak,
        "check with `halfwise trace MODEL` whether the squares overflow; then export with opset 17 or later. Or "
        + _KEEP_FP32.strong,
    ),
    title="LayerNorm in FP16 may overflow",
)

_CONSTRAINTS = Remedy(
    "pass --precisionConstraints=obey, set the layer's output type too, and audit the engine (`halfwise audit`)",
    "state the type with Cast nodes in the ONNX model; strong typing does not choose",
)
_UNABLE = Remedy(
    "this build has no kernel of that precision for these layers, so asking again changes nothing. Set the same "
    "precision for the layers fused with them, or mark the tensors between them as outputs. "
    "From 9.1 on, build the typed ONNX model with strong typing (`halfwise fix MODEL --target trt-10.9`)",
    "change the type in the ONNX model: there is no kernel of that precision for these layers",
)
_CHANGE_TYPES = _always("make both inputs one type: insert a Cast in front of the named layer")
_REMOVED = Remedy(
    "check the spelling against this version's --help; each of --layerPrecisions and --layerOutputTypes may be given "
    "only once",
    "this version has no such flag; precision flags were removed with weak typing: build from a typed ONNX model "
    "(`halfwise fix MODEL --target ...`)",
)
_STRONG_ONLY = Remedy(
    "drop the precision flags or build without strong typing",
    "drop the precision flags: types come from the ONNX model",
)

MESSAGES: tuple[Message, ...] = (
    # Constraints, and the choice of implementations
    Message(
        "NONCONF",
        b"a non-conforming implementation was chosen",
        r"For layer (?P<layer>.+?) a non-conforming implementation was chosen than was requested",
        Rule("HW721", "warning", "the precision asked for was ignored because another implementation is faster",
             _CONSTRAINTS, where="layer", dependent=True, unconstrained="info"),
    ),
    Message(
        "NOIMPL",
        b"obeys the requested constraints in strict mode",
        r"No implementation of layer (?P<layer>.+?) obeys the requested constraints in strict mode",
        Rule("HW722", "error", "no implementation has the precision asked for; the fastest one runs instead",
             _UNABLE, where="layer", dependent=True),
    ),
    Message(
        "NOIMPL_OLD",
        b"obeys the requested constraints, using a higher precision type",
        r"no implementation of (?P<layer>.+?) obeys the requested constraints, using a higher precision type",
        Rule("HW723", "warning", "no implementation has the precision asked for; a higher one runs instead",
             _always("nothing to repair for accuracy; the layer is slower than planned"),
             where="layer", dependent=True),
    ),
    Message(
        "REFORMAT_FREE",
        b"No implementation obeys reformatting-free rules",
        r"No implementation obeys reformatting-free rules, at least (?P<n>\d+) reformatting nodes are needed",
        Rule("HW724", "info", "{n} reformatting layers are needed",
             _always("nothing to do for accuracy; reformatting costs time"), dependent=True,
             title="reformatting layers are needed"),
    ),
    Message(
        "NOIMPL_ERR",
        b"Could not find any implementation for node",
        r"Could not find any implementation for node (?P<layer>.+?)\.?(?: due to .*| In .*)?\)?$",
        Rule("HW725", "error", "no implementation at all was found",
             Remedy("loosen the constraint on this layer, or give the builder more workspace (--memPoolSize)",
                    "give the builder more workspace (--memPoolSize), or change the types around this layer"),
             where="layer", dependent=True),
    ),
    Message(
        "SKIP_TACTIC",
        b"Skipping tactic ",
        r"Skipping tactic (?P<tactic>0x[0-9a-f]+|\d+) due to (?:exception|insufficient memory|oom error)"
        r"\s*(?P<reason>.*)",
        Rule("HW726", "info", "tactic {tactic} was skipped: {reason}",
             _always("a fast kernel may be missing; check memory and the driver"), where="tactic", dependent=True,
             title="a tactic was skipped"),
    ),
    Message(
        "TYPE_DIFF_INFER",
        b"element type (",
        r"Input (?P<a>\d+)'s element type \((?P<ta>\w+)\) differs from input (?P<b>\d+)'s element type \((?P<tb>\w+)\)",
        Rule("HW727", "error", "inputs {a} and {b} of a layer differ in type: {ta} and {tb}", _CHANGE_TYPES,
             title="inputs of a layer differ in type"),
    ),
    Message(
        "SHAPE_INT32",
        b"A shape layer can only run in INT32 precision",
        r"A shape layer can only run in INT32 precision",
        Rule("HW728", "info", "a precision was set on a shape layer, which runs in INT32 only",
             _always("leave layers that compute shapes out of --layerPrecisions")),
    ),
    Message(
        "EW_WARN",
        b"IElementWiseLayer with inputs",
        r"IElementWiseLayer with inputs (?P<ia>.+?) and (?P<tensor>.+?): first input has type (?P<ta>\w+) "
        r"but second input has type (?P<tb>\w+)",
        Rule("HW729", "warning", "an elementwise layer reads {ta} ({ia}) and {tb} ({tensor})", _CHANGE_TYPES,
             where="tensor", title="an elementwise layer reads two types"),
    ),
    # trtexec's own
    Message(
        "SKIPPED_ALL",
        b"Skipped setting precisions for some layers",
        r"Skipped setting precisions for some layers",
        Rule("HW731", "info", "a wildcard in the precision flags skipped some layers",
             _always("name the layers that matter exactly; a --verbose log lists the skipped ones")),
    ),
    Message(
        "SKIPPED_LAYER",
        b"Skipped setting precision for layer ",
        r"Skipped setting precision for layer (?P<layer>.+?) because (?P<why>.+?)\.?$",
        Rule("HW732", "info", "the precision of the layer was not set because {why}",
             _always("nothing to do unless the layer computes floating-point values"), where="layer",
             title="the precision of a layer was not set"),
    ),
    Message(
        "NO_EFFECT",
        b"flags have no effect when --precisionConstraints",
        r"--layerPrecision/--layerOutputTypes flags have no effect when --precisionConstraints",
        Rule("HW733", "error", "--layerPrecisions and --layerOutputTypes had no effect",
             _always("add --precisionConstraints=obey")),
    ),
    Message(
        "WEAK_DEPRECATED",
        b"Weakly-typed networks have been deprecated",
        r"Weakly-typed networks have been deprecated",
        Rule("HW734", "info", "weak typing is deprecated; TensorRT 11 removed it",
             _always("move to a typed ONNX model (`halfwise fix MODEL --target ...`)")),
    ),
    Message(
        "STRONG_FLAG",
        b"mode is not allowed if graph is strongly typed",
        r"setting (?P<mode>\w+) mode is not allowed if graph is strongly typed",
        Rule("HW735", "warning", "--{mode} was ignored: the network is strongly typed", _STRONG_ONLY,
             strong=True, title="a flag was ignored: the network is strongly typed"),
    ),
    Message(
        "TF32_HINT",
        b"TF32 is enabled by default",
        r"TF32 is enabled by default\. Add --noTF32 flag",
        Rule("HW736", "info", "FP32 convolutions and matrix products use TF32 (10 bits of mantissa)",
             _always("add --noTF32 where the FP32 engine is the reference")),
    ),
    Message(
        "UNKNOWN_OPTION",
        b"Unknown option: ",
        r"Unknown option: (?P<option>\S+)",
        Rule("HW737", "error", "trtexec does not know {option} and stopped", _REMOVED, where="option",
             title="trtexec does not know an option and stopped"),
    ),
    # Strong typing
    Message(
        "EW_TYPES",
        b"must have same input types",
        r"(?:Error \(|^)(?P<layer>(?:(?!Error \().)+?): ElementWiseOperation (?P<op>\w+) must have same input types\. "
        r"But they are of types (?P<a>\w+) and (?P<b>\w+)",
        Rule("HW741", "error", "{op} reads {a} and {b}, which strong typing does not allow", _CHANGE_TYPES,
             where="layer", strong=True, title="an operator reads two types, which strong typing does not allow"),
    ),
    Message(
        "FLAG_AND_STRONG",
        b"Parameter check failed, condition: !config.getFlag(BuilderFlag::k",
        r"Parameter check failed, condition: !config\.getFlag\(BuilderFlag::k(?P<flag>\w+)\)",
        Rule("HW742", "error", "the builder flag {flag} cannot be combined with strong typing", _STRONG_ONLY,
             strong=True, title="a builder flag cannot be combined with strong typing"),
    ),
    Message(
        "SET_TYPE_STRONG",
        b"cannot be called for a strongly typed network",
        r"(?P<method>\w+(?:::\w+)*) cannot be called for a strongly typed network",
        Rule("HW743", "error", "{method} was called on a strongly typed network", _STRONG_ONLY, strong=True,
             title="a method was called that strongly typed networks refuse"),
    ),
    Message(
        "IO_TYPE",
        b"does not match the inferred type",
        r"(?:(?:Input|Output) tensor \"?(?P<tensor>.+?)\"?: )?Requested (?P<side>input|output) type (?P<a>.+?) via "
        r"--\w+IOFormats does not match the inferred type (?P<b>.+?) for a strongly typed network",
        Rule("HW744", "error", "the {side} type {a} asked for is not the type {b} of the ONNX model",
             _always("drop the type from --inputIOFormats/--outputIOFormats, or change the type in the ONNX model"),
             where="tensor", strong=True, title="the type asked for is not the type of the ONNX model"),
    ),
    Message(
        "RTX_STRONG",
        b"In JIT build, strongly typed is enabled by default",
        r"In JIT build, strongly typed is enabled by default",
        Rule("HW745", "info", "TensorRT-RTX takes all types from the ONNX model",
             _always("nothing to do"), strong=True),
    ),
)  # fmt: skip

RULES: Mapping[str, Rule] = {
    rule.id: rule
    for rule in (
        *WEIGHT_ISSUES.values(),
        LAYERNORM_DETECTED,
        LAYERNORM_ADVICE,
        *(message.rule for message in MESSAGES),
    )
}
