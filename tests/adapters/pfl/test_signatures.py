"""Policies that compare updates are told signatures of users' updates in pfl, or are refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pfl")

from fedroster.adapters.pfl import ReportSignatures, losses
from fedroster.aggregation.signatures import signatures_of
from fedroster.errors import ConfigurationError
from fedroster.policies import DivFL, HiCSFL
from fedroster.types import Signature

sys.path.append(str(Path(__file__).parent))
from test_memory import COHORT, Seen, play, users_of


def compared(policy: Any, *, weighed: bool = False) -> Seen:
    users = users_of(policy, seed=4)
    return play(5, users=users, weighed=weighed, last=ReportSignatures(users), validated=2)[1]


@pytest.mark.parametrize("weighed", [False, True])
def test_a_signature_is_of_the_update_whatever_it_is_weighed_by(weighed: bool, told: list[dict[int, Any]]) -> None:
    played = [each for each in compared(DivFL(), weighed=weighed).rounds if each]
    assert len(played) == 5
    assert len(told) == 4  # the last round is told when there is another
    for cohort, signatures in zip(played, told, strict=False):
        assert set(signatures) == {user for user, _, _ in cohort}
        for user, _, update in cohort:
            zero = {name: np.zeros_like(value) for name, value in update.items()}
            moved = {name: value[None] for name, value in update.items()}
            expected = signatures_of(moved, zero, Signature(), seed=4)[0]
            np.testing.assert_allclose(signatures[user], expected, atol=1e-6)


def test_all_workers_learn_what_the_users_of_each_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    users, others = users_of(DivFL()), users_of(DivFL())
    mine, theirs = ReportSignatures(users), ReportSignatures(others)
    mine._found[1, :] = [*range(64), 1.0]
    theirs._found[4, :] = [*range(64, 128), 1.0]
    both = mine._found + theirs._found
    monkeypatch.setattr(losses, "summed", lambda found: both)
    for each in (mine, theirs):
        each.postprocess_server_metrics(central_context=None, aggregate_metrics=None)
        assert not each._found.any()
    for dataset in (users, others):
        assert {user: found.tolist() for user, found in dataset.signatures.items()} == {
            1: [*range(64)],
            4: [*range(64, 128)],
        }


def test_such_a_policy_is_refused_where_nobody_tells_it_and_a_model_without_the_bias_ends_the_run() -> None:
    with pytest.raises(ConfigurationError, match="and in pfl with ReportSignatures"):
        users_of(DivFL()).get_cohort(COHORT)
    with pytest.raises(ConfigurationError, match="expected 10 classes in the last of one dimension"):
        compared(HiCSFL())
