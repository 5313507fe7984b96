"""A Collab job as a tree: sites 1 and 2 are edge servers with budgets, to which COCS assigns the other sites."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from digits_task import initial_model, train_at
from nvflare.collab import collab

from fedroster import COCS, EdgeSelector
from fedroster.adapters.nvflare import EdgeMap, RoundReport, RoundRules, RoundSink, SelectingEdges, call_clients

BUDGETS = {"site-1": 2.0, "site-2": 1.0}
REACH = {"site-3": ["site-1"], "site-4": ["site-1", "site-2"], "site-5": ["site-1", "site-2"], "site-6": ["site-2"]}


@collab.publish
def train(model):
    """Train at a site; its log says which site called it."""
    model, num_examples = train_at(collab.site_name, model, 0, caller=collab.caller, **collab.get_app_prop("site"))
    return model, {"num-examples": num_examples}


@collab.publish
def train_group(model, clients, deadline_s):
    """Train at an edge server: call its clients, and aggregate."""
    return call_clients("train", model, clients, deadline_s)


@collab.main
def fedavg():
    """Train by rounds."""
    settings = collab.get_app_prop("settings")
    out = Path(settings["out"])

    def write(report: RoundReport) -> None:
        row = {"at": time.time(), "round": report.round, "seconds": report.round_s, "edges": dict(report.edges)}
        row["status"] = {name: None if how is None else how.name for name, how in report.status.items()}
        with (out / "rounds.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")

    edges = SelectingEdges(
        EdgeSelector(COCS(), budgets=BUDGETS, cohort_size=4, num_features=2, observers=[RoundSink(write)]),
        rules=RoundRules(deadline_s=settings["deadline_s"]),
        edge_rules=EdgeMap(edges=REACH),
    )
    model = initial_model()
    for _ in range(settings["num_rounds"]):
        replies = edges.call("train_group", model)
        if replies:
            weights = [reply.content[1]["num-examples"] for reply in replies]
            model = {
                name: np.average([reply.content[0][name] for reply in replies], axis=0, weights=weights)
                for name in model
            }
        np.savez(out / "model.npz", **model)
