"""Finds sizes for the open dimensions of made-up inputs with which the FP32 model runs."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from halfwise.core.contents import tensors_in
from halfwise.core.errors import InputError
from halfwise.core.metrics import is_float
from halfwise.emulation.emulate import Emulator, widen_feeds
from halfwise.emulation.ort import AnySession
from halfwise.model.inputs.synthetic import USUAL, OpenSizes, lengths_among, open_axes, shapes_of, synthesize
from halfwise.model.inputs.usual_values import is_mask
from halfwise.model.model import Model
from halfwise.model.patterns.stated_sizes import stated_sizes
from halfwise.precision.assignment import Assignment
from halfwise.precision.sites import Sites

__all__ = ["sizes_that_run"]

# Windows of audio, strides of an image, states of one step: models that refuse one size take another.
_OTHERS = (64, 256, 224, 512, 4096, 32, 128, 1024, 2048, 16384, 1, 2, 3, 4, 8)
_EDGES = (64, 224, 256, 320, 384, 416, 512, 640)  # of pictures
_COLOURS = 3
_INDICES = (ir.DataType.INT64, ir.DataType.INT32)  # shapes, axes, places
_LEADING = (1, 16, 64)  # of what leads a shape: a batch, or frames
_MOST_HELD = 32  # sizes of weights
_LONGEST = 513  # of the sizes that are tried one after the other
_MOST_EMPTY = 24  # sizes that give nothing to compare, before the first of them is taken
_MOST = 1 << 24  # elements of all inputs
_SECONDS = 30.0


def sizes_that_run(
    model: Model,
    inputs: Any,
    emulator: Emulator | None = None,
    remedy: str = "give real inputs with --inputs, or sizes with --shapes",
) -> OpenSizes:
    """The first with which a finite value is not 0, from the usual ones on; the usual ones for given inputs.

    Raises InputError where the model runs with none of them; `remedy` is what the user can do then.
    """
    keys, lengths = open_axes(model.inputs), bool(lengths_among(model.inputs))
    if inputs is not None or not (keys or lengths):
        return USUAL
    try:
        session = (emulator or Emulator()).session(Assignment(Sites(model), {}))
    except InputError:
        return USUAL
    until = time.monotonic() + _SECONDS
    ran: list[OpenSizes] = []
    refused: InputError | None = None
    for sizes in _candidates(keys, model, lengths):
        if time.monotonic() > until or len(ran) > _MOST_EMPTY:
            break
        if sum(math.prod(shape) for shape in shapes_of(model.inputs, {}, sizes)) > _MOST:
            continue
        try:
            outputs = _run(session, model, sizes)
        except InputError as error:
            refused = refused or error
            continue
        if any(array[np.isfinite(array)].any() for array in outputs):
            return sizes
        ran.append(sizes)
    if ran or refused is None:
        return next(iter(ran), USUAL)
    raise InputError(
        f"{refused}; the model leaves dimensions open, and no size that was tried runs: {remedy}"
    ) from refused


def _run(session: AnySession, model: Model, sizes: OpenSizes) -> list[NDArray[Any]]:
    """The outputs of one made-up input; of those that are numbers with a fraction, where there are any."""
    (made,) = synthesize(model.inputs, 1, rng=np.random.default_rng(0), dims={}, sizes=sizes)
    feed = widen_feeds(made)
    arrays = tensors_in(session.run({name: feed[name] for name in session.input_names}).values())
    return [array for array in arrays if is_float(array.dtype)] or [np.ones(1)]


def _candidates(keys: Mapping[tuple[str, int], str], model: Model, lengths: bool) -> Iterator[OpenSizes]:
    """Each with what the graph states, and with the lengths that inputs state, where any do."""
    stated = stated_sizes(model, keys)
    opened = tuple(dict.fromkeys(key for key in keys.values() if key not in stated.sizes))
    likely = [OpenSizes(apart=dict(edges)) for edges in stated.edges]
    if colours := {key for key in _second_of_four(model, keys) if key in opened}:
        likely += [OpenSizes(size, dict.fromkeys(sorted(colours), _COLOURS)) for size in _EDGES]
    if whole := _masked_alone(model, keys):
        likely.insert(0, OpenSizes(apart=dict.fromkeys(whole, 2 * USUAL.size)))
    for sizes in itertools.chain(likely, _sizes(opened, model)):
        known = replace(sizes, apart={**sizes.apart, **stated.sizes})
        if lengths:
            yield replace(known, lengths=True)
        yield known


def _second_of_four(model: Model, keys: Mapping[tuple[str, int], str]) -> list[str]:
    """What may be the colours of a picture."""
    return [keys[each.name, 1] for each in model.inputs if len(each.shape or ()) == 4 and (each.name, 1) in keys]


def _masked_alone(model: Model, keys: Mapping[tuple[str, int], str]) -> list[str]:
    """How long masks are that are as long as a cache and the tokens together."""
    masks = {each.name for each in model.inputs if is_mask(each)}
    others = {key for (name, _), key in keys.items() if name not in masks}
    cached = any(len(each.shape or ()) == 4 and (each.name, 2) in keys for each in model.inputs)
    return sorted({key for key in keys.values() if key not in others}) if cached and len(others) > 1 else []


def _sizes(opened: tuple[str, ...], model: Model) -> Iterator[OpenSizes]:
    """All alike; then what the weights hold; then one after the other, as what is flattened has to fit."""
    yield from _alike(opened)
    stated = [{}, *(dict.fromkeys([key], size) for size in _held(model) for key in opened)]
    stated += [dict(zip(keys, both, strict=True)) for both in _pairs(model) for keys in itertools.pairwise(opened)]
    yield from (OpenSizes(apart=apart, leading=leading) for leading in _LEADING for apart in stated)
    for leading in (1, _LEADING[-1]):
        yield from (
            OpenSizes(apart={key: size}, leading=leading) for key in reversed(opened) for size in range(1, _LONGEST)
        )


def _alike(opened: tuple[str, ...]) -> Iterator[OpenSizes]:
    """One size for all; then with one of them 1, as the batch of a state is; then with all but one."""
    alone = [frozenset({key}) for key in opened] if len(opened) > 1 else []
    single = dict.fromkeys([frozenset[str](), *alone, *(frozenset(opened) - each for each in alone)])
    for size in (USUAL.size, *_OTHERS):
        yield from (OpenSizes(size, dict.fromkeys(sorted(each), 1)) for each in single)


def _held(model: Model) -> list[int]:
    """Sizes of the first weights, as of features that a product reads."""
    return list(dict.fromkeys(size for shape in _weights(model) for size in shape if size > 1))[:_MOST_HELD]


def _pairs(model: Model) -> list[tuple[int, int]]:
    """Sizes that stand side by side in the first weights, as of what is normalised element by element."""
    return list(dict.fromkeys(both for shape in _weights(model) for both in itertools.pairwise(shape)))[:_MOST_HELD]


def _weights(model: Model) -> Iterator[tuple[int, ...]]:
    for node in model.nodes:
        for value in node.inputs:
            if value is not None and value.is_initializer() and value.dtype not in _INDICES and value.shape:
                yield tuple(size for size in value.shape if isinstance(size, int))
