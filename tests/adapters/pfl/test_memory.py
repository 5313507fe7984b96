"""pfl's own federated averaging applies weights and takes the step of an update memory, also after a restart."""

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
from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.context import UserContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.postprocessor.base import Postprocessor
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.stats import MappedVectorStatistics

from fedroster import Selector, make_policy
from fedroster.adapters.pfl import RememberUpdates, RunCheckpoint, SelectedDataset, WeighUpdates, dataset, memory
from fedroster.aggregation.memory import UpdateMemory, UpdateTable
from fedroster.errors import ConfigurationError
from fedroster.networks.flat import FlatNetwork

sys.path.append(str(Path(__file__).parents[2]))
from weighing import Drawn, noting

USERS, COHORT = 6, 2
RNG = np.random.default_rng(0)
DATA = {
    user: [RNG.normal(size=(4 + user, 3)).astype(np.float32), RNG.normal(size=(4 + user, 1)).astype(np.float32)]
    for user in range(USERS)
}


class Line(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(3, 1)

    def loss(self, x: torch.Tensor, y: torch.Tensor, *, eval: bool = False) -> torch.Tensor:
        return ((self.line(x) - y) ** 2).mean()

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        return {"loss": self.loss(x, y)}


class Seen(Postprocessor):
    """Notes each user's update as it comes, and the model that it was made from."""

    def __init__(self, model: PyTorchModel) -> None:
        self.model, self.rounds = model, [[]]

    def postprocess_one_user(self, *, stats, user_context):
        sent = {name: value.numpy().copy() for name, value in self.model.get_parameters().items()}
        self.rounds[-1].append((user_context.user_id, sent, {name: stats[name].numpy().copy() for name in stats}))
        return super().postprocess_one_user(stats=stats, user_context=user_context)

    def postprocess_server(self, **given):
        self.rounds.append([])
        return super().postprocess_server(**given)


def users_of(policy: Any, size: int = COHORT, *, seed: int = 0, **options: Any) -> SelectedDataset:
    return SelectedDataset(
        lambda user: Dataset(DATA[user], user_id=user),
        Selector(policy, cohort_size=size, guarded=False, longest_s=None, **options),
        FlatNetwork(num_clients=USERS, cohort_size=size, availability=1.0),
        seed=seed,
    )


def play(
    rounds: int,
    options: UpdateMemory | None = None,
    folder: Path | None = None,
    *,
    users: SelectedDataset | None = None,
    weighed: bool = False,
    last: Any = None,
    validated: int = 0,
    frequency: int = 1,
) -> tuple[dict[str, np.ndarray], Seen]:
    np.random.seed(0)  # noqa: NPY002 -- pfl draws from it
    torch.manual_seed(0)
    users = users or users_of(make_policy("random"))
    net = Line()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
    seen, algorithm = Seen(model), FederatedAveraging()
    weighs = WeighUpdates(users)
    if options is not None:
        weighs = RememberUpdates(options, users, model, None if folder is None else folder / "updates")
    others = [seen, *([WeightByDatapoints()] if weighed else []), *([last] if last else [])]
    callbacks = []
    if folder is not None:
        callbacks = [RestoreTrainingCallback([RunCheckpoint(model, algorithm, users)], str(folder / "run"), frequency)]
    algorithm.run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=2 if validated else rounds + 1,
            train_cohort_size=COHORT,
            val_cohort_size=validated,
        ),
        SimulatedBackend(users, FederatedDataset.from_slices(DATA, lambda: 0), postprocessors=weighs.after(*others)),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=0.1, local_batch_size=2),
        NNEvalHyperParams(local_batch_size=None),
        callbacks,
    )
    return {name: value.numpy().copy() for name, value in model.get_parameters().items()}, seen


@pytest.mark.parametrize("unknown", ["left-out", "zero"])
def test_federated_averaging_takes_the_step_of_the_formula(unknown: str) -> None:
    options = UpdateMemory(share=0.7, unknown=unknown)
    last, seen = play(9, options)
    table = UpdateTable(options, last, USERS)
    played = [each for each in seen.rounds if each]
    following = [each[0][1] for each in played[1:]] + [last]
    assert len(played) == 9
    for cohort, after in zip(played, following, strict=True):
        updates = {name: np.stack([update[name] for _, _, update in cohort]) for name in last}
        clients = np.array([user for user, _, _ in cohort])
        step = table.step(clients, updates, np.ones(len(cohort)))  # test_memory.py has it against the plain formula
        for name in last:
            np.testing.assert_allclose(after[name], cohort[0][1][name] + step[name], atol=1e-5)


@pytest.mark.parametrize("options", [None, UpdateMemory(share=0.7)])
def test_weights_are_applied_by_federated_averaging_and_are_one_step_with_a_memory(
    options: UpdateMemory | None,
) -> None:
    """Whatever updates count by their users' data."""
    weights: list[dict[int, float]] = []
    last, seen = play(9, options, users=users_of(Drawn(0.5), observers=[noting(weights)]), weighed=True)
    played = [each for each in seen.rounds if each]
    assert len(played) == len(weights) == 9
    table = None if options is None else UpdateTable(options, last, USERS)
    following = [each[0][1] for each in played[1:]] + [last]
    for cohort, chosen, after in zip(played, weights, following, strict=True):
        clients = np.array([user for user, _, _ in cohort])
        given = np.array([chosen[user] for user in clients])
        updates = {name: np.stack([update[name] for _, _, update in cohort]) for name in last}
        step = {name: np.tensordot(given, each, 1) for name, each in updates.items()}
        if table is not None:
            samples = 4.0 + clients
            step = table.step(clients, updates, samples, weights=given * samples.sum() / samples)
        for name in last:
            np.testing.assert_allclose(after[name], cohort[0][1][name] + step[name], atol=1e-5)


def test_workers_share_the_factors_of_a_cohort(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[dict[Any, float]] = []
    for rank in range(2):
        monkeypatch.setattr(dataset, "this_worker", lambda rank=rank: (rank, 2))
        users = users_of(Drawn(), 4)
        WeighUpdates(users).after()
        users.get_cohort(4)
        parts.append(dict(users.factors or {}))
    assert not parts[0].keys() & parts[1].keys()
    found = [*parts[0].values(), *parts[1].values()]
    assert sum(found) == pytest.approx(len(found))  # weights sum to 1, and each is times the size of the cohort


def test_weights_that_nobody_applies_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="Drawn says how much each update counts, and there are no postproc"):
        users_of(Drawn(), 4).get_cohort(4)
    with pytest.raises(ConfigurationError, match="bounds one update of one round"):
        WeighUpdates(users_of(Drawn(), 4)).after(GaussianMechanism(1.0, 1.0))
    WeighUpdates(users := users_of(Drawn(), 4)).after()
    users.get_cohort(4)
    with pytest.raises(ConfigurationError, match="were not weighed; expected"):
        users.get_cohort(4)


@pytest.mark.parametrize("frequency", [1, 5])
def test_a_run_that_is_stopped_goes_on_as_if_it_was_not(tmp_path: Path, frequency: int) -> None:
    options = UpdateMemory()
    straight, _ = play(12, options)
    play(9, options, tmp_path, frequency=frequency)
    resumed, seen = play(12, options, tmp_path, frequency=frequency)
    assert frequency < len([each for each in seen.rounds if each]) + 1 < 9
    for name in straight:
        np.testing.assert_allclose(resumed[name], straight[name], rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "this_worker", lambda: (0, 2))
    with pytest.raises(ConfigurationError, match="one worker"):
        RememberUpdates(UpdateMemory(), object(), object())  # type: ignore[arg-type]


def test_an_update_of_weight_zero_counts_nothing() -> None:
    users = users_of(Drawn(), 4)
    last = WeighUpdates(users)
    last.after()
    users.factors = {3: 0.0}
    stats = MappedVectorStatistics({"w": torch.ones(2)}, weight=4.0)
    moved, _ = last.postprocess_one_user(stats=stats, user_context=UserContext(num_datapoints=4, seed=0, user_id=3))
    assert moved["w"].tolist() == [0.0, 0.0]
    assert moved.weight == 1.0
    assert not users.factors
