"""Writes docs/fidelity.md from the committed data: `python -m benchmarks.gpu.report`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import markdown
from benchmarks.fidelity import MODES
from benchmarks.gpu.gaps import DATA, ratios, worst
from benchmarks.gpu.operators import is_proven
from benchmarks.gpu.spread import excesses, left_out

__all__ = ["PAGE", "page"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fidelity.md"
ALLOWED = 0.01  # the error at which verdicts are compared


def page(folder: Path = DATA) -> str:
    """The whole page."""
    operators, models, speed = (
        json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("operators", "fidelity", "speed")
    )
    parts = [_HEAD.format(**_machine(models["machine"])), *_models(models["models"]), *_spread(models["models"])]
    parts += _operators(operators["forms"])
    return "\n".join([*parts, *_speed(speed["rows"])]) + "\n"


def _machine(machine: Mapping[str, str]) -> dict[str, str]:
    return {key: machine.get(key, "?") for key in ("gpu", "driver", "onnxruntime", "cuda", "cudnn", "date")}


def _models(models: Mapping[str, Any]) -> list[str]:
    rows, alarms, false_fine, cells = [], 0, 0, 0
    for name, entry in sorted(models.items()):
        for version, row in entry["versions"].items():
            line = [f"{name} *" if entry["held_out"] else name, version, str(row["fp32_nodes"])]
            for mode, profile in MODES.items():
                measured, predicted = worst(row["measured"][mode]), worst(row["predicted"][profile])
                cells += 1
                false_fine += predicted <= ALLOWED < measured
                alarms += measured <= ALLOWED < predicted
                line += [_error(measured), _ratios(ratios(row, mode).values())]
            if "strict" in row["predicted"]:
                strict = {"predicted": {MODES["fused"]: row["predicted"]["strict"]}, "measured": row["measured"]}
                line.append(_ratios(ratios(strict, "fused").values()))
            else:
                line.append("")
            rows.append(line)
    head = ("model", "version", "FP32 nodes", "measured, unfused", "r", "measured, fused", "r", "r of `strict`, fused")
    return [
        "## Models\n",
        markdown(head, rows),
        "",
        *_summary(models),
        f"- At an allowed error of {ALLOWED:.0%}, {cells} cases: emulation passes and GPU fails in {false_fine}, "
        f"emulation fails and GPU passes in {alarms}.\n",
    ]


def _summary(models: Mapping[str, Any]) -> list[str]:
    """How many models stay within which bounds, in FP16, by their worst output."""
    lines = []
    for mode, (near, far) in {"unfused": (0.05, (0.8, 1.25)), "fused": (0.1, (0.7, 1.4))}.items():
        for held_out in (False, True):
            some = [entry for entry in models.values() if entry["held_out"] is held_out]
            if not some:
                continue
            found = [list(ratios(entry["versions"]["fp16"], mode).values()) for entry in some]
            told = [values for values in found if values]
            close = sum(all(1 - near <= value <= 1 + near for value in values) for values in told)
            within = sum(all(far[0] <= value <= far[1] for value in values) for values in told)
            kind = "held-out models" if held_out else "models that rules were fitted to"
            lines.append(
                f"- FP16, {mode}, {len(told)} {kind} with finite errors: all outputs within "
                f"{1 - near:.2f} to {1 + near:.2f} on {close}, within {far[0]} to {far[1]} on {within}."
                + _not_finite(len(found) - len(told))
            )
    return lines


def _not_finite(count: int) -> str:
    return f" On {count} more the GPU's results are not finite, as predicted." if count else ""


def _spread(models: Mapping[str, Any]) -> list[str]:
    """What the profiles promise, and how it was found."""
    rows = []
    for mode, profile in MODES.items():
        for loose in (False, True):
            found = excesses(models, mode, loose=loose)
            if not found:
                continue
            name = max(found, key=lambda each: found[each])
            kind = "with loose operators" if loose else "without"
            within = "{} of {}".format(*left_out(models, mode)) if not loose else ""
            rows.append([profile, kind, str(len(found)), f"{found[name]:.1%} ({name})", within])
    head = ("profile", "models", "how many", "largest excess", "within the spread of the others")
    return ["## Spread\n", _SPREAD, markdown(head, rows), ""]


def _operators(forms: Sequence[Mapping[str, Any]]) -> list[str]:
    proven = {key: sum(is_proven(form[key]) for form in forms) for key in ("strict", "profile")}
    rows = [
        [
            form["name"],
            form["provider"],
            f"{form['strict']['equal']:.2%}",
            f"{form['profile']['equal']:.2%}",
            _ulp(form["profile"]["largest_ulp"]),
            f"{form['profile']['difference']:.0e}",
            "yes" if is_proven(form["profile"]) else "",
        ]
        for form in forms
    ]
    head = ("form", "runs on", "equal, `strict`", "equal, profile", "largest ulp", "difference, rms", "proven")
    return [
        "## Operators\n",
        _PROVEN.format(len(forms), **proven),
        markdown(head, rows),
        "",
    ]


def _speed(rows: Mapping[str, Any]) -> list[str]:
    versions = ("fp32", "fp32-tf32", "fp16", "autocast", "fixed", "repaired")
    graphs = {name: {v: row.get("graph", {}) for v, row in entry.items()} for name, entry in rows.items()}
    captured, launched = _with_times(graphs), _with_times(rows)
    head = ("model@batch", "FP32", "FP32, TF32 on", "FP16", "AutoCast", "fixed", "repaired",
            "fixed / FP16", "repaired / FP16", "fixed / AutoCast", "repaired / AutoCast")  # fmt: skip
    parts = ["## Speed\n", _SPEED, *_in_short(captured)]
    for title, table in (("### By CUDA graphs\n", captured), ("### Launched node by node\n", launched)):
        lines = []
        for name, row in table.items():
            ratios_shown = [
                _ratio(row, "fixed", "fp16"),
                _ratio(row, "repaired", "fp16"),
                _ratio(row, "fixed", "autocast"),
                _ratio(row, "repaired", "autocast"),
            ]
            lines.append([name, *(_milliseconds(row.get(version)) for version in versions), *ratios_shown])
        parts += [title, markdown(head, lines), ""]
    return [*parts, *_what_is_left(rows)]


def _with_times(rows: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: {v: row for v, row in entry.items() if "median_ms" in row} for name, entry in rows.items()}
    return {name: entry for name, entry in found.items() if entry}


def _in_short(captured: Mapping[str, Any]) -> list[str]:
    """How near the fixed versions come to FP16, and which do not."""
    lines = []
    for version, bound in (("fixed", 1.05), ("repaired", 1.02)):
        found = {name: float(ratio) for name, row in captured.items() if (ratio := _ratio(row, version, "fp16"))}
        beyond = [f"{name} {ratio:.2f}" for name, ratio in found.items() if ratio > bound]
        line = f"{version} takes at most {bound} of FP16's time in {len(found) - len(beyond)} of {len(found)} rows"
        lines.append(line + (f" (not {', '.join(beyond)})" if beyond else ""))
    return [f"By CUDA graphs: {'; '.join(lines)}.\n"]


def _what_is_left(rows: Mapping[str, Any]) -> list[str]:
    """The error of what was timed, and why it takes the time it takes: casts, and norms that stayed whole."""
    head = ("model@batch", "version", "FP32 nodes", "error", "Casts", "norms in one kernel")
    lines = []
    for name, entry in rows.items():
        for version, row in entry.items():
            if "operators" not in row or version in ("fp32", "fp16-again"):
                continue
            norms = sum(count for op, count in row["operators"].items() if op.endswith("LayerNormalization"))
            kept = str(row.get("fp32_nodes", 0 if version == "fp16" else ""))
            lines.append([name, version, kept, _error(row["error"]), str(row["operators"].get("Cast", 0)), str(norms)])
    return ["### What was timed\n", _TIMED, markdown(head, lines)]


def _ratio(row: Mapping[str, Any], version: str, base: str) -> str:
    times = [row.get(name, {}).get("median_ms") for name in (version, base)]
    return f"{times[0] / times[1]:.2f}" if all(times) else ""


def _error(value: float) -> str:
    return f"{value:.1e}" if math.isfinite(value) else "not finite"


def _ratios(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.2f}" if value < 10 else f"{value:.0f}" for value in values) or "-"


def _ulp(value: int) -> str:
    return str(value) if value < 1 << 16 else "NaN differs"


def _milliseconds(row: Mapping[str, float] | None) -> str:
    return "" if row is None else f"{row['median_ms']:.2f} ({row['p10_ms']:.2f} to {row['p90_ms']:.2f})"


_HEAD = """# Predicted and measured on a GPU

Generated by `python -m benchmarks.gpu.report` from `benchmarks/data`; do not edit.

- **Setup**: one {gpu}, driver {driver}, CUDA {cuda}, cuDNN {cudnn}, ONNX Runtime {onnxruntime} with its CUDA
  provider, TF32 off, {date}.
- **Scripts**: `benchmarks/fidelity.py`, `benchmarks/gpu/collect_operators.py` and `benchmarks/gpu/speed.py`.
- **Measured**: the worst relative error (rms) over eight inputs and all outputs, against FP32 on the same GPU.
- **r**: predicted over measured error, by output, rms over the inputs; none below an error of 1e-5.
- **Profiles**: `ort-cuda-unfused` predicts unfused runs (no graph optimization), `ort-cuda` fused ones.
- **Versions**: `fp16` is all FP16, `fixed` has FP32 nodes, `repaired` has repairs too. If FP16 is well within 1%, the
  plan was made for less than half of its error.
- **\\***: held out. The model was built after the rules.
"""

_SPREAD = """\
How far measured errors exceed predicted ones, by model, on the worst output and version, above an error of 1e-4. A
profile's [spread](numerics-profiles.md#spread) covers one more model at 19 in 20 (the largest excess, with fewer than
39 models), rounded up.
"""

_PROVEN = """\
{profile} of {0} operator forms are proven under the provider's profile, {strict} under `strict`. *Proven*: at least
99.9% of the results are equal to the bit, or none is more than one unit in the last place away. Unary operators were
given every FP16 number.
"""

_SPEED = """\
Median milliseconds of 15 rounds between CUDA events (10th to 90th percentile), inputs and outputs bound on the GPU,
all fusions on, cuDNN's search exhaustive. Batch 1 unless stated.

- **Networks** (`benchmarks/gpu/missing.py`) miss 1% in FP16: squares overflow in the norms of `vit_b16`,
  `encoder_base` (512 tokens) and `decoder_24` (1,024 tokens; plans made at 256). `detr_boxes` has boxes in pixels,
  `segmenter` tiny weights. In `deeplab_like` roundings add up, and no repair applies.
- **fixed**, **repaired**: `fix --target ort-cuda` from eight inputs, without and with repairs.
- **AutoCast**: NVIDIA ModelOpt's AutoCast with defaults, calibrated with one input.
- **By CUDA graphs**: kernel time without the host's launches. **Launched node by node**: at batch 1 the launches cost
  more than the kernels.
"""

_TIMED = """\
The error is the worst relative one (rms) over the outputs, as timed on the GPU, against FP32 without fusions.

- **Norms** whose statistics `fix` keeps in FP32 run as
  [one kernel](numerics-profiles.md#norms-in-two-types), and the casts join it.
- **`segmenter`** keeps FP32 convolutions, because their weights are below FP16's smallest numbers, and these run
  without tensor cores. The repair rescales the weights and needs none.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
