"""pfl's own federated averaging takes the step of an update memory, and goes on with model and table of one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pfl")

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.postprocessor.base import Postprocessor
from pfl.privacy.gaussian_mechanism import GaussianMechanism

from fedroster import Selector, make_policy
from fedroster.adapters.pfl import RememberUpdates, RunCheckpoint, SelectedDataset, memory
from fedroster.aggregation.memory import UpdateMemory, UpdateTable
from fedroster.errors import ConfigurationError
from fedroster.networks.flat import FlatNetwork

USERS, COHORT = 6, 2
RNG = np.random.default_rng(0)
DATA = {
    user: [RNG.normal(size=(4, 3)).astype(np.float32), RNG.normal(size=(4, 1)).astype(np.float32)]
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


def play(rounds: int, options: UpdateMemory, folder: Path | None = None) -> tuple[dict[str, np.ndarray], Seen]:
    np.random.seed(0)  # noqa: NPY002 -- pfl draws from it
    torch.manual_seed(0)
    users = SelectedDataset(
        lambda user: Dataset(DATA[user], user_id=user),
        Selector(make_policy("random"), cohort_size=COHORT, guarded=False, longest_s=None),
        FlatNetwork(num_clients=USERS, cohort_size=COHORT, availability=1.0),
    )
    net = Line()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
    seen, algorithm = Seen(model), FederatedAveraging()
    remember = RememberUpdates(options, users, model, None if folder is None else folder / "updates")
    callbacks = []
    if folder is not None:
        callbacks = [RestoreTrainingCallback([RunCheckpoint(model, algorithm, users)], str(folder / "run"))]
    algorithm.run(
        NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=rounds + 1, train_cohort_size=COHORT, val_cohort_size=0
        ),
        SimulatedBackend(users, FederatedDataset.from_slices(DATA, lambda: 0), postprocessors=remember.after(seen)),
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


def test_a_run_that_is_stopped_goes_on_as_if_it_was_not(tmp_path: Path) -> None:
    options = UpdateMemory()
    straight, _ = play(8, options)
    play(5, options, tmp_path)
    resumed, seen = play(8, options, tmp_path)
    assert 0 < len([each for each in seen.rounds if each]) < 8
    for name in straight:
        np.testing.assert_allclose(resumed[name], straight[name], rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    remember = RememberUpdates(UpdateMemory(), users := object(), model := object())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="bounds one update"):
        remember.after(GaussianMechanism(1.0, 1.0))
    monkeypatch.setattr(memory, "this_worker", lambda: (0, 2))
    with pytest.raises(ConfigurationError, match="one worker"):
        RememberUpdates(UpdateMemory(), users, model)  # type: ignore[arg-type]
