"""How well a noise model knows what each rounding does: python -m benchmarks.ranking [MODEL...].

For each model, every rounding (of one tensor for one reader, or of one node's weights) is made alone in the FP32 model
and its error measured at the outputs: the truth. Two ways to predict it from one walk are held against it:
`scalar`, one gain per tensor measured with the rounding's own noise, and `adjoint`, which halfwise uses.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.formats import round_to
from halfwise.emulation.emulate import Emulator
from halfwise.emulation.stepper import Stepper
from halfwise.emulation.store import Store
from halfwise.model.model import Model, load
from halfwise.model.ops import CLOSED
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites
from halfwise.search.effects import Sensitivity
from halfwise.search.sensitivity import measure_sensitivity
from tests.models.zoo import ZooModel, cnn_tiny_weights, detr_head, encoder

__all__ = ["Edge", "predict_adjoint", "predict_scalar", "true_effects"]

Array = NDArray[Any]
Feeds = Mapping[str, Array]
Edge = tuple[ir.Node, "ir.Value | None"]  # a reader and what it reads; None for all its weights
Effects = dict[Edge, float]

MOST_TRIALS = 250  # of a model with more roundings, evenly spread ones are tried
COUNTS = 1e-3  # of all squared error: what is less has no part in the ratios
MODELS = ("yolox_nano", "gtcrn_stream", "magika_v1", "silero_vad_16k", "ultraface_rfb320", "nanotrack_v3_head")


# -- the truth --------------------------------------------------------------------------------------------------------


def true_effects(stepper: Stepper, sites: Sites, feeds: Feeds, edges: list[Edge]) -> Effects:
    """The squared relative error, summed over the outputs, with one rounding at a time."""
    fp32 = Assignment(sites, {})
    base = Store(stepper.emulator, fp32, feeds)
    order = list(sites.model.graph)
    for node in order:
        for value, array in stepper.run(node, fp32, base).items():
            base.put(value, array)
    place = {node: i for i, node in enumerate(order)}
    found = {}
    for edge in edges:
        node, read = edge
        changed = _rounded(sites, base, node, read)
        variant: dict[ir.Value, Array] = {}
        for later in order[place[node] :]:
            given = changed if later is node else variant
            if given and not given.keys().isdisjoint(stepper.outside(later)):
                outputs = stepper.run(later, fp32, base, given)
                variant.update({out: a for out, a in outputs.items() if not _same(a, base.read(out, None))})
        found[edge] = sum(
            _relative(base.read(out, None), variant[out])
            for out in dict.fromkeys(sites.model.graph.outputs)
            if out in variant
        )
    return found


def _same(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def _rounded(sites: Sites, base: Store, node: ir.Node, value: ir.Value | None) -> dict[ir.Value, Array]:
    if value is not None:
        return {value: round_to(base.read(value, None), sites.fmt)}
    site = sites.of[node]
    return {
        v: base.read(v, sites.fmt)
        for slot, v in enumerate(node.inputs)
        if v is not None and v.is_initializer() and site.inputs[slot]
    }


def _relative(base: Array, changed: Array) -> float:
    if base.dtype.kind != "f":
        return 0.0
    wide = base.astype(np.float64)
    norm = float(np.sum(wide * wide))
    return float(np.sum((changed - wide) ** 2)) / (norm or 1.0)


# -- predictions ------------------------------------------------------------------------------------------------------


def predict_adjoint(stepper: Stepper, sites: Sites, feeds: Feeds) -> Effects:
    return _read_off(_sense(stepper, sites, feeds))


def _sense(stepper: Stepper, sites: Sites, feeds: Feeds) -> Sensitivity:
    measured = Sensitivity()
    measure_sensitivity(stepper, sites, feeds, measured)
    return measured


def _read_off(measured: Sensitivity) -> Effects:
    """Every rounding that overflows nowhere: those are followed, not predicted."""
    found: Effects = {
        (node, v): energy
        for node, effects in measured.reads.items()
        for v, energy in effects.items()
        if v not in measured.overflows and (node, v) not in measured.breaks
    }
    found.update({(node, None): energy for node, energy in measured.weights.items()})
    return found


@dataclass
class _Gains:
    """Per rounding its own squared norm and what it is at each output of its reader."""

    noise: dict[Edge, float] = field(default_factory=dict)
    at: dict[Edge, dict[ir.Value, float]] = field(default_factory=dict)
    norm: dict[ir.Value, float] = field(default_factory=dict)


def predict_scalar(stepper: Stepper, sites: Sites, feeds: Feeds) -> Effects:
    """Each tensor has one gain: squared error at the outputs per squared error in it, followed backwards."""
    fp32 = Assignment(sites, {})
    store = Store(stepper.emulator, fp32, feeds)
    seen = _Gains()
    rng = np.random.default_rng(0)
    for step in stepper.walk(store):
        edges: list[Edge] = [(step.node, v) for v in dict.fromkeys(step.node.inputs) if v is not None and v in store]
        for edge in [*edges, (step.node, None)]:
            value = edge[1]
            changed = _rounded(sites, store, step.node, value) if value is None or _is_float(store, value) else {}
            own = 0.0
            if value is not None and changed:
                wide = store.read(value, None)
                own = _squared(changed[value], wide)
                if own == 0:  # exact itself, but noise passes through it
                    jitter = 1 + sites.fmt.unit_roundoff * rng.uniform(-1, 1, wide.shape)
                    changed[value] = np.asarray(wide * jitter, dtype=np.float32)
            if not changed:
                continue
            outputs = stepper.run(step.node, fp32, store, changed)
            seen.at[edge] = {
                out: _squared(array, step.outputs[out]) for out, array in outputs.items() if array.dtype.kind == "f"
            }
            if value is not None:
                seen.noise[edge] = _squared(changed[value], store.read(value, None))
                if own == 0:
                    seen.noise[edge] *= -1  # carries noise, has none of its own
        for value, array in step.outputs.items():
            if value.is_graph_output() and array.dtype.kind == "f":
                seen.norm[value] = _squared(array, np.zeros_like(array))
    return _backwards(sites, seen)


def _backwards(sites: Sites, seen: _Gains) -> Effects:
    gain = {value: 1 / norm for value, norm in seen.norm.items() if norm > 0}
    found: Effects = {}
    for node in reversed(list(sites.model.graph)):
        for edge in [(node, None), *((node, v) for v in dict.fromkeys(node.inputs) if v is not None)]:
            if edge not in seen.at:
                continue
            arriving = sum(energy * gain.get(out, 0.0) for out, energy in seen.at[edge].items())
            value, noise = edge[1], seen.noise.get(edge, 0.0)
            if value is not None and noise:
                gain[value] = gain.get(value, 0.0) + arriving / abs(noise)
            if value is None or noise > 0:
                found[edge] = arriving
    return found


def _is_float(store: Store, value: ir.Value) -> bool:
    array = store.read(value, None)
    return isinstance(array, np.ndarray) and array.dtype == np.float32


def _squared(a: Array, b: Array) -> float:
    if a.shape != b.shape:
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.nan_to_num(a.astype(np.float64) - b, nan=0.0, posinf=0.0, neginf=0.0)
    return float(np.sum(difference * difference))


# -- the comparison ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """Of a prediction: how well it orders, by which factor it is off, and what it cost."""

    roundings: int
    rank: float  # correlation of ranks, over all roundings with some effect
    middle: float  # median of predicted / true error
    far: float  # the factor within which 95% are
    total: float  # all roundings together: predicted / measured error of the all-FP16 model
    runs: float
    seconds: float


def score(predicted: Effects, truth: Effects, own: float, measured: float, runs: float, seconds: float) -> Score:
    """`own` is what rounding the outputs themselves leaves, `measured` the error of the all-FP16 model."""
    both = [e for e in truth if truth[e] > 0 and np.isfinite(truth[e]) and predicted.get(e, 0.0) > 0]
    true = np.array([truth[e] for e in both])
    guess = np.array([predicted[e] for e in both])
    large = true > COUNTS * true.max()
    ratio = np.sqrt(guess[large] / true[large])
    return Score(
        len(both),
        float(np.corrcoef(_ranks(true), _ranks(guess))[0, 1]),
        float(np.median(ratio)),
        float(np.exp(np.quantile(np.abs(np.log(ratio)), 0.95))),
        float(np.sqrt(own + sum(e for edge, e in predicted.items() if _computes(edge))) / measured),
        runs,
        seconds,
    )


def _computes(edge: Edge) -> bool:
    """What is only handed on is rounded once, by those who compute with it."""
    return edge[1] is None or edge[0].op_type not in CLOSED


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.argsort(np.argsort(values)).astype(np.float64)


def compare(name: str, model: Model, feeds: Feeds) -> Iterator[str]:
    sites, emulator = Sites(model), Emulator()
    wide, narrow = (emulator.session(a).run(feeds) for a in (Assignment(sites, {}), Assignment.all_narrow(sites)))
    measured = np.sqrt(sum(_relative(wide[k], narrow[k]) for k in wide))
    own = sum(_relative(wide[k], round_to(wide[k], sites.fmt)) for k in wide if wide[k].dtype.kind == "f")
    guesses = []
    for how, predict in (("scalar", predict_scalar), ("adjoint", predict_adjoint)):
        stepper = Stepper(emulator)
        predict(stepper, sites, feeds)  # compiles the nodes
        stepper.executed, start = 0.0, time.perf_counter()
        effects = predict(stepper, sites, feeds)
        seconds = time.perf_counter() - start
        guesses.append((how, _narrowing(sites, effects), stepper.executed / len(sites.all), seconds))
    edges = [edge for edge in guesses[-1][1] if edge in guesses[0][1]]
    edges = edges[:: -(-len(edges) // MOST_TRIALS)]
    truth = true_effects(Stepper(emulator), sites, feeds, edges)
    for how, effects, runs, seconds in guesses:
        s = score(effects, truth, own, float(measured), runs, seconds)
        yield (
            f"{name:20} {how:8} {s.roundings:5} {s.rank:7.3f} {s.middle:8.2f} {s.far:8.2f} {s.total:8.2f}"
            f" {s.runs:6.1f} {s.seconds:6.2f}"
        )


def _narrowing(sites: Sites, effects: Effects) -> Effects:
    """Only what a choice could round."""
    return {
        (node, value): energy
        for (node, value), energy in effects.items()
        if sites.of[node].free
        and (value is None or any(sites.of[node].inputs[s] for s, v in enumerate(node.inputs) if v is value))
    }


def _cases(wanted: list[str]) -> Iterator[tuple[str, Model, Feeds]]:
    built: dict[str, Callable[[], ZooModel]] = {
        "encoder_2": lambda: encoder(layers=2, overflow=False),
        "detr_head": detr_head,
        "cnn_tiny_channels": lambda: cnn_tiny_weights("channels"),
    }
    for name, build in built.items():
        if not wanted or name in wanted:
            zoo = build()
            yield name, load(zoo.model), zoo.inputs[0]
    folder = Path(__file__).resolve().parents[1].parent / "shared" / "models"
    for name in MODELS:
        if (not wanted or name in wanted) and (folder / name / "model.onnx").exists():
            model = load(onnx.load(folder / name / "model.onnx"))
            known = {value.name for value in model.inputs}
            with np.load(folder / name / "inputs_0.npz") as given:
                yield name, model, {k: v for k, v in given.items() if k in known}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*")
    heads = f"{'edges':>5} {'rank':>7} {'median':>8} {'95%':>8} {'total':>8} {'runs':>6} {'s':>6}"
    print(f"{'model':20} {'way':8} {heads}")
    for name, model, feeds in _cases(parser.parse_args().models):
        for line in compare(name, model, feeds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
