"""How `--help` is laid out: an example first, verbs by what they are for, options by what they are about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["EXAMPLES", "VERB_GROUPS", "Verb", "Verbs"]

VERB_GROUPS = {
    "Start here": ("doctor", "fix", "demo"),
    "Look into a model": ("scan", "trace", "stages", "verify", "bisect"),
    "Look into an engine": ("audit", "log", "advise"),
    "Look into a GPU": ("prove", "profiles"),
    "Keep a result": ("gate", "compare", "schema"),
    "Many models": ("fleet",),
}
EXAMPLES = {
    "": "halfwise fix model.onnx --inputs samples/ --out out/",
    "demo": "halfwise demo",
    "doctor": "halfwise doctor model.onnx build.log layers.json samples/",
    "scan": "halfwise scan model.onnx",
    "trace": "halfwise trace model.onnx --inputs samples/",
    "fix": "halfwise fix model.onnx --inputs samples/ --out out/ --target trt-10.9@t4",
    "stages": "halfwise stages model.onnx --inputs samples/",
    "verify": "halfwise verify model.onnx out/model.fp16.onnx --inputs samples/",
    "bisect": "halfwise bisect model.onnx --backend ort-cuda --inputs samples/",
    "audit": "halfwise audit layers.json --plan out/model.plan.json --only violations",
    "log": "halfwise log build.log --model model.onnx",
    "prove": "halfwise prove --backend ort-cuda --out machine.json",
    "profiles": "halfwise profiles",
    "advise": "halfwise advise model.onnx --target trt-10.0.1@t4",
    "gate": "halfwise gate model.onnx --plan model.plan.json --inputs samples/",
    "compare": "halfwise compare before.json after.json",
    "schema": "halfwise schema fix",
    "fleet": "halfwise fleet run",
}
# Options in the order of these; what is named in none comes first.
_ABOUT = {
    "Inputs and tolerance": "inputs images size mean std layout range letterbox audio rate shapes "
    "tol metric rollout feedback reference profile",
    "Target and build": "target margin io-types io-formats allow time-limit confirm device gpu tf32 optimize "
    "io-binding",
    "Search": "max-runs repairs keep force plan engine builds check cut depth upto",
    "What is shown and written": "only node module curve explain html markdown sarif junit full json",
}


# Typer brings its own copy of click, or uses the one that is installed.
UsageError: Any = typer.BadParameter.__mro__[1]
_OF_FILES = ("--inputs", "--reference")
_ON_DISK = ("DIR", "FILE", "PLAN")


class Verb(TyperCommand):
    """One verb."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        self._check_named(ctx, words)
        if any(parameter.nargs == -1 for parameter in self.params):  # which would take all names for its own
            args = _each_named(words)
        try:
            return super().parse_args(ctx, args)
        except UsageError:
            if (spelled := _each_named(words)) == words:
                raise
            ctx.params.clear()
            return super().parse_args(ctx, spelled)

    def _check_named(self, ctx: Any, words: Sequence[str]) -> None:
        """No name at all, as of a shell's variable that is not set, would be the folder that the command runs in."""
        for parameter in self.params:
            for name in parameter.opts if getattr(parameter, "metavar", None) in _ON_DISK else ():
                if f"{name}=" in words or any(pair == (name, "") for pair in pairwise(words)):
                    raise UsageError(f"{name}: the name is empty", ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        _example(self.name or "", formatter)
        self.format_help_text(ctx, formatter)
        self.format_options(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments: list[Any] = []
        options: list[Any] = []
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                (options if parameter.param_type_name == "option" else arguments).append((parameter, record))
        _section("Arguments", [record for _, record in arguments], formatter)
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        sections |= {title: [] for title in _ABOUT}
        known = {f"--{word}": title for title, words in _ABOUT.items() for word in words.split()}
        few = len(options) < 12  # that need no sections
        for parameter, record in options:
            title = next((known[name] for name in parameter.opts if name in known), "Options")
            sections["Options" if few else title].append(record)
        for title, records in sections.items():
            _section(title, records, formatter)


def _each_named(words: Sequence[str]) -> list[str]:
    """Where a shell has spelled out a pattern of file names after an option, the option before each of them."""
    found: list[str] = []
    option = ""
    for before, word in zip(("", *words), words, strict=False):
        if before in _OF_FILES:
            option = before
        elif not (option and PurePath(word).suffix and PurePath(word).suffix == PurePath(before).suffix):
            option = ""
        found += [option, word] if option and found[-1] != option else [word]
    return found


class Verbs(TyperGroup):
    """All verbs."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.format_usage(ctx, formatter)
        _example("", formatter)
        self.format_help_text(ctx, formatter)
        self.format_commands(ctx, formatter)
        _section("Options", [r for p in self.get_params(ctx) if (r := p.get_help_record(ctx)) is not None], formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        grouped = {verb for verbs in VERB_GROUPS.values() for verb in verbs}
        others = tuple(verb for verb in self.commands if verb not in grouped)
        widest = max(map(len, self.commands))
        for title, verbs in {**VERB_GROUPS, "More": others}.items():
            rows = [
                (verb.ljust(widest), self.commands[verb].short_help or "") for verb in verbs if verb in self.commands
            ]
            _section(title, rows, formatter)


def _example(verb: str, formatter: Any) -> None:
    if example := EXAMPLES.get(verb):
        with formatter.section("Example"):
            formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def _section(title: str, records: Iterable[tuple[str, str]], formatter: Any) -> None:
    if rows := list(records):
        with formatter.section(title):
            formatter.write_dl(rows)
