"""What runs at the server: FedAvg, and fedroster's grid under it."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import evaluate, initial_model, test_digits
from fedroster import RBCSF, Selector, Uniform
from fedroster.adapters.flower import (
    ContextOptions,
    CsvLog,
    FreePlaces,
    RoundRules,
    RoundSink,
    SelectingGrid,
    UpdateMemory,
)
from fedroster.policies import BySpeed

app = ServerApp()


class CountingGrid:
    """Counts to whom FedAvg's own sampling sends training messages; everything else is the grid's."""

    def __init__(self, grid: Grid) -> None:
        """Wrap a grid."""
        self._grid = grid
        self.chosen: dict[int, int] = {}

    def __getattr__(self, name: str) -> object:
        """Whatever the grid can do."""
        return getattr(self._grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        """Count, and send."""
        messages = list(messages)
        for message in messages:
            if message.metadata.message_type == "train":
                node_id = message.metadata.dst_node_id
                self.chosen[node_id] = self.chosen.get(node_id, 0) + 1
        return self._grid.send_and_receive(messages, timeout=timeout)


def _selecting(grid: Grid, strategy: FedAvg, config: dict, folder: Path | None, reports: list) -> SelectingGrid:
    rbcs_f = RBCSF(V=float(config["V"]), beta=float(config["beta"]))
    policy = {"uniform": Uniform(), "rbcs-f": rbcs_f, "free-places": BySpeed()}[config["sampling"]]
    # Free places with an update memory: each answer changes the model, and its node's place is filled at once.
    places = {"places": FreePlaces(), "memory": UpdateMemory()} if config["sampling"] == "free-places" else {}
    sinks = [RoundSink(reports.append)]
    if folder is not None:
        sinks.append(CsvLog(folder / f"{config['sampling']}.csv"))
    return SelectingGrid(
        grid,
        Selector(policy, cohort_size=int(config["cohort-size"]), observers=sinks),
        strategy,
        contexts=ContextOptions(fresh_s=600.0),
        rules=RoundRules(deadline_s=float(config["deadline-s"]) or math.inf),
        state_dir=None if folder is None else folder / f"{config['sampling']}-state",
        **places,
    )


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and report how long every round took and how often every node took part."""
    config = dict(context.run_config)
    folder = Path(str(config["out"])) if config["out"] else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    num_nodes = len(_await_nodes(grid, int(config["num-nodes"]) or int(config["cohort-size"])))
    cohort_size, reports = int(config["cohort-size"]), []
    strategy = FedAvg(
        fraction_train=1e-9,
        min_train_nodes=cohort_size,  # what FedAvg itself samples; the policy has its own cohort size
        fraction_evaluate=0.0,
        min_available_nodes=cohort_size,
    )
    own = config["sampling"] == "fedavg"
    used = CountingGrid(grid) if own else _selecting(grid, strategy, config, folder, reports)
    images, labels = test_digits()
    seconds, accuracies, at_s = [], [], []
    began = last = time.monotonic()

    def evaluate_fn(round_: int, arrays: ArrayRecord) -> MetricRecord:
        nonlocal last
        now = time.monotonic()
        if round_:
            seconds.append(now - last)  # everything: contexts, choosing, training, aggregation
        loss, accuracy = evaluate({name: array.numpy() for name, array in arrays.items()}, images, labels)
        accuracies.append(accuracy)
        at_s.append(now - began)
        last = time.monotonic()
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    strategy.start(
        grid=used,
        initial_arrays=ArrayRecord({name: Array(values) for name, values in initial_model().items()}),
        num_rounds=int(config["num-rounds"]),
        evaluate_fn=evaluate_fn,
    )
    num_rounds = int(config["num-rounds"])
    counts = list((used.chosen if own else used.selector.participation()).values())
    counts += [0] * (num_nodes - len(counts))  # nodes that never took part
    report = {
        "sampling": config["sampling"],
        "seconds": seconds,
        "mean_s": sum(seconds[1:]) / (len(seconds) - 1),  # the first one waits for processes to start
        "least_rate": min(counts) / num_rounds,
        "rates": [count / num_rounds for count in counts],
        "exchange_s": [dict(report.times_s) for report in reports],
        "predicted_s": [None if math.isnan(report.predicted_s) else report.predicted_s for report in reports],
        "lost": sum(report.num_lost for report in reports),
        "accuracy": accuracies[-1],
        "accuracies": accuracies,
        "at_s": at_s,
    }
    print(f"{report['sampling']}: {report['mean_s']:.2f} s a round, least rate {report['least_rate']:.3f}")
    if folder is not None:
        (folder / f"{config['sampling']}.json").write_text(json.dumps(report, indent=1), encoding="utf-8")


def _await_nodes(grid: Grid, wanted: int, limit_s: float = 180.0) -> list[int]:
    """Nodes that are connected, once there are so many.

    Raises:
        RuntimeError: If they do not come.
    """
    until = time.monotonic() + limit_s
    while len(now := list(grid.get_node_ids())) < wanted:
        if time.monotonic() > until:
            raise RuntimeError(f"{len(now)} nodes are connected after {limit_s:g} s; expected {wanted}")
        time.sleep(1.0)
    return now
