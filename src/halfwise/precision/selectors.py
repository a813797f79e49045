"""Turns what a user states into nodes: op:Softmax, scope:/head/*, name:..., pattern:..., policy:..."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property

from halfwise.core.counting import Counts
from halfwise.core.english import say
from halfwise.core.errors import InputError
from halfwise.core.nearest import nearest
from halfwise.model.model import Model
from halfwise.model.patterns import KINDS, find_patterns
from halfwise.precision.choices import Choices
from halfwise.precision.lists import Policy, policy_named
from halfwise.precision.sites import Site, Sites

__all__ = ["Selection", "choices_of", "kept_by"]

_FORMS = "op:Softmax, scope:'/head/*', name:NODE, pattern:layernorm or policy:torch-autocast"


class Selection:
    """The nodes of one model by everything they can be asked for; those of the `given` model that are written out in it
    mean their steps."""

    def __init__(self, model: Model, given: Model | None = None) -> None:
        self.sites = Sites(model)
        self.by_name: Mapping[str, Site] = {site.name: site for site in self.sites.all}
        self._given = given or model

    @cached_property
    def steps(self) -> Mapping[str, list[str]]:
        """Of the nodes that are written out, by their names."""
        gone = {node.name: list[str]() for node in self._given.nodes if node.name and node.name not in self.by_name}
        for name in self.by_name if gone else ():
            if (of := name.rpartition("/")[0]) in gone:
                gone[of].append(name)
        return {of: steps for of, steps in gone.items() if steps}

    @cached_property
    def by_op(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for site in self.sites.all:
            found.setdefault(site.op, []).append(site.name)
            if site.node.domain:
                found.setdefault(f"{site.node.domain}:{site.op}", []).append(site.name)
        for of, steps in self.steps.items():
            found.setdefault(self._given.node_by_name[of].op_type, []).extend(steps)
        return found

    @cached_property
    def by_pattern(self) -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for pattern in find_patterns(self.sites.model):
            found.setdefault(pattern.kind, []).extend(pattern.nodes)
        for op, kind in _WHOLE.items():
            found.setdefault(kind, []).extend(self.by_op.get(op, ()))
        return {kind: list(dict.fromkeys(names)) for kind, names in found.items() if names}

    def of(self, selector: str, option: str) -> list[str]:
        """The names of the nodes that a selector means; one that means none is a mistake, not a wish."""
        kind, colon, text = selector.partition(":")
        if not colon or kind not in ("op", "scope", "name", "pattern", "policy") or not text:
            raise InputError(f"{option} {selector}: write {_FORMS}")
        found = getattr(self, f"_{kind}")(text, f"{option} {selector}")
        return [str(name) for name in found]

    def _op(self, text: str, where: str) -> list[str]:
        found = [name for op, names in self.by_op.items() if fnmatchcase(op, text) for name in names]
        if not found:
            raise InputError(f"{where}: the model has no operator {text}{nearest(text, self.by_op)}")
        return list(dict.fromkeys(found))

    def _name(self, text: str, where: str) -> list[str]:
        if text in self.steps:
            return self.steps[text]
        if text not in self.by_name:
            raise InputError(f"{where}: the model has no node of that name{nearest(text, self.by_name)}")
        return [text]

    def _scope(self, text: str, where: str) -> list[str]:
        """A scope and what lies in it; with `*` and `?`, names that fit."""
        if any(letter in text for letter in "*?["):
            found = [name for name in self.by_name if fnmatchcase(name, text)]
        else:
            inside = text.rstrip("/.")
            found = [n for n in self.by_name if n == inside or n.startswith((f"{inside}/", f"{inside}."))]
        if not found:
            raise InputError(f"{where}: no node's name fits{nearest(text, _scopes(self.by_name))}")
        return found

    def _pattern(self, text: str, where: str) -> list[str]:
        if text not in KINDS:
            raise InputError(f"{where}: there is no such pattern{nearest(text, KINDS)}; there are {', '.join(KINDS)}")
        if text not in self.by_pattern:
            raise InputError(f"{where}: the model has no {KINDS[text]}{_instead(self.by_pattern)}")
        return self.by_pattern[text]

    def _policy(self, text: str, where: str) -> list[str]:
        found = kept_by(policy_named(text), self)
        if not found:
            raise InputError(f"{where}: that list keeps no node of this model")
        return found


# Operators that are one of the patterns as a whole.
_WHOLE = {
    "LayerNormalization": "layernorm",
    "RMSNormalization": "rmsnorm",
    "InstanceNormalization": "instancenorm",
    "GroupNormalization": "groupnorm",
    "Softmax": "softmax",
    "LogSoftmax": "softmax",
    "ReduceLogSumExp": "logsumexp",
    "LpNormalization": "l2norm",
    "Attention": "attention",
    "CumSum": "cumsum",
    "TopK": "selection",
    "NonMaxSuppression": "selection",
}


def kept_by(policy: Policy, selection: Selection, ranges: Mapping[str, Counts] | None = None) -> list[str]:
    """The nodes with FP32 tensors that a list keeps in FP32; by its rule of magnitude, too, where ranges are known."""
    inside = {name for kind in policy.patterns for name in selection.by_pattern.get(kind, ())}
    return [
        site.name
        for site in selection.sites.all
        if site.has_fp32
        and (site.name in inside or (site.op in policy.ops and not site.node.domain) or _large(policy, site, ranges))
    ]


def _large(policy: Policy, site: Site, ranges: Mapping[str, Counts] | None) -> bool:
    if policy.magnitude is None or ranges is None or not site.compute:
        return False
    touched = [value.name for value in (*site.node.inputs, *site.node.outputs) if value is not None and value.name]
    return any(name in ranges and ranges[name].max_abs > policy.magnitude for name in touched)


def choices_of(model: Model, keep: Sequence[str], force: Sequence[str], given: Model | None = None) -> Choices:
    """Every node that the user decides about; what cannot be applied is an error before anything runs."""
    if not keep and not force:
        return Choices()
    selection = Selection(model, given)
    kept = _chosen(selection, keep, "--keep")
    forced = _chosen(selection, force, "--force")
    for name, words in kept.items():
        if name in forced:
            raise InputError(f"node {name!r} is asked for twice: {words} and {forced[name]} contradict each other")
    return Choices(kept, {name: words for name, words in forced.items() if selection.by_name[name].free})


def _chosen(selection: Selection, selectors: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for selector in selectors:
        sites = [selection.by_name[name] for name in selection.of(selector, option)]
        able = [site for site in sites if site.has_fp32 and (option == "--keep" or site.free)]
        if not able:
            first = sites[0]
            why = say(first.pinned) if first.pinned else "has no FP32 tensor"
            what = f"node {first.name!r}" if len(sites) == 1 else f"none of its {len(sites)} nodes"
            verb = "can be FP16" if option == "--force" else "works on FP32 values"
            if len(sites) == 1:
                verb = "cannot be FP16" if option == "--force" else "works on no FP32 value"
            raise InputError(f"{option} {selector}: {what} {verb} ({first.name!r}: {why})")
        for site in able:
            found.setdefault(site.name, f"{option} {selector}")
    return found


def _scopes(names: Mapping[str, Site]) -> Iterator[str]:
    """Every scope that the names of nodes lie in, and the names."""
    for name in names:
        for end in re.finditer(r"[/.]", name[1:]):
            yield name[: end.start() + 1] + "/*" if name[end.start() + 1] == "/" else name[: end.start() + 1] + ".*"
        yield name


def _instead(known: Mapping[str, list[str]]) -> str:
    return f"; it has {', '.join(known)}" if known else ""
