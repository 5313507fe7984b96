"""Policies that compare updates are told signatures of users' updates in pfl, or are refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pfl")

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel

from fedroster import Selector
from fedroster.adapters.pfl import ReportSignatures, SelectedDataset, WeighUpdates, losses
from fedroster.aggregation.signatures import signatures_of
from fedroster.errors import ConfigurationError
from fedroster.networks.flat import FlatNetwork
from fedroster.policies import DivFL, HiCSFL
from fedroster.types import Signature

sys.path.append(str(Path(__file__).parent))
from test_memory import COHORT, DATA, USERS, Line, Seen


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, Any]]:
    """The signatures of each round, as the selector is told them."""
    seen = []
    observe = Selector.observe

    def noted(selector: Selector, number: int, **feedback: Any) -> None:
        seen.append(feedback.get("signatures"))
        observe(selector, number, **feedback)

    monkeypatch.setattr(Selector, "observe", noted)
    return seen


def users_of(policy: Any) -> SelectedDataset:
    return SelectedDataset(
        lambda user: Dataset(DATA[user], user_id=user),
        Selector(policy, cohort_size=COHORT, guarded=False, longest_s=None),
        FlatNetwork(num_clients=USERS, cohort_size=COHORT, availability=1.0),
        seed=4,
    )


def play(policy: Any, *, rounds: int = 5, weighed: bool = False) -> Seen:
    users = users_of(policy)
    net = Line()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
    seen = Seen(model)
    before = [seen, WeightByDatapoints()] if weighed else [seen]
    after = WeighUpdates(users).after(*before, ReportSignatures(users))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=2, train_cohort_size=COHORT, val_cohort_size=2
        ),
        SimulatedBackend(users, FederatedDataset.from_slices(DATA, lambda: 0), postprocessors=after),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=0.1, local_batch_size=2),
        NNEvalHyperParams(local_batch_size=None),
        [],
    )
    return seen


@pytest.mark.parametrize("weighed", [False, True])
def test_a_signature_is_of_the_update_whatever_it_is_weighed_by(weighed: bool, told: list[dict[int, Any]]) -> None:
    played = [each for each in play(DivFL(), weighed=weighed).rounds if each]
    assert len(played) == 5
    assert len(told) == 4  # the last round is told when there is another
    for cohort, signatures in zip(played, told, strict=False):
        assert set(signatures) == {user for user, _, _ in cohort}
        for user, _, update in cohort:
            zero = {name: np.zeros_like(value) for name, value in update.items()}
            moved = {name: value[None] for name, value in update.items()}
            expected = signatures_of(moved, zero, Signature(), seed=4)[0]
            np.testing.assert_allclose(signatures[user], expected, atol=1e-6)


def test_all_workers_learn_what_the_users_of_each_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    users, others = users_of(DivFL()), users_of(DivFL())
    mine, theirs = ReportSignatures(users), ReportSignatures(others)
    mine._found[1, :] = [*range(64), 1.0]
    theirs._found[4, :] = [*range(64, 128), 1.0]
    both = mine._found + theirs._found
    monkeypatch.setattr(losses, "summed", lambda found: both)
    for each in (mine, theirs):
        each.postprocess_server_metrics(central_context=None, aggregate_metrics=None)
        assert not each._found.any()
    for dataset in (users, others):
        assert {user: found.tolist() for user, found in dataset.signatures.items()} == {
            1: [*range(64)],
            4: [*range(64, 128)],
        }


def test_such_a_policy_is_refused_where_nobody_tells_it_and_a_model_without_the_bias_ends_the_run() -> None:
    with pytest.raises(ConfigurationError, match="and in pfl with ReportSignatures"):
        users_of(DivFL()).get_cohort(COHORT)
    with pytest.raises(ConfigurationError, match="expected 10 classes in the last of one dimension"):
        play(HiCSFL())
