"""The selector for edge servers: budgets, links, and everything that it has in common with the flat one."""

from __future__ import annotations

import numpy as np
import pytest

from fedroster import EdgeSelector
from fedroster.core.errors import (
    ConfigurationError,
    FairnessWarning,
    FeedbackError,
    InvalidInputError,
    UnknownNameError,
)
from fedroster.policies import COCS

POLICY = COCS(h_T=2, scale=0.02)


def test_budgets_are_checked():
    with pytest.raises(ConfigurationError, match="budgets is empty"):
        EdgeSelector(POLICY, budgets={}, cohort_size=2)
    with pytest.raises(ConfigurationError, match="budget of server 'a'"):
        EdgeSelector(POLICY, budgets={"a": -1.0}, cohort_size=2)


def test_feedback_and_names_are_checked():
    selector = EdgeSelector(POLICY, budgets={"a": 1.0}, cohort_size=2)
    selector.join(["x", "y"])
    contexts = np.full((2, 2), 0.5)
    cohort = selector.select(contexts, clients=["x", "y"], servers=[["a"], ["a"]])
    assert cohort.servers == ("a",)
    (chosen,) = cohort.clients
    other = "y" if chosen == "x" else "x"
    with pytest.raises(FeedbackError):
        selector.observe(1, dropped=[other])
    selector.observe(1, times_s={chosen: 1.0}, late=[chosen])
    with pytest.raises(FeedbackError):
        selector.observe(1, dropped=[chosen])
    with pytest.raises(UnknownNameError):
        selector.select(contexts, clients=["x", "z"], servers=[["a"], ["a"]])
    with pytest.raises(InvalidInputError, match="prices"):
        selector.select(contexts, clients=["x", "y"], servers=[["a"], ["a"]], prices=np.array([1.0, np.nan]))
    selector.leave(["x"])
    assert selector.clients == ("y",)
    selector.select(contexts[:1], clients=["y"], servers=[["b"]])
    selector.join(["x"])
    assert sum(selector.participation().values()) == 1
    assert selector.participation_rates(as_array=True).tolist() == [
        1.0 if chosen == "x" else 0.0,
        0.5 if chosen == "y" else 0.0,
    ]
    assert selector.select(contexts, clients=["x", "y"], servers=[["b"], [""]]).is_empty


def test_an_edge_selector_is_a_selector_in_everything_else(tmp_path):
    selector = EdgeSelector(POLICY, budgets={"b": 1.0, "a": 2.0}, cohort_size=3, patience_rounds=2)
    selector.join(["x", "y", "z"])
    everyone = {"clients": ["x", "y", "z"], "servers": [["a"], ["a", "b"], ["b"]]}
    contexts = np.full((3, 2), 0.5)
    cohort = selector.select(contexts, **everyone)
    assert set(cohort.clients) == {"x", "y", "z"}
    selector.observe(1, times_s={cohort.clients[0]: 1.0})
    selector.save(tmp_path / "selector.npz")
    again = EdgeSelector.load(tmp_path / "selector.npz", POLICY)
    assert again.budgets == selector.budgets
    assert list(again.budgets) == ["b", "a"]  # the order numbers the servers
    assert again.open_rounds() == selector.open_rounds() == {1: cohort.clients[1:]}
    for _ in range(2):
        assert again.select(contexts, **everyone) == selector.select(contexts, **everyone)
    assert sorted(again.open_rounds()) == sorted(selector.open_rounds()) == [2, 3]  # round 1 was given up
    with pytest.raises(FeedbackError, match="patience_rounds = 2"):
        again.observe(1, dropped=cohort.clients[1:])
    chosen = selector.participation(as_array=True).tolist()
    selector.leave(["x"], forget=True)
    selector.join(["w"])
    assert selector.clients == ("w", "y", "z")
    assert selector.participation(as_array=True).tolist() == [0, *chosen[1:]]
    assert selector.participation_rates(as_array=True).tolist() == [0.0, chosen[1] / 3, chosen[2] / 3]
    for wrong in (["w"], ["v", "v"]):
        with pytest.raises(InvalidInputError):
            selector.join(wrong)
    with pytest.raises(InvalidInputError, match="finite numbers >= 0"):
        selector.select(-contexts, clients=["w", "y", "z"], servers=everyone["servers"])


def test_a_promise_to_clients_that_no_edge_server_reaches_is_warned_of():
    class Promising(COCS):
        beta = 0.5

    selector = EdgeSelector(Promising(h_T=2), budgets={"a": 2.0}, cohort_size=2)
    selector.join(["x", "y", "z"])
    links = {"clients": ["x", "y", "z"], "servers": [["a"], ["a"], ["nowhere"]]}
    for _ in range(64):
        selector.select(np.full((3, 2), 0.5), **links)
    with pytest.warns(FairnessWarning, match=r"1 clients that are available less often, such as \['z'\]"):
        selector.select(np.full((3, 2), 0.5), **links)


def test_the_server_of_a_link_is_told_with_its_feedback(tmp_path):
    seen = []

    class Recorder(COCS):
        def update(self, state, feedback, /):
            seen.append(dict(zip(feedback.client.tolist(), feedback.server.tolist(), strict=True)))
            return super().update(state, feedback)

    policy = Recorder(h_T=2, scale=0.02)
    selector = EdgeSelector(policy, budgets={"b": 1.0, "a": 2.0}, cohort_size=3)
    selector.join(["x", "y", "z"])
    cohort = selector.select(np.full((3, 2), 0.5), clients=["x", "y", "z"], servers=[["a"], ["a"], ["b"]])
    selector.save(tmp_path / "selector.npz")
    for each in (selector, EdgeSelector.load(tmp_path / "selector.npz", policy)):
        each.observe(1, times_s=dict.fromkeys(cohort.clients, 1.0))
    assert seen == [{0: 1, 1: 1, 2: 0}] * 2
