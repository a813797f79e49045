"""`halfwise trace`: the range of every tensor, and what FP16 does to each node on its own."""

from __future__ import annotations

import json

from halfwise.cli.options import Full, Inputs, Json, ModelPath, Sarif, paths
from halfwise.cli.progress import progress

__all__ = ["command"]


def command(
    model: ModelPath, inputs: Inputs = None, sarif: Sarif = None, full: Full = False, as_json: Json = False
) -> None:
    """Run the FP32 model once per input: ranges of all tensors, and each node's error if it alone were FP16."""
    from halfwise.report.files import check_writable, write
    from halfwise.trace import trace

    check_writable(sarif)

    with progress(f"trace {model.name}") as shown:
        result = trace(model, paths(inputs), notify=shown.count)

    if sarif is not None:
        from halfwise.report.sarif import sarif_text

        write(sarif, sarif_text(result.findings, model))
    from halfwise.report.terminal import Terminal, write_out

    if as_json:
        write_out(json.dumps(result.to_json(), indent=2, allow_nan=False) + "\n")
        return
    from halfwise.report.trace import show_trace

    terminal = Terminal(full=full)
    show_trace(terminal, result, model.name)
    terminal.flush()
