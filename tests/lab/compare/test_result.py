"""What a comparison found, as an object: frames, figures, pages; policies of one's own classes."""

import re
import sys
from dataclasses import dataclass

import numpy as np
import pytest

import fedroster
from fedroster import Floor, Uniform, simulate_many
from fedroster.catalogue import make_policy, policy_text, scenario_text
from fedroster.core.errors import ConfigurationError, MissingDependencyError, UnknownNameError
from fedroster.core.problem import Selection
from fedroster.core.protocols import Stateless
from fedroster.lab.compare.line_up import Asked, line_up
from fedroster.lab.compare.result import Comparison
from fedroster.lab.trials.run import key
from fedroster.lab.trials.trial import Trial


@dataclass(frozen=True, slots=True)
class First(Stateless):
    """The first clients that are there."""

    start: int = 0

    def select(self, state, context, /, *, rng):
        return Selection(context.round, np.flatnonzero(context.available)[self.start :][: context.cohort_size])


First.__module__ = "__main__"  # as in a script or a notebook


@pytest.fixture(scope="module")
def found():
    return fedroster.compare(["random", Floor(), First(start=1)], seeds=[3, 8], rounds=12)


def test_policies_and_seeds_are_columns_of_everything(found):
    assert found.frame.select("policy", "seed").rows() == [
        (text, seed) for text in ("random", "floor", "First:start=1") for seed in (3, 8)
    ]
    assert found.rounds.height == 3 * 2 * 12
    assert set(found.clients.columns) == {"policy", "seed", "client", "chosen", "available"}
    summary = found.summary()
    assert summary["policy"].to_list() == ["random", "floor", "First:start=1"]
    own = found.frame.filter(policy="floor")["mean_round_time_s"]
    assert summary.row(1, named=True)["mean_round_time_s"] == pytest.approx(own.mean())
    assert set(found.contrasts()["against"]) == {"random", "First:start=1"}


def test_a_page_is_that_of_the_users_own_policy(found):
    assert found.settings.focus == "First:start=1"
    assert fedroster.compare(["random", Floor()], seeds=1, rounds=2).settings.focus == "floor"
    asked = fedroster.compare(["random", Floor(), First()], seeds=1, rounds=2, focus=Uniform())
    assert asked.settings.focus == "random"
    with pytest.raises(ConfigurationError, match="--focus is 'oort', which does not take part"):
        fedroster.compare(["random"], seeds=1, rounds=2, focus="oort")


def test_it_shows_itself(found, drawing):
    with drawing():
        assert found.plot().to_dict()["description"] == "Time of a round against the least served"
        assert found.plot("participation").to_dict()["description"] == "Participation per client"
        with pytest.raises(UnknownNameError, match="'queues'"):
            found.plot("queue")
    assert "3 policies in rbcs-f/table-1, 12 rounds, 2 seeds" in repr(found)
    assert "mean_round_time_s" in repr(found)


def test_a_page_and_what_it_is_made_from(found, tmp_path):
    assert found.report(tmp_path / "new") == tmp_path / "new" / "report.html"
    assert "First:start=1" in (tmp_path / "new" / "report.html").read_text()
    found.write(tmp_path / "folder")
    again = Comparison.read(tmp_path / "folder")
    assert again.frame.drop("decision_s").equals(found.frame.drop("decision_s"))


def test_many_simulations_and_the_regret():
    found = fedroster.simulate_many(["random"], "cocs/mnist", seeds=2, rounds=5)
    assert found.settings.policies == ["random", "oracle"]
    assert (found.frame.filter(policy="oracle")["regret"] == 0.0).all()
    flat = fedroster.simulate_many(["random", First()], seeds=1, rounds=5, settings={"num_clients": "12"})
    assert flat.clients["client"].n_unique() == 12
    (row,) = flat.frame.filter(policy="random").to_dicts()
    own = flat.rounds.filter(policy="random")
    assert row["total_time_s"] == own["round_time_s"].sum() == pytest.approx(5 * row["mean_round_time_s"])
    assert row["mean_cohort_size"] == own["cohort_size"].mean()
    assert row["final_mean_backlog"] == own["mean_backlog"][-1]
    counts = flat.clients.filter(policy="random")["chosen"]
    assert (row["min_participation_rate"], row["max_participation_rate"]) == (counts.min() / 5, counts.max() / 5)
    assert row["empty_rounds"] == 0


def test_the_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.delitem(sys.modules, "fedroster.lab.compare.run")
    monkeypatch.delitem(vars(fedroster), "compare", raising=False)
    monkeypatch.setattr(fedroster, "lab", fedroster.lab)  # the import below binds another module here
    monkeypatch.setitem(sys.modules, "polars", None)
    for name in [name for name in sys.modules if name.startswith("fedroster.lab")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingDependencyError, match=r"polars.*'\.\[study\]'"):
        fedroster.compare  # noqa: B018


def test_a_policy_of_the_catalogue_has_its_text_regardless_of_case():
    for text in ("random", "floor:beta=0.1", "rbcs-f:beta=0.1,V=5.0", "fedcs:deadline_s=3.5"):
        assert sorted(re.split("[:,]", policy_text(make_policy(text)))) == sorted(re.split("[:,]", text))
    assert policy_text("RBCS-F:v=5,BETA=0.1") == "rbcs-f:V=5,beta=0.1"
    assert make_policy("RBCS-F:v=5") == make_policy("rbcs-f:V=5")
    assert scenario_text("RBCS-f/Table-1") == "rbcs-f/table-1"
    with pytest.raises(ConfigurationError, match="'V' is given twice"):
        make_policy("rbcs-f:V=5,v=6")


def test_a_policy_without_a_text_is_refused():
    @dataclass(frozen=True)
    class Holds(First):
        weights: object = None

    class Plain(First):
        """No dataclass of its own: it would lose what is set beside the parameters."""

        def __init__(self, extra):
            super().__init__()

    for policy in (Holds(weights=np.ones(3)), Plain(2)):
        with pytest.raises(ConfigurationError, match="cannot be written as text; expected a frozen dataclass"):
            policy_text(policy)
    with pytest.raises(ConfigurationError, match="policy is the class First; expected an instance"):
        policy_text(First)


def test_two_classes_of_this_session_with_one_name_are_not_compared():
    """The second was played in place of the first."""

    def made():
        @dataclass(frozen=True)
        class Own(First):
            x: int = 0

        return Own

    first, second = made(), made()
    line_up("rbcs-f/table-1", Asked(policies=[first(x=1), first(x=2), "random"]))
    for asked in ([first(x=1), second(x=2)], [second(x=1), first(x=1)]):
        with pytest.raises(ConfigurationError, match="two classes of policies are called Own"):
            simulate_many(asked, "rbcs-f/table-1", seeds=1, rounds=1)
        with pytest.raises(ConfigurationError, match="two classes of policies are called Own"):
            line_up("rbcs-f/table-1", Asked(policies=asked[:1], focus=asked[1]))


def test_a_class_that_no_file_holds_is_another_run_whenever_it_is_made(monkeypatch):
    """As in a notebook, where a cell is run again after an edit of it, or of what it calls."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)

    def cell():
        space = {"__name__": "__main__", "First": First, "dataclass": dataclass}
        exec("@dataclass(frozen=True)\nclass Edited(First):\n  pass", space)
        return space["Edited"]

    def run_of(kind):
        return key(Trial("rbcs-f/table-1", policy_text(kind()), 0, 5))

    made, again = cell(), cell()
    assert run_of(made) == run_of(made)
    assert run_of(made) != run_of(again)
