"""The simulation of pfl-research: one client after the other, on one copy of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.peers.worker import Workload, serve_inside
from fedroster.lab.training.models import MODELS


class Module(nn.Module):
    """A model with the loss and the metrics that pfl asks for."""

    def __init__(self, module: nn.Module) -> None:
        """Wrap the model."""
        super().__init__()
        self.module = module

    def loss(self, images: Tensor, labels: Tensor, eval: bool = False) -> Tensor:
        """Mean cross-entropy of a batch."""
        return nn.functional.cross_entropy(self.module(images), labels)

    @torch.no_grad()
    def metrics(self, images: Tensor, labels: Tensor, eval: bool = False) -> dict[str, Any]:
        """The same, to be averaged."""
        return {"loss": Weighted(float(self.loss(images, labels)) * len(labels), len(labels))}


def start(work: Workload, asked: Iterator[tuple[int, list[int]]]) -> None:
    data = {}
    for client in range(len(work.partition)):
        x, y = work.client(client)
        data[client] = Dataset(raw_data=[torch.from_numpy(x), torch.from_numpy(y)])
    _, clients = next(asked)
    size, waiting = len(clients), list(clients)

    def sample() -> int:
        if not waiting:
            following = next(asked, None)
            if following is None:
                raise SystemExit
            waiting.extend(following[1])
        return waiting.pop(0)

    torch.manual_seed(0)
    module = Module(MODELS[work.model]())
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6, evaluation_frequency=10**6, train_cohort_size=size, val_cohort_size=0
        ),
        backend=SimulatedBackend(training_data=FederatedDataset(data.__getitem__, sample), val_data=None),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=work.epochs, local_learning_rate=work.learning_rate, local_batch_size=work.batch_size
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=500),
        callbacks=[],
    )


if __name__ == "__main__":
    serve_inside(start)
