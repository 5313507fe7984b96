"""What runs on a node."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import digits_of, evaluate, read_digits, train
from fedroster.adapters.flower import report_context

app = ClientApp(mods=[report_context])
report_context.register(app)


def _digits(context: Context):
    config = context.node_config
    if "data" in config:
        return read_digits(Path(str(config["data"])))
    if context.run_config["data"]:
        return read_digits(Path(str(context.run_config["data"])) / f"node-{config['partition-id']}.npz")
    return digits_of(int(config["partition-id"]), int(config["num-partitions"]))


_STEP_S = 0.01


def _accelerate(seconds: float) -> None:
    """Wait for an emulated accelerator, step by step: a process that is held up meanwhile falls behind.

    It stands for training that takes longer than digits do.  Many nodes share a machine in this example, and would slow
    each other down if they used its processors for that.
    """
    for _ in range(round(seconds / _STEP_S)):
        time.sleep(_STEP_S)


def _pace_s(context: Context) -> float:
    """How long the accelerator works on this node, slow ones being the first."""
    run, node = context.run_config, context.node_config
    is_slow = int(node["partition-id"]) < float(run["slow-share"]) * int(node["num-partitions"])
    return float(run["pace-s"]) * (float(run["slow-factor"]) if is_slow else 1.0)


@app.train()
def train_here(message: Message, context: Context) -> Message:
    """Train on the node's digits."""
    run = context.run_config
    images, labels = _digits(context)
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    round_ = int(message.content["config"]["server-round"])
    model = train(
        model,
        images,
        labels,
        num_epochs=int(run["local-epochs"]),
        learning_rate=float(run["learning-rate"]),
        rng=np.random.default_rng([int(context.node_config["partition-id"]), round_]),
    )
    loss, _ = evaluate(model, images, labels)
    _accelerate(_pace_s(context))
    content = RecordDict(
        {
            "arrays": ArrayRecord({name: Array(values) for name, values in model.items()}),
            "metrics": MetricRecord({"num-examples": len(labels), "train-loss": loss}),
        }
    )
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate_here(message: Message, context: Context) -> Message:
    """Evaluate on the node's digits."""
    images, labels = _digits(context)
    model = {name: array.numpy() for name, array in message.content["arrays"].items()}
    loss, accuracy = evaluate(model, images, labels)
    metrics = MetricRecord({"num-examples": len(labels), "loss": loss, "accuracy": accuracy})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)
