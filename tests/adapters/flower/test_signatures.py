"""Policies that compare updates get signatures of the replies that can be used: each minus what its node was sent."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import fleet, model, shift
from flwr.serverapp.strategy import FedAvg
from test_grid import selecting
from test_malformed import claims

from fedroster.aggregation.places import FreePlaces
from fedroster.aggregation.signatures import signatures_of
from fedroster.core.errors import ConfigurationError
from fedroster.policies import DivFL, HiCSFL
from fedroster.types import Signature

MOVED = [-4.0 if number < 2 else 1.0 + 0.01 * number for number in range(8)]


def of_two_kinds():
    """Eight nodes; what two of them send is unlike all else."""
    return fleet(8, value=0.0, each=lambda number: {"fate": (partial(shift, MOVED[number]),)})


def started(policy, rounds, **options):
    """A grid on which a strategy was started, and the cohorts."""
    cohorts = []
    grid, *_ = selecting(
        of_two_kinds(), m=2, policy=policy, strategy=FedAvg(), take=lambda each: cohorts.append(each.clients), **options
    )
    grid.start(model(), num_rounds=rounds)
    return grid, cohorts


def test_updates_of_each_kind_are_represented_once_all_are_known():
    grid, cohorts = started(DivFL(), 12, told={"seed": 3})
    assert {name for cohort in cohorts[:4] for name in cohort} == set(map(str, grid.selector.clients))
    assert all(len({"n00", "n01"} & set(cohort)) == 1 for cohort in cohorts[4:])


@pytest.mark.parametrize("refused", [partial(shift, np.nan), claims(data=b"\x00garbage")])
def test_a_signature_is_of_what_was_sent_to_that_node_and_a_refused_reply_has_none(refused, told):
    nodes = of_two_kinds()
    nodes[100].fate = (refused,)
    grid, *_ = selecting(nodes, m=8, policy=DivFL(), strategy=FedAvg(), told={"seed": 3})
    grid.start(model(), num_rounds=2)
    assert all(set(each) == {f"n{number:02d}" for number in range(1, 8)} for each in told)
    zero = {name: np.zeros_like(array.numpy()) for name, array in model().items()}
    for each in told:  # the model moves between the rounds, and updates are the same
        for number in range(1, 8):
            moved = {"w": zero["w"][None] + MOVED[number], "b": zero["b"][None] - MOVED[number]}
            expected = signatures_of(moved, zero, Signature(), seed=3)[0]
            np.testing.assert_allclose(each[f"n{number:02d}"], expected, atol=1e-5)


def test_a_model_without_such_a_bias_ends_the_run_with_the_reason():
    started(HiCSFL(classes=2), 5)
    with pytest.raises(ConfigurationError, match="expected 10 classes in the last of one dimension"):
        started(HiCSFL(), 1)


def test_free_places_tell_none():
    with pytest.raises(ConfigurationError, match="this engine, as it is set up here, computes none"):
        selecting(of_two_kinds(), policy=DivFL(), strategy=FedAvg(), places=FreePlaces())
