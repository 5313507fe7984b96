"""Cohort training on an NVIDIA GPU: the batched method beside one client after the other on the same GPU.

Run as ``python -m benchmarks.accelerator``.  The CIFAR-10 network of Qu et al. 2021, 10 clients x 1,000 samples
x 5 epochs, batches of 32.  The images are noise: what a step costs does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.rows import Row, Session
from benchmarks.timing import interleaved
from fedroster.core.streams import Streams
from fedroster.lab.training.cohort import CohortTrainer
from fedroster.lab.training.models import MODELS
from fedroster.lab.training.tasks import TASKS

COHORT, TASK = 10, TASKS["cifar-10-b"]


def cohort(x: Any, y: Any, partition: Any) -> Callable[[], object]:
    """A round of our cohort training."""
    trainer = CohortTrainer(
        model=TASK.model,
        train_x=x,
        train_y=y,
        test_x=x[:100],
        test_y=y[:100],
        partition=partition,
        epochs=TASK.epochs,
        batch_size=TASK.batch_size,
        learning_rate=TASK.learning_rate,
        measure_losses=False,
        device="cuda",
    )
    streams = Streams(0)
    parameters = trainer.init(rng=streams.at("model"))
    clients = np.arange(COHORT)
    return lambda: trainer.train(parameters, clients, round=1, streams=streams)


def loop(x: Any, y: Any, partition: Any) -> Callable[[], object]:
    """The plain loop, data and model on the GPU."""
    images, labels = torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda()
    held = torch.from_numpy(partition).cuda()
    model = MODELS[TASK.model]().cuda()
    first = {name: value.clone() for name, value in model.state_dict().items()}

    def play() -> None:
        for client in range(COHORT):
            model.load_state_dict(first)
            optimizer = torch.optim.SGD(model.parameters(), lr=TASK.learning_rate)
            for _ in range(TASK.epochs):
                order = torch.randperm(held.shape[1], device="cuda")
                for batch in held[client][order].split(TASK.batch_size):
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                    optimizer.step()
        torch.cuda.synchronize()

    return play


def main() -> None:
    """Measure and publish; without a CUDA device, say so."""
    session = Session("accelerator", __doc__, seed="0")
    repeats = 1 if session.parser.parse_args().quick else 5
    about = f"round of Qu et al.'s CNN, {COHORT} clients x {TASK.samples_per_client:,} samples x 5 epochs"
    if not torch.cuda.is_available():
        session.publish([Row(about, None, "s", "h200", reason="no CUDA device")])
        return
    rng = np.random.default_rng(0)
    x = rng.random((COHORT * TASK.samples_per_client, 3, 32, 32), np.float32)
    y = rng.integers(10, size=x.shape[0])
    partition = np.arange(x.shape[0]).reshape(COHORT, -1)
    works = {"ours": cohort(x, y, partition), "loop": loop(x, y, partition)}
    medians = interleaved(works, repeats=repeats, warmup=1)
    device = torch.cuda.get_device_name()
    row = Row(f"{about}, {device}", medians["ours"], "s", "h200", medians["loop"], "sequential loop")
    session.publish([row], notes=[f"torch {torch.__version__}, {device}"])


if __name__ == "__main__":
    main()
