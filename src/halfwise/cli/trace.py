"""`halfwise trace`: the range of every tensor, and what FP16 does to each node on its own."""

from __future__ import annotations

from typing import Any

from halfwise.cli.going_on import going_on
from halfwise.cli.input_options import takes_inputs
from halfwise.cli.options import Full, Html, Json, ModelPath, Reference, Sarif
from halfwise.cli.progress import progress
from halfwise.cli.reporting import answer, command_line, write_page, write_sarif

__all__ = ["command"]


@takes_inputs
def command(
    model: ModelPath,
    inputs: list[Any] | None = None,
    reference: Reference = None,
    sarif: Sarif = None,
    html: Html = None,
    full: Full = False,
    as_json: Json = False,
) -> None:
    """Run the FP32 model once per input: ranges of all tensors, and each node's error if it alone were FP16."""
    from halfwise.report.files import check_writable
    from halfwise.verbs.trace import trace

    check_writable(sarif, html, reads=[model, reference])

    sources = (model,) if reference is None else (model, reference)
    with going_on("trace", *sources), progress(f"trace {model.name}") as shown:
        result = trace(model, inputs, reference=reference, notify=shown.count)

    write_sarif(sarif, result.findings, model)
    from halfwise.core.english import say_all
    from halfwise.report.shell import input_words
    from halfwise.report.trace import show_trace

    words = input_words(command_line())

    write_page(html, f"Trace of {model.name}", result, noun="tensor", notes=say_all(result.notes))

    answer(result.to_json, lambda screen: show_trace(screen, result, model, words), as_json=as_json, full=full)
