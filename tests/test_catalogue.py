"""Policies and scenarios by name, parameters as text, and plug-ins."""

import dataclasses
import json
import sys
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pytest

from commands import call
from fedroster import RBCSF, catalogue
from fedroster.catalogue import Entry, make_policy, make_scenario, policies, scenarios
from fedroster.core.errors import ConfigurationError, FedrosterError, PluginWarning, UnknownNameError
from fedroster.lab.compare.line_up import Asked, line_up
from fedroster.lab.task import Task
from fedroster.lab.trials.store import read_json
from fedroster.networks import FlatNetwork
from fedroster.types import Selection, Stateless


@pytest.mark.parametrize("name", sorted(policies() | scenarios()))
def test_each_is_made_from_its_name_and_its_defaults_as_text(name):
    def text_of(value):
        return "/".join(map(str, value)) or "()" if isinstance(value, tuple) else str(value)

    entry = (policies() | scenarios())[name]
    shown = {parameter: text_of(value) for parameter, value in entry.parameters().items()}
    if name in policies():
        text = ",".join(f"{parameter}={value}".replace("=None", "=auto") for parameter, value in shown.items())
        assert make_policy(f"{name}:{text}") == make_policy(name) == entry.make()
    else:
        assert make_scenario(name, shown) == make_scenario(name) == entry.make()
    assert entry.summary
    assert entry.origin


def test_values_are_read_as_their_types():
    policy = make_policy(" rbcs-f : V = 50 , beta=1e-1,schedule=lemma-1,,delta=.5,R=2,L=3,S=1,")
    assert policy == RBCSF(V=50.0, beta=0.1, schedule="lemma-1", delta=0.5, R=2.0, L=3.0, S=1.0)
    assert type(policy.V) is float
    assert make_policy("rbcs-f:") == RBCSF()
    network = make_scenario(
        "rbcs-f/table-1",
        {"num_clients": "80", "log_base": "e", "train_time_s": "1/2", "cold_start_s": "0/0.5", "snr": "10/1e3"},
    )
    assert network == FlatNetwork(
        num_clients=80, log_base="e", train_time_s=(1.0, 2.0), cold_start_s=(0.0, 0.5), snr=(10.0, 1000.0)
    )
    assert type(network.num_clients) is int


NETWORK = "rbcs-f/table-1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rbcs-f:V=fast", "V is 'fast'; expected a number"),
        ("rbcs-f:beta=1.5", "beta"),
        ("rbcs-f:schedule=constnat", "lemma-1"),
        ("rbcs-f:V", "name=value"),
        ("rbcs-f:=5", "name=value"),
        ("rbcs-f:V=5,V=20", "twice"),
        ("participation-weights:policy=rbcs-f/random", "'policy' is given twice"),
        ("random/rbcs-f", "expected 'random', which goes around none"),
        ({"num_clients": "40.5"}, "num_clients is '40.5'; expected a whole number"),
        ({"log_base": "10"}, "log_base"),
        ({"snr": "1/x/3/4"}, "snr"),
    ],
    ids=str,
)
def test_bad_values(text, said):
    """Of a policy, written as text, and of a scenario's settings."""
    with pytest.raises(ConfigurationError, match=said) as caught:
        make_policy(text) if isinstance(text, str) else make_scenario(NETWORK, text)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FedrosterError)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_scenario("cocs/mnist:budget=7"), "Did you mean 'cocs/mnist' with --set budget=7"),
        (lambda: make_policy("no_such_package.Mine"), "PYTHONPATH"),
        (lambda: make_policy(""), "unknown policy ''"),
        (lambda: make_policy("random:V=1"), "Known: none"),
    ],
)
def test_unknown_names_name_the_nearest(make, message):
    with pytest.raises(UnknownNameError, match=message) as caught:
        make()
    assert isinstance(caught.value, LookupError)


@dataclass(frozen=True, slots=True)
class Favourites(Stateless):
    """The first clients, always.

    More text.
    """

    eager: bool = False
    order: tuple[int, ...] = (1, 2)
    mode: Literal["a", "b"] = "a"
    weights: tuple[float, ...] = field(default_factory=lambda: (0.5,))

    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.flatnonzero(context.available)[: context.cohort_size])


@dataclass(frozen=True, slots=True)
class Needy(Stateless):
    """Has no default."""

    size: int


class Point:
    def __init__(self, name, loaded):
        self.name, self.loaded, self.value = name, loaded, f"some.where:{name}"

    def load(self):
        return self.loaded


@pytest.fixture
def plugins(monkeypatch):
    """Entry points of other packages; the catalogue forgets them afterwards."""
    small = dataclasses.make_dataclass("Small", [], bases=(FlatNetwork,), frozen=True)
    groups = {
        "fedroster.policies": [Point("favourites", Favourites), Point("needy", Needy)],
        "fedroster.scenarios": [
            Point("mine/small", Entry(FlatNetwork, "a network", "nowhere")),
            Point("mine/plain", small),
        ],
    }
    monkeypatch.setattr(catalogue, "entry_points", lambda *, group: groups[group])
    for cached in (policies, scenarios):
        cached.cache_clear()
    yield
    for cached in (policies, scenarios):
        cached.cache_clear()


@pytest.mark.usefixtures("plugins")
def test_plugins_are_found_beside_what_is_built_in_and_made_from_text():
    assert {"random", "rbcs-f", "favourites", "needy"} <= set(policies())
    assert {"rbcs-f/table-1", "mine/small", "mine/plain"} <= set(scenarios())
    entry = policies()["favourites"]
    assert (entry.summary, entry.source) == ("The first clients, always.", "some.where:favourites")
    assert entry.parameters() == {"eager": False, "order": (1, 2), "mode": "a", "weights": (0.5,)}
    assert policies()["needy"].parameters() == {"size": None}
    made = make_policy("favourites:eager=True,order=3/4,mode=b,weights=1/2.5")
    assert made == Favourites(eager=True, order=(3, 4), mode="b", weights=(1.0, 2.5))
    assert make_policy("favourites:eager=false") == Favourites()
    assert make_policy("needy:size=3") == Needy(3)
    with pytest.raises(ConfigurationError, match="parameter of policy needy 'size' has no default"):
        make_policy("needy")
    with pytest.raises(ConfigurationError, match="eager is 'yes'; expected true or false"):
        make_policy("favourites:eager=yes")
    with pytest.raises(UnknownNameError, match="Did you mean 'favourites'"):
        make_policy("favorites")
    assert make_scenario("mine/small", {"num_clients": "4"}) == FlatNetwork(num_clients=4)


@pytest.mark.usefixtures("plugins")
def test_a_plug_ins_entry_says_what_commands_do_with_it(monkeypatch, tmp_path):
    """The same fields decide for our own scenarios: no command and no study knows one of them by its name."""
    entry = dataclasses.replace(
        scenarios()["mine/small"],
        rounds=7,
        untrained_rounds=9,
        settings={"num_clients": "12"},
        policies=("p3",),
        compared=("random", "round-robin"),
    )
    monkeypatch.setitem(scenarios(), "mine/small", entry)
    for is_trained, rounds in ((True, 7), (False, 9)):
        found = line_up("mine/small", Asked(["random"], task=Task() if is_trained else None))
        assert (found.rounds, found.settings) == (rounds, {"num_clients": "12"})
    played = call("simulate", "mine/small", "--rounds", 2, "--json")
    assert [row["policy"] for row in json.loads(played.stdout)] == ["p3"]
    call("compare", "--scenario", "mine/small", "--task", "none", "--seeds", 0, "--out", tmp_path)
    settings = read_json(tmp_path / "settings.json")
    assert (settings["policies"], settings["rounds"]) == (["random", "round-robin"], 9)


class Missing(Point):
    def load(self):
        raise ModuleNotFoundError("No module named 'gone'", name="gone")


class Script(Point):
    """A module that is a program, too, and ends as one."""

    def load(self):
        print("done")
        sys.exit(7)


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (Script("script", None), r"'script' cannot be loaded \(SystemExit\(7\)\)"),
        (Missing("gone", None), r"'gone' cannot be loaded \(ModuleNotFoundError\(\"No module named 'gone'\"\)\)"),
        (Point("random", Favourites), "the name 'random' is taken"),
        (Point("my:own", Favourites), "the name 'my:own' has one of ':,=/'"),
        (Point("nothing", None), "'nothing' cannot be loaded"),
        (Point("plain", object), "'plain' cannot be loaded"),
        (Point("named", Entry("gone.away.Policy", "a policy", "nowhere")), "'named' cannot be loaded"),
    ],
    ids=["script", "missing", "taken", "reserved", "none", "no dataclass", "named only"],
)
@pytest.mark.usefixtures("plugins")
def test_a_plugin_that_cannot_be_used_costs_the_others_nothing(monkeypatch, capsys, point, reason):
    points = [point, Point("favourites", Favourites)]
    monkeypatch.setattr(catalogue, "entry_points", lambda *, group: points)
    with pytest.warns(PluginWarning, match=reason):
        found = policies()
    assert found.keys() == catalogue.POLICIES.keys() | {"favourites"}
    assert found["random"] is catalogue.POLICIES["random"]
    assert make_policy("favourites") == Favourites()
    assert capsys.readouterr().out == ""  # nothing of theirs among results


@pytest.mark.usefixtures("plugins")
def test_parameters_of_plugins_are_listed_whatever_they_are(monkeypatch):
    fields = [("order", tuple, ("a", "b")), ("none", tuple, ()), ("file", object, range(2))]
    odd = dataclasses.make_dataclass("Odd", fields, bases=(Stateless,), frozen=True, namespace={"__doc__": "Odd."})
    monkeypatch.setattr(
        catalogue, "entry_points", lambda *, group: [Point("odd", odd)] * (group == "fedroster.policies")
    )
    shown, rows = (call("list", "policies", each).stdout for each in ("--long", "--json"))
    assert "order=a/b,none=(),file=range(0,2)" in "".join(shown.split())
    assert json.loads(rows)["policies"][-1]["parameters"] == {"order": ["a", "b"], "none": [], "file": "range(0, 2)"}


def test_a_class_is_named_by_its_module():
    made = make_policy("benchmarks.floor.NoPrices:beta=0.1")
    assert (type(made).__name__, made.beta, made.factor) == ("NoPrices", 0.1, 0.0)
    assert "benchmarks.floor.NoPrices" not in policies()
    with pytest.raises(UnknownNameError, match=r"parameter of policy .*NoPrices 'price'"):
        make_policy("benchmarks.floor.NoPrices:price=1")
    for path in ("gone.away.Policy", "fedroster.policies.floor.Ceiling", "fedroster.policies.floor.Literal", ".x"):
        with pytest.raises(UnknownNameError, match=f"policy '{path}' cannot be imported"):
            make_policy(path)
