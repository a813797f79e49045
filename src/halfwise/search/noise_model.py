"""What FP16 was seen to do to one model: every piece of noise, what each node costs in FP32, which nodes overflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir as ir

from halfwise.core.errors import InputError
from halfwise.core.float_sum import float_sum
from halfwise.core.tolerance import Tolerance
from halfwise.precision.sites import Sites
from halfwise.search.choose import Ladder, build_ladder
from halfwise.search.cost import node_costs
from halfwise.search.journal_entries import NoiseEntry
from halfwise.search.judge import Measured
from halfwise.search.kept_sensitivity import keep_sensitivity, kept_sensitivity
from halfwise.search.noise import Noise, noise_pieces
from halfwise.search.overflows import may_overflow
from halfwise.search.sensitivity import Sensitivity, measure_sensitivity
from halfwise.search.sets import Sets, worst_first
from halfwise.search.stored_sums import kernels_apart
from halfwise.search.tensor_statistics import TensorStatistics, merged, tensor_statistics
from halfwise.search.walks import CLOSE, Walks

__all__ = ["NoiseModel", "cost_of", "lost_in", "measure_noise", "noise_of_one", "noise_of_worst", "relative_bounds"]


FAR = 0.25  # of the allowed error
BROKEN = 32.0  # times the allowed error: plain FP16 that is as wrong has lost values, more often than not


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """`cost` is what keeping a node in FP32 costs; `fatal` are the nodes whose roundings overflow."""

    pieces: tuple[Noise, ...]
    cost: Mapping[ir.Node, float]
    fatal: frozenset[ir.Node]

    def left(self, keep: frozenset[ir.Node]) -> float:
        """The squared error that stays with these nodes in FP32."""
        return float_sum(piece.energy for piece in self.pieces if not piece.needs <= keep)

    def ladder(self, start: frozenset[ir.Node] = frozenset()) -> Ladder:
        """Of what is to be kept beside `start`."""
        return build_ladder(self.pieces, self.cost, start)

    def with_piece(self, piece: Noise) -> NoiseModel:
        return replace(self, pieces=(*self.pieces, piece))

    def with_lost(self, pieces: Sequence[Noise]) -> NoiseModel:
        """Of values that overflow in one more sample."""
        fatal = self.fatal.union(*(piece.needs for piece in pieces))
        return replace(self, pieces=(*self.pieces, *pieces), fatal=fatal)


def cost_of(keep: frozenset[ir.Node], noise: NoiseModel | None) -> float:
    """What keeping these nodes costs; before the noise was measured, by their number."""
    known: Mapping[ir.Node, float] = noise.cost if noise is not None else {}
    return math.fsum(known.get(node, 1.0) for node in keep)


def measure_noise(sets: Sets, fp16: Measured, notify: Callable[[str], None], walks: Walks = CLOSE) -> NoiseModel:
    """Walk the worst samples node by node, and model the noise from what is seen: for a quarter of the runs at most.

    What an earlier search of the same model saw is used, unless something is lost on these samples and it saw no loss.
    """
    affordable = sets.counter.most_passes * len(sets.judge.feeds) / (4 * walks.passes)
    order = worst_first(fp16.ratios)[: int(min(max(affordable, 1), walks.samples))]
    key = sets.model_key
    known = _known(sets, key)
    if known is not None and not math.isfinite(fp16.ratio) and not any(fatal for *_, fatal in known.pieces):
        key = sets.key("pieces", *order)
        known = _known(sets, key)
    if known is None:
        broken = not fp16.ratios[order[0]] <= BROKEN
        known = _walked(sets, order, notify, walks.probes, broken)
        sets.journal.put(key, known.to_json())
    else:
        sets.counter.remember(*sets.journal.runs(key))
    return _remembered(sets, known, order)


def noise_of_worst(sets: Sets, fp16: Measured, notify: Callable[[str], None]) -> NoiseModel:
    """What overflows in the worst sample, from a walk forwards: to repair is tried then, and all else is no matter."""
    order = worst_first(fp16.ratios)[:1]
    key = sets.model_key
    known = _known(sets, key)
    if known is None:
        key = sets.key("worst", *order)
        known = _known(sets, key)
    if known is None:
        known = _walked(sets, order, notify, 0)
        sets.journal.put(key, known.to_json())
    else:
        sets.counter.remember(*sets.journal.runs(key))
    return _remembered(sets, known, order)


def _remembered(sets: Sets, known: NoiseEntry, order: Sequence[int]) -> NoiseModel:
    """With what the tensors of these samples held, which an interrupted job saw when it walked them. Where nothing was
    told, no walk came to its end: none is begun again."""
    judge = sets.judge
    judge.memory.walked.update(dict.fromkeys(known.walked))
    for index in order if known.pieces else ():
        if judge.ids[index] in known.walked and judge.ids[index] not in judge.memory.statistics:
            _held(sets, index, [tensor_statistics(sets.stepper, sets.sites, feed) for feed in judge.ends[index]])
    return _noise_model(sets.sites, known)


def _held(sets: Sets, index: int, held: Sequence[TensorStatistics]) -> None:
    """What the tensors of a sample hold is remembered."""
    known, name = sets.judge.memory.statistics, sets.judge.ids[index]
    known.setdefault(name, merged(held))
    if not may_overflow(sets.sites, known[name]):
        sets.counter.none_overflows()


def _known(sets: Sets, key: str) -> NoiseEntry | None:
    return sets.journal.get(key, NoiseEntry, lambda entry: entry.of(sets.sites.model.node_by_name))


def noise_of_one(sets: Sets, notify: Callable[[str], None]) -> NoiseModel:
    """From a walk over the first sample alone, whatever others told."""
    return _noise_model(sets.sites, _walked(sets, [0], notify, CLOSE.probes))


def lost_in(sets: Sets, index: int, notify: Callable[[str], None]) -> tuple[Noise, ...]:
    """What overflows in a sample, from a walk forwards; nothing where it was walked before."""
    name = sets.judge.ids[index]
    if name in sets.judge.memory.walked:
        return ()
    sets.judge.memory.walked[name] = None
    notify("looking for what overflows in another input")
    seen = Sensitivity()
    with suppress(InputError):  # a node that does not run alone
        _walk(sets, index, seen, 0)
    pieces = noise_pieces(sets.sites, seen)
    return tuple(piece for piece in pieces if piece.fatal and not piece.needs & sets.sites.forced)


def _noise_model(sites: Sites, known: NoiseEntry) -> NoiseModel:
    by_name = sites.model.node_by_name
    pieces = [Noise(frozenset(by_name[n] for n in names), energy, fatal) for names, energy, fatal in known.pieces]
    if sites.forced:  # what a forced node rounds stays, whatever else is kept
        pieces = [piece for piece in pieces if not piece.needs & sites.forced]
    cost = {by_name[name]: cost for name, cost in known.cost.items()}
    return NoiseModel(tuple(pieces), cost, frozenset(node for p in pieces if p.fatal for node in p.needs))


def _walked(
    sets: Sets, order: Sequence[int], notify: Callable[[str], None], probes: int, broken: bool = False
) -> NoiseEntry:
    """The pieces and the costs by the names of nodes, as the journal keeps them.

    `broken`: overflows may decide, which a short way back tells; where they do not, the last walk makes up for it.
    """
    measured, before = Sensitivity(), sets.counter.samples
    short = broken and len(order) > 1 and probes > 2
    try:
        for number, index in enumerate(order, 1):
            so_far = (probes, short, *order[:number])
            kept = kept_sensitivity(sets, so_far) if number < len(order) else None
            if kept is not None:
                measured = kept
                continue
            started = sets.counter.samples
            what = "measuring the effect of each rounding" if probes else "looking for what overflows"
            notify(f"{what} (sample {number} of {len(order)})")
            if not measured.samples:
                _walk(sets, index, measured, probes, short)
            elif _overflows_decide(sets, measured):
                _walk(sets, index, measured, 0)  # where else values overflow is told on the way forwards
            else:
                _walk(sets, index, measured, probes // 2 if short else probes)
            if number < len(order):
                keep_sensitivity(sets, measured, so_far, sets.counter.samples - started)
    except InputError as error:  # a node that does not run alone: sets of nodes are measured without any prediction
        sets.judge.failures.walk(error)
        measured = Sensitivity()
    pieces = noise_pieces(sets.sites, measured)
    told = tuple((tuple(sorted(n.name or "" for n in each.needs)), each.energy, each.fatal) for each in pieces)
    cost = {node.name or "": each for node, each in node_costs(sets.sites, measured.size).items()}
    runs, walked = sets.counter.samples - before, tuple(sets.judge.ids[index] for index in order)
    return NoiseEntry(told, cost, runs, sets.counter.samples, walked)


def _walk(sets: Sets, index: int, into: Sensitivity, probes: int, short: bool = False) -> None:
    """One sample, forwards and back, of a stream both ends; what its tensors hold is remembered. `short`: where
    overflows decide, the way back is short."""
    judge, before = sets.judge, sets.stepper.executed
    tolerance, held = judge.question.tolerance, []
    weights, apart = _weights(sets.sites, tolerance), kernels_apart((judge.emulator, *judge.also))
    enough = partial(_overflows_decide, sets, into) if short else None
    try:
        for feed in judge.ends[index]:
            seen = measure_sensitivity(
                sets.stepper,
                sets.sites,
                feed,
                into,
                weights=weights,
                kinds=tolerance.kinds,
                apart=apart,
                collect=True,
                probes=probes,
                enough=enough,
            )
            held += [] if seen is None else [tensor_statistics(sets.stepper, sets.sites, feed, seen)]
        if held:
            _held(sets, index, held)
    finally:
        sets.stepped(before)


def _overflows_decide(sets: Sets, measured: Sensitivity) -> bool:
    """Whether values overflow, and all else that is lost, with the nodes that do in FP32, is far below the tolerance:
    it need not be ranked closely then."""
    pieces = noise_pieces(sets.sites, measured)
    fatal = frozenset(node for piece in pieces if piece.fatal for node in piece.needs)
    left = float_sum(piece.energy for piece in pieces if not piece.needs <= fatal)
    allowed = min(relative_bounds(sets.sites, sets.judge.question.tolerance).values(), default=0.0)
    return bool(fatal) and math.sqrt(left) <= FAR * allowed


def _weights(sites: Sites, tolerance: Tolerance) -> dict[str, float]:
    """How much more or less than under the tightest bound an output's relative error counts."""
    bounds = relative_bounds(sites, tolerance)
    tightest = min(bounds.values(), default=1.0)
    return {name: tightest / bound for name, bound in bounds.items()}


def relative_bounds(sites: Sites, tolerance: Tolerance) -> dict[str, float]:
    """The bound on the relative error of each output that has one."""
    stated = {bound.output: bound.value for bound in tolerance.bounds if bound.metric == "rel_l2"}
    every = stated.get("*")
    return {name: bound for name in _names(sites) if (bound := stated.get(name, every))}


def _names(sites: Sites) -> tuple[str, ...]:
    return tuple(value.name or "" for value in sites.model.judged_values)
