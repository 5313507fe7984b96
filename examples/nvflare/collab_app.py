"""A Collab job: what runs at a site, and federated averaging with guaranteed rates at the server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from digits_task import initial_model, train_at
from nvflare.collab import collab

from fedroster import RBCSF, Record, Selector
from fedroster.adapters.nvflare import RoundReport, RoundRules, RoundSink, SelectingClients


@collab.publish
def train(model, number):
    """Train at a site."""
    model, num_examples = train_at(collab.site_name, model, number, **collab.get_app_prop("site"))
    return model, {"num-examples": num_examples}


def mean(updates):
    """Federated averaging."""
    weights = np.array([metrics["num-examples"] for _, metrics in updates], float)
    return {name: np.average([model[name] for model, _ in updates], axis=0, weights=weights) for name in updates[0][0]}


@collab.main
def fedavg():
    """Train by rounds; after a restart, go on with the saved model and the saved selector."""
    settings = collab.get_app_prop("settings")
    out = Path(settings["out"])
    saved = out / "model.npz"
    model = dict(np.load(saved)) if saved.exists() else initial_model()

    def write(report: RoundReport) -> None:
        row = {"at": time.time(), "round": report.round, "seconds": report.round_s, "resumed": report.resumed}
        row["status"] = {name: None if how is None else how.name for name, how in report.status.items()}
        row["rate"] = dict(zip(report.members, report.rate.tolist(), strict=True))
        with (out / "rounds.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")

    policy, sink = RBCSF(V=settings["V"], beta=settings["beta"]), RoundSink(write)
    selector = Selector(policy, cohort_size=settings["cohort_size"], observers=[sink, Record(out / "record")])
    rules = RoundRules(deadline_s=settings["deadline_s"], wait_s=30.0)
    clients = SelectingClients(selector, rules=rules)
    for number in range(clients.round, settings["num_rounds"]):
        replies = clients.call("train", model, number=number + 1)
        if replies:
            model = mean([reply.content for reply in replies])
        np.savez(out / "next.npz", **model)
        (out / "next.npz").replace(saved)
        clients.settle()
