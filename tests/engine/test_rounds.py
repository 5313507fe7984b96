"""Rounds of a run, whatever engine carries the messages."""

import logging

import pytest

from fedroster import Selector, Uniform, make_policy
from fedroster.engine.choose import Node
from fedroster.engine.contexts import NodeContext
from fedroster.engine.rounds import Rounds
from fedroster.engine.rules import RoundRules
from fedroster.errors import ConfigurationError


def test_a_node_whose_name_reads_as_anothers_stays_out_and_ends_no_run(caplog):
    log = logging.getLogger("fedroster.test")
    rounds = Rounds(Selector(Uniform(), cohort_size=4), rules=RoundRules(), log=log)
    names = ["n1", "n2", "n1\N{ZERO WIDTH SPACE}"]
    nodes = [Node(number, NodeContext(name), 0.0, registered=True) for number, name in enumerate(names)]
    for number in (1, 2):
        choice = rounds.choose(nodes, 1e6)
        assert (choice.round, set(choice.clients)) == (number, {"n1", "n2"})
        rounds.selector.observe(number, times_s={"n1": 1.0, "n2": 2.0})
    assert caplog.text.count("a node stays out") == 1


@pytest.mark.parametrize("name", ["optimal-client-sampling", "divfl", "hics-fl"])
def test_a_policy_that_needs_to_know_what_no_engine_tells_is_refused(name):
    with pytest.raises(ConfigurationError, match="norms or signatures of updates, and engines have no such exchange"):
        Rounds(Selector(make_policy(name), cohort_size=4), rules=RoundRules(), log=logging.getLogger(), weighs=True)
