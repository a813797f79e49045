"""Options that several verbs share, and how their text becomes values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfwise.core.errors import HalfwiseError
from halfwise.core.files.absent import absent

if TYPE_CHECKING:
    from halfwise.core.metrics import OutputMetric

__all__ = [
    "Feedback",
    "Full",
    "Html",
    "Inputs",
    "Interrupted",
    "Json",
    "MetricSpec",
    "ModelPath",
    "Reference",
    "Sarif",
    "Steps",
    "Tolerances",
    "user_metric",
]


def _there(path: Path) -> Path:
    """A name that is mistyped is told of before an option that is missing."""
    if not path.exists():
        raise absent(path)
    return path


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX model.", show_default=False, callback=_there)]
Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--inputs",
        metavar="PATH",
        help="Real inputs: .npz (keys are input names), .npy, Polygraphy's .json, or a folder of these; repeatable. "
        "Without inputs, random ones are generated and every result is flagged as synthetic.",
        show_default=False,
    ),
]
Tolerances = Annotated[
    list[str] | None,
    typer.Option(
        "--tol",
        metavar="'OUTPUT:METRIC<=VALUE'",
        help="Accepted error; repeatable, '*' is every output. 0.5% changes the default; boxes=0.5% bounds a "
        "ready measure. METRIC: rel_l2, max_abs, rms (<=), cosine, psnr, topk, exact, found (>=), metric (<=, with "
        "--metric). Default: '*:rel_l2<=0.01' and '*:exact>=0.999'.",
        show_default=False,
    ),
]
MetricSpec = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="NAME|PKG.MOD:FN",
        help="A ready measure (boxes, keypoints, mask, logits, text, audio, image, embedding; options as in "
        "boxes:threshold=0.4), or your function: fn(reference, other) gets two dicts of arrays by output name and "
        "returns a number; 0 is perfect. Bound it with --tol 'metric<=VALUE'; ready measures: 1% without.",
        show_default=False,
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="ORIGINAL.onnx",
        help="FP32 original of a MODEL that is FP16 or BF16 already: its outputs judge, its weights are taken.",
        show_default=False,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--rollout",
        metavar="N",
        help="Judge N steps in a row. The samples in order are a stream; each step takes the state that the same "
        "model gave before it (--feedback).",
        show_default=False,
    ),
]
Feedback = Annotated[
    list[str] | None,
    typer.Option(
        "--feedback",
        metavar="OUTPUT=INPUT",
        help="With --rollout: this output is that input in the next step; repeatable. A * stands for the same part of "
        "both names.",
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, all else on stderr.")]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write a page to look at.", show_default=False)
]
Sarif = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Also write SARIF 2.1.0.", show_default=False)
]
Full = Annotated[bool, typer.Option("--full", help="Show whole tables, however long.")]


class Interrupted(HalfwiseError):
    """The user pressed Ctrl-C."""

    exit_code = 130


def user_metric(spec: str | None) -> OutputMetric | None:
    """The user's function, known by the name they gave it."""
    if spec is None:
        return None
    from halfwise.core.measures.named import metric_named

    return metric_named(spec)
