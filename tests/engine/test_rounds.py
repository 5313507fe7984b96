"""Rounds of a run, whatever engine carries the messages."""

import contextlib
import logging

import numpy as np
import pytest

from fedroster import Selector, Uniform, make_policy
from fedroster.aggregation.signatures import signatures_of
from fedroster.engine.choose import Node
from fedroster.engine.contexts import NodeContext
from fedroster.engine.rounds import Rounds
from fedroster.engine.rules import RoundRules
from fedroster.errors import ConfigurationError
from fedroster.policies import DivFL, HiCSFL
from fedroster.types import Signature


def begun(policy, *, seed=0, **options):
    selector = Selector(policy, cohort_size=4, seed=seed)
    options = {"log": logging.getLogger("fedroster.test"), "weighs": True, "tells_signatures": True} | options
    return Rounds(selector, rules=RoundRules(), **options)


def test_a_node_whose_name_reads_as_anothers_stays_out_and_ends_no_run(caplog):
    rounds = begun(Uniform())
    names = ["n1", "n2", "n1\N{ZERO WIDTH SPACE}"]
    nodes = [Node(number, NodeContext(name), 0.0, registered=True) for number, name in enumerate(names)]
    for number in (1, 2):
        choice = rounds.choose(nodes, 1e6)
        assert (choice.round, set(choice.clients)) == (number, {"n1", "n2"})
        rounds.selector.observe(number, times_s={"n1": 1.0, "n2": 2.0})
    assert caplog.text.count("a node stays out") == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("optimal-client-sampling", "norms of updates before they are sent, and engines have no such exchange"),
        ("divfl", "signatures of updates, and this engine, as it is set up here, computes none"),
        ("hics-fl", "signatures of updates, and this engine, as it is set up here, computes none"),
    ],
)
@pytest.mark.parametrize("tells", [False, True])
def test_a_policy_that_needs_to_know_what_an_engine_does_not_tell_is_refused(name, why, tells):
    is_told = tells and "signatures" in why
    with contextlib.nullcontext() if is_told else pytest.raises(ConfigurationError, match=why):
        begun(make_policy(name), tells_signatures=tells)


def test_the_signature_of_an_update_is_of_its_floats_and_by_the_seed_of_the_run(tmp_path):
    """Counters and bytes count for nothing; who lacks an array has none; a run that goes on keeps its seed."""
    sent = {"w": np.ones((3, 2), np.float32), "b": np.zeros(10), "n": np.int64(4), "tree": np.zeros(3, np.uint8)}
    back = {"w": sent["w"] + 2.0, "b": np.arange(10.0), "n": np.int64(9), "tree": np.zeros(7, np.uint8)}
    rounds = begun(DivFL(), seed=5, state_dir=tmp_path)
    floats = {name: back[name][None] for name in "wb"}
    expected = signatures_of(floats, {name: sent[name] for name in "wb"}, Signature(), seed=5)[0]
    np.testing.assert_array_equal(rounds.signature(sent, back), expected)
    assert rounds.signature(sent, {"w": back["w"]}) is None
    assert rounds.signature(sent, back | {"b": np.zeros(4)}) is None
    rounds.choose([Node(0, NodeContext("a"), 0.0, registered=True)], 1e6)
    rounds.release()
    again = begun(DivFL(), seed=6, state_dir=tmp_path)
    np.testing.assert_array_equal(again.signature(sent, back), expected)
    again.release()


def test_a_model_without_the_bias_that_a_policy_wants_is_refused_and_others_get_no_signature():
    sent = {"w": np.ones((3, 2)), "b": np.zeros(10)}
    back = {"w": sent["w"], "b": np.arange(10.0)}
    assert begun(HiCSFL()).signature(sent, back).tolist() == list(range(10))
    with pytest.raises(ConfigurationError, match="expected 7 classes in the last of one dimension"):
        begun(HiCSFL(classes=7)).signature(sent, back)
    assert begun(Uniform()).signature(sent, back) is None
