"""Sinks before any engine and none, and alerts that ring when they should and at no other time."""

from __future__ import annotations

import csv
import logging
import math
import re
import time
from pathlib import Path

import numpy as np
import pytest

from fedroster import RBCSF, Floor, Rules, Selector, Uniform
from fedroster.core.problem import Selection, Status
from fedroster.engine.report import CsvLog, RoundSink
from fedroster.engine.rounds import Rounds
from fedroster.engine.rules import RoundRules
from fedroster.errors import FairnessWarning

ALERTS = Path(__file__).parents[2] / "examples" / "monitoring" / "alerts.yml"


class Kept(RoundSink):
    """Keeps its reports."""

    def __init__(self):
        self.reports = []

    def show(self, report):
        self.reports.append(report)


def test_a_round_is_reported_when_all_its_answers_are_in():
    kept = Kept()
    selector = Selector(Floor(beta=0.0), cohort_size=2, clients=["a", "b", "c"], observers=[kept])
    cohort = selector.select({"a": [1.0], "b": [2.0]})
    selector.observe(cohort.round, times_s={"a": 1.5})
    assert kept.reports == []
    selector.observe(cohort.round, failed=["b"], round_s=4.0)
    (report,) = kept.reports
    assert (report.round, report.clients, report.num_connected, report.num_available) == (1, ("a", "b"), 2, 2)
    assert report.status == {"a": Status.COMPLETED, "b": Status.FAILED}
    assert (report.times_s, report.round_s) == ({"a": 1.5}, 4.0)
    assert report.members == ("a", "b", "c")
    assert math.isnan(report.select_s)


def test_or_when_the_next_one_begins():
    kept = Kept()
    selector = Selector(Uniform(), cohort_size=2, clients=["a", "b", "c"], rules=Rules(deny=["c"]), observers=[kept])
    selector.select()
    selector.select()
    (report,) = kept.reports
    assert (report.round, set(report.status.values()), report.num_available) == (1, {None}, 2)
    selector.select(clients=["a"], available=[False])
    assert [each.round for each in kept.reports] == [1, 2, 3]
    assert kept.reports[-1].clients == ()


def test_what_was_expected_is_in_the_report(tmp_path):
    selector = Selector(RBCSF(beta=0.0), cohort_size=1, clients=["a"], observers=[CsvLog(tmp_path / "rounds.csv")])
    for _ in range(30):
        selector.observe(selector.select({"a": [1.0]}).round, times_s={"a": 2.0})
    rows = list(csv.DictReader((tmp_path / "rounds.csv").read_text().splitlines()))
    assert len(rows) == 30
    assert float(rows[-1]["predicted_s"]) == pytest.approx(2.0, rel=0.1)
    assert rows[-1]["select_s"] == "nan"
    assert (tmp_path / "rounds.csv").stat().st_mode & 0o777 == 0o600


def test_of_clients_without_a_time_nothing_is_expected():
    selector, kept = watched(RBCSF(beta=0.2))
    rounds(selector, 1)
    assert math.isnan(kept.reports[0].metrics()["predicted_s"])  # RBCS-F says 0


def test_alerts_name_methods_that_a_selector_has():
    named = re.findall(r"selector\.(\w+)\(", alerts())
    assert named
    assert all(hasattr(Selector, name) for name in named)


def test_behind_an_engine_a_sink_gets_each_round_once(tmp_path):
    kept = Kept()
    selector = Selector(Uniform(), cohort_size=1, clients=["a"], observers=[kept])
    Rounds(selector, rules=RoundRules(), state_dir=tmp_path, log=logging.getLogger(__name__))
    selector.observe(selector.select().round, times_s={"a": 1.0})
    assert kept.behind_engine
    assert kept.reports == []


class Favourites(Uniform):
    """Promises a rate, and always takes the first clients."""

    beta = 0.5

    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.flatnonzero(context.available)[: context.cohort_size])


def alerts():
    if not ALERTS.exists():
        pytest.skip("the example is not part of this distribution")
    return ALERTS.read_text()


def ringing(kept, now_s=None):
    """Names of the alerts whose expression holds; the expressions are Python as well as PromQL."""
    rules = re.findall(r"- alert: Fedroster(\w+)\n +expr: (.+)\n", alerts())
    assert len(rules) == 4
    names = {f"fedroster_{name}": value for name, value in kept.reports[-1].metrics().items()}
    names["time"] = lambda: time.time() if now_s is None else now_s
    return {alert for alert, expr in rules if eval(expr, {"__builtins__": {}}, names)}


def watched(policy=None, **options):
    kept = Kept()
    policy = RBCSF(beta=0.1) if policy is None else policy
    return Selector(policy, cohort_size=2, clients=[*"abcd"], observers=[kept], **options), kept


def rounds(selector, number, time_s=1.0):
    for _ in range(number):
        cohort = selector.select()
        selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, time_s))


def test_the_alert_of_broken_promises():
    selector, kept = watched(Favourites())
    rounds(selector, 49)
    assert ringing(kept) == set()
    rounds(selector, 1)
    assert ringing(kept) == {"PromiseBroken"}
    assert selector.below_promise() == ("c", "d")


def test_the_alert_of_no_client():
    selector, kept = watched()
    rounds(selector, 1)
    selector.select(available=[False] * 4)
    assert ringing(kept) == {"NoClientAvailable"}
    rounds(selector, 1)
    assert ringing(kept) == set()
    with pytest.warns(FairnessWarning, match="the lists exclude all 4 members"):
        selector.rules = Rules(deny=["*"])
    selector.select()
    assert ringing(kept) == {"NoClientAvailable"}


@pytest.mark.parametrize("policy", [RBCSF(beta=0.1), Uniform()])
def test_the_alert_of_a_round_that_does_not_end(policy):
    selector, kept = watched(policy)
    rounds(selector, 30, time_s=20.0)
    ended_s = kept.reports[-1].at_s
    assert ringing(kept, ended_s + 50.0) == set()
    assert ringing(kept, ended_s + 70.0) == {"RoundOverdue"}


def test_the_alert_of_many_times_that_are_cut():
    selector, kept = watched(longest_s=5.0)
    rounds(selector, 2, time_s=4.0)
    assert ringing(kept) == set()
    rounds(selector, 1, time_s=6.0)
    assert ringing(kept) == {"ManyTimesCapped"}
