"""The server's side of ``run.py faults``: FedAvg with a grid of its own or fedroster's, which goes on after a kill."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.server_app import _await_nodes
from digits_app.task import evaluate, initial_model, test_digits
from fedroster import RBCSF, Selector
from fedroster.adapters.flower import ContextOptions, RoundReport, RoundRules, RoundSink, SelectingGrid

app = ServerApp()


def _append(path: Path, **row: object) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


class KeptFedAvg(FedAvg):
    """FedAvg that keeps its model and a row of every round in files, and evaluates on the nodes now and then."""

    def __init__(self, folder: Path, *, evaluate_every: int, cohort_size: int) -> None:
        """Continue in a folder."""
        super().__init__(fraction_train=1e-9, min_train_nodes=cohort_size, min_available_nodes=cohort_size)
        self._folder, self._every = folder, evaluate_every
        self._rows = folder / "rounds.jsonl"
        self._began = 0.0
        rows = self._rows.read_text().splitlines() if self._rows.exists() else []
        self.done = sum(json.loads(row)["kind"] == "train" for row in rows)
        self._offset = self.done

    def model(self) -> dict[str, np.ndarray]:
        """The model that was saved last, or one that knows nothing."""
        path = self._folder / "model.npz"
        if not path.exists():
            return initial_model()
        with np.load(path) as file:
            return dict(file)

    def configure_train(self, server_round, arrays, config, grid):
        """As FedAvg, with the round's number over restarts."""
        self._began = time.monotonic()
        return super().configure_train(server_round + self._offset, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        """As FedAvg; then the model and a row are written."""
        replies = list(replies)
        arrays, metrics = super().aggregate_train(server_round + self._offset, replies)
        if arrays is not None:
            np.savez(self._folder / "new.npz", **{name: array.numpy() for name, array in arrays.items()})
            (self._folder / "new.npz").replace(self._folder / "model.npz")
        self._row("train", server_round, sum(reply.has_content() for reply in replies))
        return arrays, metrics

    def configure_evaluate(self, server_round, arrays, config, grid):
        """As FedAvg, in some rounds."""
        if (server_round + self._offset) % self._every:
            return []
        self._began = time.monotonic()
        return super().configure_evaluate(server_round + self._offset, arrays, config, grid)

    def aggregate_evaluate(self, server_round, replies):
        """As FedAvg; then a row is written."""
        replies = list(replies)
        if replies:
            self._row("evaluate", server_round, sum(reply.has_content() for reply in replies))
        return super().aggregate_evaluate(server_round + self._offset, replies)

    def _row(self, kind: str, server_round: int, used: int) -> None:
        seconds = time.monotonic() - self._began
        _append(self._rows, kind=kind, round=server_round + self._offset, s=seconds, used=used, at=time.time())


def _selecting(grid: Grid, strategy: FedAvg, config: dict, folder: Path) -> SelectingGrid:
    def tell(report: RoundReport) -> None:
        _append(
            folder / "reports.jsonl",
            round=report.round,
            at=time.time(),
            status={name: None if status is None else status.name for name, status in report.status.items()},
            resumed=report.resumed,
            reasons=dict(report.reasons),
            paused=dict(report.paused),
            available=report.num_available,
            connected=report.num_connected,
            round_s=report.round_s,
            select_s=report.select_s,
        )

    return SelectingGrid(
        grid,
        Selector(
            RBCSF(V=float(config["V"]), beta=float(config["beta"])),
            cohort_size=int(config["cohort-size"]),
            observers=[RoundSink(tell)],
        ),
        strategy,
        contexts=ContextOptions(fresh_s=3600.0),
        rules=RoundRules(deadline_s=float(config["deadline-s"]), evaluate="all"),
        state_dir=folder / "state",
    )


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train until all rounds are done; write what the selector has counted."""
    config = dict(context.run_config)
    folder = Path(str(config["out"]))
    strategy = KeptFedAvg(folder, evaluate_every=int(config["evaluate-every"]), cohort_size=int(config["cohort-size"]))
    if not strategy.done:
        _await_nodes(grid, int(config["num-nodes"]))
    own = config["sampling"] == "fedavg"
    used = grid if own else _selecting(grid, strategy, config, folder)
    left = int(config["num-rounds"]) - strategy.done
    if left > 0:
        strategy.start(
            grid=used,
            initial_arrays=ArrayRecord({name: Array(values) for name, values in strategy.model().items()}),
            num_rounds=left,
            timeout=float(config["deadline-s"]) if own else 3600.0,  # fedroster's grid has a deadline of its own
        )
    loss, accuracy = evaluate(strategy.model(), *test_digits())
    result = {"accuracy": accuracy, "loss": loss if math.isfinite(loss) else None}
    if not own:
        selector = used.selector
        result |= {
            what: {str(name): int(count) for name, count in selector.participation(what).items()}
            for what in ("chosen", "trained", "used")
        }
        result["rates"] = {str(name): float(rate) for name, rate in selector.participation_rates().items()}
    (folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
