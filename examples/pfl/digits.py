"""Train digits in pfl-research on the users that a policy chooses, and show what the simulated rounds took.

    python examples/pfl/digits.py random floor --rounds 100 --out runs/pfl

The same command goes on after a kill.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from sklearn.datasets import load_digits

from fedroster import Selector, make_policy, make_scenario
from fedroster.adapters.pfl import RunCheckpoint, SelectedDataset, SelectionMetrics

EVALUATION = NNEvalHyperParams(local_batch_size=None)


class Digits(torch.nn.Module):
    """One hidden layer."""

    def __init__(self) -> None:
        """Begin with random weights."""
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def loss(self, images: torch.Tensor, labels: torch.Tensor, *, eval: bool = False) -> torch.Tensor:
        """Mean loss of a batch."""
        self.train(not eval)
        return torch.nn.functional.cross_entropy(self.layers(images), labels.long())

    @torch.no_grad()
    def metrics(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Any]:
        """Accuracy of a batch."""
        right = (self.layers(images).argmax(1) == labels).sum().item()
        return {"accuracy": Weighted(right, len(labels))}


class Evaluation(CentralEvaluationCallback):
    """Evaluates every tenth model, and none before training: a run that goes on in a tenth iteration would have two."""

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Return nothing, since pfl refuses two evaluations in one iteration."""
        return Metrics()


def digits(num_users: int) -> tuple[dict[int, list[np.ndarray]], list[np.ndarray]]:
    """The users' images and labels, by two classes each where possible, and the test set."""
    images, labels = load_digits(return_X_y=True)
    images, test = np.split(images.astype(np.float32) / 16.0, [1400])
    labels, test_labels = np.split(labels.astype(np.int64), [1400])
    shards = np.array_split(np.argsort(labels, kind="stable"), 2 * num_users)
    order = np.random.default_rng(0).permutation(2 * num_users)
    parts = {user: np.concatenate([shards[order[2 * user]], shards[order[2 * user + 1]]]) for user in range(num_users)}
    return {user: [images[part], labels[part]] for user, part in parts.items()}, [test, test_labels]


def train(policy: str, *, rounds: int, folder: Path) -> SelectedDataset:
    """Train with one policy; returns the dataset with its clock, and prints the accuracy that was reached."""
    np.random.seed(0)  # noqa: NPY002 -- pfl draws from it
    torch.manual_seed(0)
    network = make_scenario("rbcs-f/table-1")
    data, test = digits(network.spec.num_clients)
    selector = Selector(make_policy(policy), cohort_size=8, guarded=False, longest_s=None)
    users = SelectedDataset(lambda user: Dataset(data[user], user_id=user), selector, network)
    net = Digits()
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), 1.0))
    algorithm = FederatedAveraging()
    evaluation = Evaluation(Dataset(test), EVALUATION, frequency=10)
    folder.mkdir(parents=True, exist_ok=True)
    algorithm.run(
        NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=rounds + 1, train_cohort_size=8, val_cohort_size=0
        ),
        SimulatedBackend(users, FederatedDataset.from_slices(data, lambda: 0)),
        model,
        NNTrainHyperParams(local_num_epochs=3, local_learning_rate=0.1, local_batch_size=16),
        EVALUATION,
        [
            evaluation,
            SelectionMetrics(users),
            RestoreTrainingCallback([RunCheckpoint(model, algorithm, users)], str(folder)),
        ],
    )
    accuracy = model.evaluate(Dataset(test), eval_params=EVALUATION)
    rates = users.selector.participation_rates()
    reached, minutes = next(iter(accuracy))[1].overall_value, users.clock_s / 60
    print(f"{policy}: accuracy {reached:.3f}, {minutes:.1f} simulated minutes, least rate {min(rates.values()):.3f}")
    return users


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", help="policies, such as rbcs-f:V=5,beta=0.1")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("runs/pfl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the model is small: more threads only wait for each other
    logging.getLogger("pfl").setLevel(logging.WARNING)
    for name in arguments.policies:
        train(
            name, rounds=arguments.rounds, folder=(arguments.out / name.replace(":", "-").replace(",", "-")).resolve()
        )
