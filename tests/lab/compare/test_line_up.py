"""The compared policies: the whole catalogue, fitted to the scenario's size, and why one is left out."""

from dataclasses import dataclass

import numpy as np
import pytest

from commands import fails
from fedroster.catalogue import Entry, make_policy, make_scenario, policies, scenarios
from fedroster.core.errors import ConfigurationError, UnknownNameError
from fedroster.core.problem import Selection
from fedroster.core.protocols import Stateless
from fedroster.core.streams import Streams
from fedroster.lab.compare import line_up as module
from fedroster.lab.compare.line_up import split_policies
from fedroster.lab.task import Task
from fedroster.policies import Floor
from fedroster.queues import check_rate


def line_up(scenario, policies, *, is_trained=True, must_run=True, **asked):
    asked = module.Asked(policies, task=Task() if is_trained else None, **asked)
    return module.line_up(scenario, asked, must_run=must_run)


def test_policies_separated_by_commas():
    for text, expected in {
        "": [],
        "random, oort": ["random", "oort"],
        "random,rbcs-f:V=5,rbcs-f:V=20,beta=0.1": ["random", "rbcs-f:V=5", "rbcs-f:V=20,beta=0.1"],
        "all,,power-of-choice:variant=pow-d,": ["all", "power-of-choice:variant=pow-d"],
    }.items():
        assert split_policies(text) == expected


@pytest.mark.parametrize("scenario", ["rbcs-f/table-1", "traces/devices", "cocs/mnist"])
def test_everybody_is_in_or_left_out_with_a_reason(scenario):
    found = line_up(scenario, ["all"], settings={"num_clients": "60"} if scenario == "traces/devices" else {})
    names = {text.partition(":")[0] for text in found.policies}
    assert names | found.left_out.keys() == policies().keys()
    assert not names & found.left_out.keys()
    assert all(len(reason) > 20 for reason in found.left_out.values())
    environment = make_scenario(scenario, found.settings)
    for text in found.policies:
        make_policy(text).check(environment.spec)
    # Negative control: flat policies do not run with edge servers, nor hierarchical ones in a flat scenario.
    assert ("rbcs-f" in names) == (scenario != "cocs/mnist")
    assert ("cocs" in names) == (scenario == "cocs/mnist")
    if scenario == "traces/devices":
        assert found.left_out["fedcs"].startswith("chooses none of the")
        assert "deadline_s=3.0" in found.left_out["fedcs"]


@dataclass(frozen=True, slots=True)
class Everywhere(Stateless):
    """Flat, and does not say so: it has no check."""

    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.flatnonzero(context.available)[: context.cohort_size])


def test_a_plug_in_belongs_to_all(monkeypatch):
    """Nothing depends on how many policies there are or what they are called."""

    @dataclass(frozen=True, slots=True)
    class Mine(Everywhere):
        beta: float = 0.3
        V: float = 1.0

        def check(self, spec, /):
            check_rate(self.beta, num_clients=spec.num_clients, cohort_size=spec.cohort_size)

    @dataclass(frozen=True, slots=True)
    class Momentum(Mine):
        beta: float = 0.9  # no rate: it is refused nowhere

        def check(self, spec, /):
            """Promise nothing."""

    monkeypatch.setitem(policies(), "mine", Entry(Mine, "", ""))
    monkeypatch.setitem(policies(), "momentum", Entry(Momentum, "", ""))
    found = line_up("traces/devices", ["all"], clients=200)
    assert "momentum" in found.policies  # with its own beta
    fitted = next(text for text in found.policies if text.startswith("mine"))
    assert make_policy(fitted) == Mine(beta=0.01, V=make_policy(fitted).V)
    assert make_policy(fitted).V == make_policy(next(t for t in found.policies if t.startswith("rbcs-f"))).V != 1.0


def test_a_plug_in_that_raises_anything_is_left_out_or_named(monkeypatch):
    @dataclass(frozen=True, slots=True)
    class Broken(Stateless):
        def select(self, state, context, /, *, rng):
            return Selection(context.round, context.client[:1])  # None in a scenario with one server

    monkeypatch.setitem(policies(), "broken", Entry(Broken, "", ""))
    monkeypatch.setitem(policies(), "everywhere", Entry(Everywhere, "", ""))
    found = line_up("rbcs-f/table-1", ["all", "random", "rbcs-f:V=5"])
    assert "everywhere" in found.policies
    assert (found.policies.count("random"), found.policies[-1]) == (1, "rbcs-f:V=5")  # one beside all comes once
    assert found.left_out["broken"].startswith("raises TypeError(\"'NoneType' object is not subscriptable\") in line ")
    assert found.left_out["broken"].endswith("test_line_up.py")
    with pytest.raises(ConfigurationError, match="policy broken cannot run in rbcs-f/table-1: raises TypeError"):
        line_up("rbcs-f/table-1", ["random", "broken"])
    with pytest.raises(ConfigurationError, match="policy everywhere cannot run in cocs/mnist: a client was chosen on"):
        line_up("cocs/mnist", ["random", "everywhere"])
    # Interrupts are the user's.
    monkeypatch.setattr(Broken, "select", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        line_up("rbcs-f/table-1", ["all"])
    for command in (("simulate", "cocs/mnist"), ("compare", "--scenario", "cocs/mnist")):
        fails(2, "policy everywhere cannot run in cocs/mnist", *command, "--policy", "everywhere", "--rounds", 3)


def test_the_rate_fits_many_clients():
    found = line_up("traces/devices", ["rbcs-f", "random"], clients=10_000)
    assert found.settings == {"round_interval_s": "1800", "num_clients": "10000", "cohort_size": "200"}
    assert (found.rounds, found.rate) == (336, 0.01)
    policy = make_policy(found.policies[0])
    assert policy.beta == 0.01
    network = make_scenario("traces/devices", found.settings)
    at = Streams(0).at
    context, outcome = network.observe(network.init(rng=at("environment-init")), 1, rng=at("environment", 1))
    expected = 200 * 0.01 * 336 / (6.0 * outcome.expected_time_s[context.available].mean())
    assert abs(policy.V - expected) < 0.05 * expected
    assert found.policies[1] == "random"


def test_what_is_given_stays():
    found = line_up(
        "traces/devices",
        ["rbcs-f:V=3", "rbcs-f:beta=0.001", "rbcs-f:beta=0.001,V=2"],
        clients=1000,
        rounds=50,
        settings={"cohort_size": "5", "round_interval_s": "0"},
    )
    assert found.settings == {"round_interval_s": "0", "cohort_size": "5", "num_clients": "1000"}
    assert found.policies == ["rbcs-f:V=3,beta=0.0025", "rbcs-f:beta=0.001", "rbcs-f:beta=0.001,V=2"]
    assert (found.rounds, found.rate) == (50, 0.0025)
    found = line_up("traces/devices", ["rbcs-f", "random"], clients=1000, beta=0.004)
    assert (make_policy(found.policies[0]).beta, found.rate) == (0.004, 0.004)


def test_a_policy_in_focus_may_be_given_the_rate_of_the_scenario():
    policies = ["random", "rbcs-f:V=3", "floor:slack=1"]
    found = line_up("traces/devices", policies, clients=1000, focus="rbcs-f:V=3")
    assert found.focus == found.policies[1] == "rbcs-f:V=3,beta=0.01"
    assert line_up("traces/devices", policies, clients=1000, focus="RBCS-F:v=3").focus == found.focus
    assert line_up("traces/devices", policies, clients=1000, focus=Floor(slack=1)).focus == "floor:slack=1,beta=0.01"
    with pytest.raises(ConfigurationError, match="--focus is 'rbcs-f:V=30', which does not take part"):
        line_up("traces/devices", ["rbcs-f:V=3"], clients=1000, focus="rbcs-f:V=30")


def test_a_scenario_of_another_package_need_not_count_its_clients(monkeypatch):
    @dataclass(frozen=True, slots=True)
    class Fixed:
        cohort_size: int = 8

    monkeypatch.setitem(scenarios(), "fixed", Entry(Fixed, "", ""))
    with pytest.raises(UnknownNameError, match="num_clients"):
        line_up("fixed", ["random"], clients=20)


def test_where_the_papers_values_fit_they_stay():
    found = line_up("rbcs-f/table-1", ["rbcs-f", "p3:V=5", "random"])
    assert found.policies == ["rbcs-f", "p3:V=5", "random"]
    assert (found.settings, found.rounds, found.rate) == ({}, 200, 0.15)
    assert line_up("rbcs-f/table-1", ["rbcs-f"], beta=0.1).policies == ["rbcs-f:beta=0.1"]


def test_rounds_are_the_scenarios_own():
    for scenario, trained, untrained in (("cocs/cifar-10-geometric", 200, 1000), ("traces/devices", 336, 336)):
        assert line_up(scenario, ["random"]).rounds == trained
        assert line_up(scenario, ["random"], is_trained=False).rounds == untrained
    assert line_up(scenario, ["random"], rounds=7).rounds == 7


def test_named_policies_that_cannot_run_may_be_left_out():
    wanted = ["random", "rbcs-f:V=5", "cocs"]
    with pytest.raises(ConfigurationError, match="RBCSF selects for one server"):
        line_up("cocs/mnist", wanted)
    found = line_up("cocs/mnist", wanted, must_run=False)
    assert found.policies == ["random", "cocs"]
    assert found.left_out == {"rbcs-f:V=5": "RBCSF selects for one server; this federation has 3"}
    # What is wrong everywhere is an error still.
    for text in ("unknown", "cocs:nothing=1"):
        with pytest.raises(UnknownNameError):
            line_up("cocs/mnist", [text], must_run=False)


def test_a_large_cohort_is_bounded():
    assert line_up("traces/devices", ["random"], clients=60_000).settings["cohort_size"] == "1000"
    assert line_up("traces/devices", ["random"], clients=3).settings["cohort_size"] == "1"
    assert line_up("rbcs-f/table-1", ["random"], clients=400).settings["cohort_size"] == "80"


def test_wrong_options_are_named():
    for option in ("beta", "rounds", "clients"):
        with pytest.raises(ConfigurationError, match=f"{option} is 0"):
            line_up("rbcs-f/table-1", ["all"], **{option: 0})
