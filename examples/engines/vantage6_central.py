"""vantage6 (algorithm tools 4.15): the central function asks a selector which organizations train."""

from __future__ import annotations

import time
from typing import Any

from fedroster import Selector

UNFINISHED = ("pending", "initializing", "active")


def train_round(
    client: Any, selector: Selector, weights: Any, running: dict[int, tuple[int, int, float]], deadline_s: float
) -> dict[int, Any]:
    """Train on the organizations that the policy chooses; results by organization.

    ``client`` is vantage6's AlgorithmClient.  ``running`` holds the subtasks that have not ended: keep it,
    so that busy organizations are left out and late results are learned from.
    """
    sites = {organization["id"] for organization in client.organization.list()}
    selector.join(sites.difference(selector.clients))
    cohort = selector.select(sorted(sites.difference(site for _, site, _ in running.values())))
    for site in cohort.clients:
        task = client.task.create({"method": "train", "kwargs": {"weights": weights}}, organizations=[site])
        running[task["id"]] = cohort.round, site, time.monotonic()
    began, results = time.monotonic(), {}
    while any(number == cohort.round for number, _, _ in running.values()) and time.monotonic() - began < deadline_s:
        time.sleep(min(1.0, deadline_s / 10))
        for task, (number, site, sent) in list(running.items()):
            status = client.request(f"task/{task}/status")["status"]
            if status in UNFINISHED:
                continue
            del running[task]
            if status != "completed":
                selector.observe(number, failed=[site], again="ignore")
            else:
                late = [site] if number < cohort.round else []
                selector.observe(number, times_s={site: time.monotonic() - sent}, late=late, again="ignore")
                if not late:
                    results[site] = client.result.from_task(task)[0]
    return results
