"""A repair that another one made possible: found on the repaired model, it is made with it in one go."""

from __future__ import annotations

import pytest

from halfwise.model.model import load
from halfwise.repair import repaired
from halfwise.repair.norm_operator import NormOperator
from halfwise.repair.rescale import RESCALE
from tests.models.decoders import NORMS, decoder, decoder_inputs
from tests.support.repairing import ranges_of


@pytest.mark.parametrize("norm", [each for each in NORMS if each != "operator"])
def test_a_stream_is_rescaled_once_its_norms_are_others(norm: str) -> None:
    inputs = decoder_inputs(2)
    model, rule = load(decoder(norm)), NormOperator(unread=frozenset({"RMSNormalization"}))
    norms = [(rule, repair) for repair in rule.find(model, ranges_of(model, inputs))]
    between, done = repaired(model, norms)
    assert len(done) == len(norms) == 3
    scales = [(RESCALE, repair) for repair in RESCALE.find(between, ranges_of(between, inputs))]
    assert scales
    _, made = repaired(model, [*norms, *scales])
    assert made == (*done, *(repair for _, repair in scales))
