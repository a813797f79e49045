"""`halfwise audit`: what precision really ran, node by node, and whether a plan was kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfwise.errors import InputError

if TYPE_CHECKING:
    from halfwise.engine.audit import Audit, Violation
    from halfwise.formats import Format

__all__ = ["command"]

_SHOWN = 20


def command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="Inspector JSON, layer dump, verbose build log, or an ONNX model to compile here."
        ),
    ],
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Plan (JSON): its fp32_nodes must have run in FP32.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="ONNX model that was built: gives all its nodes.")
    ] = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--inputs", help="Inputs for the shapes of a model to compile; repeatable."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="SECONDS", min=1.0, help="For compiling a model.")
    ] = 600.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (halfwise.audit/1).")] = False,
) -> None:
    """What precision really ran, per ONNX node; exit code 1 where the plan was not kept."""
    wanted = _wanted(plan) if plan is not None else {}
    result = _audit(source, model, wanted, inputs or (), time_limit)
    if as_json:
        typer.echo(json.dumps(result.to_json(), indent=2))
    else:
        _show(result, bool(wanted))
    if result.violations:
        raise typer.Exit(1)


def _audit(
    source: Path, model: Path | None, wanted: dict[str, Format], inputs: Sequence[Path], time_limit_s: float
) -> Audit:
    from halfwise.engine.audit import audit
    from halfwise.engine.buildlog import read_log
    from halfwise.engine.layers import layers_from_log, looks_like_json, read_layers
    from halfwise.engine.layers_model import compile_for_log, nodes_of_model

    head = _head(source)
    nodes = nodes_of_model(model) if model is not None else None
    if looks_like_json(head.decode("utf-8", errors="replace").replace("\0", "")):
        return audit(read_layers(source), None, nodes, wanted, str(source))
    if source.suffix == ".onnx" or (b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))):
        nodes = nodes or nodes_of_model(source)
        log = compile_for_log(source, inputs, time_limit_s)
    else:
        log = read_log(source)
    return audit(layers_from_log(log, str(source)), log, nodes, wanted, str(source))


def _head(source: Path) -> bytes:
    if not source.exists():
        raise InputError(f"{source}: there is no such file")
    if source.is_dir():
        raise InputError(f"{source} is a folder; name the layer information, the log or the model in it")
    try:
        with source.open("rb") as file:
            return file.read(4096)
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from error


def _wanted(plan: Path) -> dict[str, Format]:
    """The plan's FP32 nodes; of the plan nothing else is read."""
    from halfwise.formats import Format

    try:
        document: Any = json.loads(plan.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{plan}: the plan cannot be read: {error.strerror}") from error
    except ValueError:
        raise InputError(f"{plan}: the plan is not valid JSON") from None
    entries = document.get("fp32_nodes") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise InputError(f"{plan}: this plan has no list fp32_nodes; give the plan that `halfwise fix` wrote")
    names = [entry.get("name") if isinstance(entry, dict) else entry for entry in entries]
    if not all(isinstance(name, str) for name in names):
        raise InputError(f"{plan}: an entry of fp32_nodes is neither a name nor an object with a name")
    return {str(name): Format.FP32 for name in names}


def _show(result: Audit, planned: bool) -> None:
    cost = result.cost
    typer.echo(
        f"{result.source}: {cost.kernels} kernels, {cost.bytes_moved / 1e6:.2f} MB between them, "
        f"{cost.casts} casts, {cost.reformats} reformats"
        + (f", {cost.unsized} tensors of unknown size" if cost.unsized else "")
    )
    if result.attention_kernels:
        typer.echo(f"fused attention: {', '.join(result.attention_kernels)}; its scores and softmax are not visible")
    counts = Counter((node.precision, node.coverage) for node in result.nodes if node.compute)
    typer.echo(f"{sum(counts.values())} compute nodes:")
    for (precision, coverage), number in counts.most_common():
        typer.echo(f"  {number:6} {precision:8} {coverage}")
    for note in result.notes:
        typer.echo(f"note: {note}")
    _show_violations("violation", result.violations, typer.colors.RED)
    _show_violations("unproven", result.unproven, typer.colors.YELLOW)
    if planned and not result.violations:
        rest = f", {len(result.unproven)} cannot be told" if result.unproven else ""
        typer.echo(f"no node breaks the plan{rest}")


def _show_violations(title: str, violations: Sequence[Violation], colour: str) -> None:
    for violation in violations[:_SHOWN]:
        typer.echo(
            f"{typer.style(title, fg=colour)} {violation.node}: wanted {violation.wanted}, got {violation.got}; "
            f"{violation.why}" + (f" [{', '.join(violation.kernels[:3])}]" if violation.kernels else "")
        )
    if len(violations) > _SHOWN:
        typer.echo(f"  ... and {len(violations) - _SHOWN} more (--json lists all)")
