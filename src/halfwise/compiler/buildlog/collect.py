"""Gathers what the lines of a build log say, message by message, and turns it into a report at the end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from halfwise.compiler.buildlog.catalogue import (
    LAYERNORM_ADVICE,
    LAYERNORM_DETECTED,
    MESSAGES,
    WEIGHT_ISSUES,
    Message,
    Rule,
)
from halfwise.compiler.buildlog.layer_text import dtype_of, nodes_of_metadata, split_names
from halfwise.compiler.buildlog.prefixes import LogLine, decode_version, version_tuple
from halfwise.compiler.buildlog.report import LogReport, LogStructure, NodeType, ReformatLayer
from halfwise.core.english import fill
from halfwise.core.finding import Finding, Where
from halfwise.core.targets.flags import TRTEXEC_FLAGS, flag_history

__all__ = ["Collector"]

# How a message begins that counts one thing only.
_WEAK_FLAGS = frozenset(
    f"--{name}" for name in ("fp16", "bf16", "best", "precisionConstraints", "layerPrecisions", "layerOutputTypes")
)

# Names are kept once each, and no more than this many of a kind: a log may repeat itself without end.
MOST_NAMES = 100_000

_OLD_HEAD = re.compile(r"Weights \[name=(?P<name>.*)\] had the following issues when converted to (?P<type>\w+)")
_NEW_ISSUE = re.compile(r"- (?P<n>\d+) weights are affected by this issue: (?P<what>.*)")
_LIST = re.compile(r"List of affected weights: (?P<names>.*)")
_DETECTED = re.compile(r"Detected layernorm nodes in FP16(?:: (?P<names>.*)|\.?\s*)$")
_ADVICE = re.compile(r"Running layernorm after self-attention (?:with|in) (?P<what>FP16(?: Reduce or Pow)?) may cause")
_PRECISION = re.compile(
    r"^Precision: (?P<precision>(?:(?:FP|INT|BF)\d+|Strongly Typed)\S*(?: Strongly Typed)?)"
    r"(?: \((?P<constraints>obey|prefer) precision constraints\))?"
)
_COMMAND = re.compile(r"&&&& RUNNING .*?# (?P<command>.*)$")
_REGISTERED = re.compile(r"Registering layer: (?P<layer>.+) for ONNX node: (?P<node>.+)$")
_NODE_OUTPUTS = re.compile(r"^(?P<node>.+?) \[(?P<op>\w+)\] outputs: (?P<outputs>\[.*)")
_OUTPUT = re.compile(r"\[(?P<name>.+?) -> \((?P<shape>[^()]*)\)\[(?P<dtype>\w+)\]\]")
_FOREIGN = re.compile(r"ForeignNode (?P<name>\{ForeignNode\[.+\]\}) metadata:\s?(?P<metadata>.*)$")
_REFORMAT = "Adding reformat layer: "
_REFORMAT_TYPES = re.compile(r"(?P<source>\w+)\(.*?\) to (?P<target>\w+)\(")
_SET_PRECISION = re.compile(r"Set layer (?P<layer>.+) to precision (?P<precision>\w+)")
_DEVICE = re.compile(r"Selected Device: (?P<device>.+?)\s*$")
_CAPABILITY = re.compile(r"Compute Capability: (?P<capability>\d+\.\d+)\s*$")
_STRATEGY = re.compile(r"(?P<verb>Building graph using|Use|Chose this engine with) backend strategy (?P<n>\d+)")


@dataclass
class _WeightIssue:
    """One kind of trouble: the count that TensorRT states, and the names as far as it lists them."""

    stated: int = 0
    names: dict[str, None] = field(default_factory=dict)


@dataclass
class _LayerNorm:
    """What one build says of LayerNorm patterns."""

    layers: dict[str, None] = field(default_factory=dict)
    count: int = 0
    detected: bool = False
    advice: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class _Hit:
    rule: Rule
    groups: tuple[tuple[str, str], ...]


class Collector:
    """Holds the state of one log. Each public method takes one line that holds the literal it is listed with."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.wants_next_line = False  # the layers' names come on the line after their warning
        self.engine_lines: list[str] = []
        self.engines = 0
        self._precision: str | None = None
        self._constraints: str | None = None
        self._command: str | None = None
        self._device: str | None = None
        self._capability: str | None = None
        self._rtx = False
        self._strategy: int | None = None
        self._chosen: int | None = None
        self._hits: dict[_Hit, dict[int | None, int]] = {}
        self._weights: dict[int | None, dict[str, _WeightIssue]] = {}
        self._issue: _WeightIssue | None = None
        self._old_name: str | None = None
        self._norms: dict[int | None, _LayerNorm] = {}
        self._registered: dict[str, str] = {}
        self._nodes: dict[str, NodeType] = {}
        self._foreign: dict[str, tuple[str, ...]] = {}
        self._reformats: dict[ReformatLayer, dict[int | None, int]] = {}
        self._layers_set: dict[str, str] = {}
        self.handlers = {
            b"&&&& ": self.banner,
            b"TensorRT version: ": self.banner,
            b"TensorRT-RTX version: ": self.banner,
            b"Selected Device: ": self.gpu,
            b"Compute Capability: ": self.gpu,
            b"Precision: ": self.precision,
            b"backend strategy ": self.strategy,
            b"had the following issues when converted to": self.old_weight,
            b"Subnormal FP16 values detected": self.old_issue,
            b"smallest positive FP16 Subnormal value detected": self.old_issue,
            b"which would overflow in FP16 detected": self.old_issue,
            b" weights are affected by this issue: ": self.new_issue,
            b"List of affected weights: ": self.weight_names,
            b"Detected layernorm nodes in FP16": self.norm_detected,
            b"Running layernorm after self-attention": self.norm_advice,
            b"Registering layer: ": self.registered,
            b"] outputs: [": self.node_outputs,
            b"} metadata:": self.foreign_metadata,
            b"Adding reformat layer: ": self.reformat,
            b"Set layer ": self.set_layer,
            **{message.literal: self._for(message) for message in MESSAGES},
        }

    def _for(self, message: Message) -> Any:
        def collect(line: LogLine) -> None:
            match = message.regex.search(line.message)
            if match:
                groups = tuple((name, value or "") for name, value in match.groupdict().items())
                self._count(_Hit(message.rule, groups), self._hits)
                self._rtx = self._rtx or message.id == "RTX_STRONG"

        return collect

    def _count(self, key: Any, table: dict[Any, dict[int | None, int]]) -> None:
        if key in table or len(table) < MOST_NAMES:
            counts = table.setdefault(key, {})
            counts[self._strategy] = counts.get(self._strategy, 0) + 1

    # The build's facts

    def banner(self, line: LogLine) -> None:
        self.version = self.version or decode_version(line.message)
        self._rtx = self._rtx or "TensorRT-RTX version" in line.message
        match = _COMMAND.search(line.message)
        if match:
            self._command = match["command"].strip()

    def gpu(self, line: LogLine) -> None:
        if match := _DEVICE.search(line.message):
            self._device = self._device or match["device"]
        elif match := _CAPABILITY.search(line.message):
            self._capability = self._capability or match["capability"]

    def precision(self, line: LogLine) -> None:
        match = _PRECISION.match(line.message)
        # trtexec prints its default here when it loads an engine that was built otherwise.
        if match and "--loadEngine" not in (self._command or ""):
            self._precision = match["precision"]
            self._constraints = match["constraints"]

    def strategy(self, line: LogLine) -> None:
        match = _STRATEGY.search(line.message)
        if match:
            self._strategy = int(match["n"])
            if match["verb"].startswith("Chose"):
                self._chosen = self._strategy

    # Weights

    def old_weight(self, line: LogLine) -> None:
        match = _OLD_HEAD.search(line.message)
        self._old_name = match["name"] if match and match["type"] == "FP16" else None

    def old_issue(self, line: LogLine) -> None:
        if self._old_name is not None:
            issue = self._issue_of(line.message)
            if len(issue.names) < MOST_NAMES:
                issue.names[self._old_name] = None

    def new_issue(self, line: LogLine) -> None:
        match = _NEW_ISSUE.search(line.message)
        if match:
            self._issue = self._issue_of(match["what"])
            self._issue.stated = max(self._issue.stated, int(match["n"]))

    def _issue_of(self, text: str) -> _WeightIssue:
        kind = "underflow" if "smallest positive" in text else "overflow" if "overflow" in text else "subnormal"
        return self._weights.setdefault(self._strategy, {}).setdefault(kind, _WeightIssue())

    def weight_names(self, line: LogLine) -> None:
        match = _LIST.search(line.message)
        if match and self._issue is not None:
            for name in split_names(match["names"]):
                if len(self._issue.names) < MOST_NAMES:
                    self._issue.names[name] = None

    # LayerNorm

    def norm_detected(self, line: LogLine) -> None:
        match = _DETECTED.search(line.message)
        if match:
            norm = self._norms.setdefault(self._strategy, _LayerNorm())
            norm.detected = True
            if match["names"] is not None:
                self._norm_names(norm, match["names"])
            else:
                self.wants_next_line = True

    def next_line(self, line: LogLine) -> None:
        self.wants_next_line = False
        listed = "," in line.message or line.message in self._registered
        if line.severity == "V" and listed and not line.message.startswith("Running layernorm"):
            self._norm_names(self._norms.setdefault(self._strategy, _LayerNorm()), line.message)

    @staticmethod
    def _norm_names(norm: _LayerNorm, text: str) -> None:
        """Layers without a name leave nothing between the commas (", , ,"); each still is one."""
        places = [name.strip(" ,") for name in split_names(f"{text.rstrip('. ')} ")]
        names = [name for name in places if name]
        norm.layers.update(dict.fromkeys(names[:MOST_NAMES]))
        norm.count = max(norm.count, len(norm.layers), 0 if names else len(places))

    def norm_advice(self, line: LogLine) -> None:
        match = _ADVICE.search(line.message)
        if match:
            self._norms.setdefault(self._strategy, _LayerNorm()).advice[match["what"]] = None

    # Structure

    def registered(self, line: LogLine) -> None:
        match = _REGISTERED.search(line.message)
        if match and len(self._registered) < MOST_NAMES:
            self._registered[match["layer"]] = match["node"]

    def node_outputs(self, line: LogLine) -> None:
        match = _NODE_OUTPUTS.match(line.message)
        if match and len(self._nodes) < MOST_NAMES:
            outputs = tuple((found["name"], dtype_of(found["dtype"])) for found in _OUTPUT.finditer(match["outputs"]))
            self._nodes[match["node"]] = NodeType(match["op"], outputs)

    def foreign_metadata(self, line: LogLine) -> None:
        match = _FOREIGN.search(line.message)
        if match and len(self._foreign) < MOST_NAMES:
            self._foreign[match["name"]] = nodes_of_metadata(match["metadata"])

    def reformat(self, line: LogLine) -> None:
        subject, _, types = line.message.partition(_REFORMAT)[2].rpartition(") from ")
        name, _, tensor = subject.rpartition(" (")
        match = _REFORMAT_TYPES.match(types)
        if name and tensor and match:
            read = dtype_of(match["source"]), dtype_of(match["target"])
            self._count(ReformatLayer(name, tensor, *read), self._reformats)

    def set_layer(self, line: LogLine) -> None:
        match = _SET_PRECISION.search(line.message)
        if match and len(self._layers_set) < MOST_NAMES:
            self._layers_set[match["layer"]] = match["precision"].lower()

    # The report

    def report(self, source: str, lines: int, recognised: bool = True) -> LogReport:
        strong = self._strongly_typed()
        version = version_tuple(self.version)
        return LogReport(
            source=source,
            trt_version=self.version,
            precision=self._precision,
            constraints=self._constraints,
            strongly_typed=strong,
            command=self._command,
            findings=tuple(self._findings(version, strong)),
            structure=LogStructure(
                registered=self._registered,
                nodes=self._nodes,
                foreign=self._foreign,
                reformats=tuple(layer for layer, counts in self._reformats.items() if self._holds(counts)),
                layers_set=self._layers_set,
                engine_lines=tuple(self.engine_lines),
                engines=self.engines,
                strategy=self._last_strategy,
            ),
            lines=lines,
            recognised=recognised,
            device=self._device,
            capability=self._capability,
        )

    def _strongly_typed(self) -> bool | None:
        if self._rtx or version_tuple(self.version) >= (11,) or "Strongly Typed" in (self._precision or ""):
            return True
        if "--stronglyTyped" in (self._command or "").split():
            return True
        if any(", StrideOrder: " in line for line in self.engine_lines[:1]):  # printed by strongly typed compilers only
            return True
        if self._precision:
            return False
        return True if any(_means_strong(hit) for hit in self._hits) else None

    @property
    def _last_strategy(self) -> int | None:
        return self._chosen if self._chosen is not None else self._strategy

    def _holds(self, counts: dict[int | None, int]) -> bool:
        """The graph is built once for each strategy; what was said of one that was not chosen does not count."""
        return self._last_strategy is None or self._last_strategy in counts or None in counts

    def _of_last_strategy(self, table: dict[int | None, Any]) -> Any:
        """The chosen strategy's entry; warnings that do not repeat for each strategy count from any."""
        for key in (self._last_strategy, None, *table):
            if key in table:
                return table[key]
        return None

    def _findings(self, version: tuple[int, ...], strong: bool | None) -> list[Finding]:
        found: list[Finding] = []
        weights: dict[str, _WeightIssue] = self._of_last_strategy(self._weights) or {}
        for kind, rule in WEIGHT_ISSUES.items():
            if kind in weights:
                names = sorted(weights[kind].names)
                number = weights[kind].stated or len(names)
                found.append(_finding(rule, Where("build", "weights"), {"weights": number, "names": names},
                                      version, strong))  # fmt: skip
        norm: _LayerNorm | None = self._of_last_strategy(self._norms)
        if norm is not None:
            layers = list(norm.layers)
            where = Where("layer", layers[0]) if len(layers) == 1 else Where("build", "LayerNorm")
            numbers = {"count": norm.count, "layers": layers}
            if norm.detected:
                detected = _finding(LAYERNORM_DETECTED, where, numbers, version, strong)
                unnamed = f"{detected.message} (the log does not name them)"
                found.append(detected if layers or not norm.count else structs.replace(detected, message=unnamed))
            found += [_finding(LAYERNORM_ADVICE, where, {"what": what, **numbers}, version, strong)
                      for what in norm.advice]  # fmt: skip
        for hit, counts in self._hits.items():
            if not hit.rule.dependent or self._holds(counts):
                groups = dict(hit.groups)
                free = hit.rule.unconstrained if self._constraints is None else None
                where = Where(hit.rule.where, groups.pop(hit.rule.where, "") or "")
                times = counts.get(self._last_strategy, 0) or sum(counts.values())
                numbers = {**groups, "times": times}
                rule = replace(hit.rule, severity=free) if free else hit.rule
                finding = _finding(rule, where, numbers, version, strong)
                if hit.rule.where == "option" and where.name in TRTEXEC_FLAGS:
                    finding = structs.replace(finding, remedy=f"{flag_history(where.name)}; {finding.remedy}")
                found.append(finding)
        return found


def _means_strong(hit: _Hit) -> bool:
    """Whether a message by itself tells of strong typing: it speaks of it, or misses a flag of weak typing."""
    return hit.rule.strong or (hit.rule.where == "option" and dict(hit.groups).get("option") in _WEAK_FLAGS)


def _finding(
    rule: Rule, where: Where, numbers: dict[str, Any], version: tuple[int, ...], strong: bool | None
) -> Finding:
    words = {**numbers, where.kind: where.name}
    message = fill(rule.message, **words)
    return Finding(rule.id, rule.severity, where, numbers, message, rule.remedy.text(version, strong))
