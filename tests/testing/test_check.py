"""The contracts in one call."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from fedroster import Uniform
from fedroster.errors import ConfigurationError
from fedroster.networks.flat import FlatNetwork
from fedroster.testing import check_environment, check_policy
from fedroster.types import Selection, Stateless


@dataclass(frozen=True, slots=True)
class TheAbsentToo(Stateless):
    """Takes clients that are not there."""

    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.sort(rng.permutation(context.num_links)[: context.cohort_size]))


@pytest.mark.usefixtures("resumes_in_forks")
def test_a_policy_under_budgets():
    check_policy(Uniform(), servers=True)


@pytest.mark.usefixtures("resumes_in_forks")
def test_a_policy_that_breaks_the_contract_is_told_where():
    with pytest.raises(AssertionError) as caught:
        check_policy(TheAbsentToo())
    text = str(caught.value)
    assert text.startswith("TheAbsentToo breaks the contract:\n")
    assert "\ntest_obeys_the_hard_constraints: SelectionError: " in text
    assert "test_is_a_value" not in text


def test_what_is_no_policy():
    with pytest.raises(ConfigurationError, match="policy is the class Uniform"):
        check_policy(Uniform)


MINE = """
from dataclasses import dataclass
from fedroster import Uniform
from fedroster.testing import check_policy

@dataclass(frozen=True)
class Mine(Uniform):
    pass

check_policy(Mine())
print("checked")
"""


def test_a_script_may_check_its_own_class(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(MINE)
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert printed.stdout == "checked\n", printed.stderr


@pytest.mark.usefixtures("resumes_in_forks")
def test_history_must_be_declared():
    network = FlatNetwork(num_clients=12, cohort_size=4)
    check_environment(network, exogenous=lambda context, outcome: {"available": context.available})
    with pytest.raises(AssertionError, match="\ntest_every_policy_meets_the_same_world: "):
        check_environment(network)
