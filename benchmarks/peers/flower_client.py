"""A client in Flower's simulation; a module of its own, because its processes import it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from flwr.client import NumPyClient  # type: ignore[import-not-found,unused-ignore]
from torch import nn

from benchmarks.peers.worker import Workload
from fedroster.lab.training.models import MODELS


@cache
def _workload(folder: str) -> Workload:
    torch.set_num_threads(1)
    return Workload(Path(folder))


class Client(NumPyClient):  # type: ignore[misc,unused-ignore]
    """Trains as the plain loop does."""

    def __init__(self, folder: str) -> None:
        """Keep where the data lies."""
        self.folder = folder

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        """Train the client that ``config`` names."""
        work = _workload(self.folder)
        x, y = (torch.from_numpy(value) for value in work.client(int(config["client"])))
        model = MODELS[work.model]()
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), parameters, strict=True):
                parameter.copy_(torch.from_numpy(value.copy()))
        optimizer = torch.optim.SGD(model.parameters(), lr=work.learning_rate)
        for _ in range(work.epochs):
            for batch in torch.randperm(x.shape[0]).split(work.batch_size):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
                optimizer.step()
        return [parameter.detach().numpy() for parameter in model.parameters()], x.shape[0], {}
