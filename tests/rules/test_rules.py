"""Rules: who may take part, how they are read, what they make impossible, and that they survive everything."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from commands import call
from federations import answered
from fedroster import RBCSF, FailureRules, Floor, Group, Log, Record, Rules, Selector, Uniform
from fedroster.errors import (
    ConfigurationError,
    FairnessWarning,
    InfeasibleError,
    RoundNotBegunError,
    UnknownNameError,
)
from fedroster.record import verify
from fedroster.record.why import why
from fedroster.rules.feasible import debts_rest
from fedroster.rules.rules import Names

SITES = ["hospital-a", "hospital-b", "hospital-c", "clinic-a", "clinic-b", "laptop"]


def make(rules, *, policy=None, clients=SITES, cohort_size=6, **options):
    return Selector(policy or Uniform(), cohort_size=cohort_size, clients=clients, rules=rules, **options)


# -------------------------------------------------------------------- lists


def test_numbers_are_named_as_text_and_case_counts():
    selector = Selector(Uniform(), cohort_size=9, clients=[1, 12, "A", "a"], rules=Rules(allow=[1, "a"]))
    assert selector.select().clients == (1, "a")


def test_a_name_with_marks_of_patterns_is_named_by_itself():
    assert Names(["site[1]"], {}).entry("site[1]") == "site[1]"
    assert Names(["site[1]"], {}).entry("site1") == "site[1]"  # and as a pattern
    assert Names(["a", "b*", "tag:x"], {"x": ("c*",)}).entry("cat") == "tag:x"
    assert Names([], {}).entry("a") is None


def test_names_that_read_the_same_are_one_name():
    for twin in ("\u00e9", "e\N{COMBINING ACUTE ACCENT}", "\N{ZERO WIDTH SPACE}\u00e9"):
        selector = make(Rules(deny=["e\N{COMBINING ACUTE ACCENT}"]), clients=[twin, "a", "b"])
        assert selector.select().clients == ("a", "b")
        assert twin in selector.excluded()


def test_priorities_hold_when_clients_join_one_by_one():
    selector = make(Rules(priorities={"hospital-*": 1}), clients=SITES[:3], cohort_size=2)
    for client in SITES[3:]:  # there are more slots than clients now and then
        selector.join([client])
        assert all(each.startswith("hospital") for each in selector.select().clients)


def test_a_name_that_is_only_a_clients_word_does_not_count_where_rules_name_clients():
    selector = make(Rules(deny=["laptop"]))
    cohort = selector.select(not_registered=["hospital-a"])
    assert "hospital-a" not in cohort.clients
    assert selector.excluded()["hospital-a"] == "it reports its own name, and the rules name clients"
    selector.rules = Rules(least_separation=1, least_cohort=2)  # names no client
    assert "hospital-a" in selector.select(not_registered=["hospital-a"]).clients


def test_clients_that_rules_exclude_are_owed_nothing():
    selector = make(Rules(deny=["laptop"]), policy=RBCSF(beta=0.3), cohort_size=2)
    answered(selector, 40)
    assert selector.backlog()["laptop"] == 0.0
    assert selector.participation_rates()["laptop"] == 0.0
    assert selector.participation()["laptop"] == 0
    rates = [rate for client, rate in selector.participation_rates().items() if client != "laptop"]
    assert min(rates) > 0.3 - 3 / 40


def test_a_pause_has_its_reason_too_and_a_rule_goes_before_it():
    selector = make(Rules(deny=["b"]), clients=["a", "b", "c"], failures=FailureRules(pause_after=1))
    selector.select()
    selector.observe(1, times_s={"c": 1.0}, failed=["a"])
    assert selector.select().clients == ("c",)
    assert selector.excluded() == {"b": "denied by 'b'", "a": "paused"}


def test_who_has_left_is_not_excluded_any_more():
    selector = make(Rules(deny=["a", "b"]), clients=["a", "b", "c"])
    selector.select()
    selector.leave(["a"])
    selector.leave(["b"], forget=True)
    selector.join(["new"])  # into the slot that b gave back
    assert selector.excluded() == {}


# -------------------------------------------------------------------- numbers in a cohort


def test_a_round_with_too_few_clients_is_not_begun():
    selector = make(Rules(deny=["hospital-*"], least_cohort=3), policy=RBCSF(beta=0.2), cohort_size=3)
    assert len(selector.select().clients) == 3
    before = selector.backlog(), selector.participation(), selector.open_rounds()
    with pytest.raises(RoundNotBegunError, match="round 2 is not begun: 2 clients can take part"):
        selector.select(["laptop", "clinic-a", "hospital-a"])
    assert selector.excluded()["hospital-a"] == "denied by 'hospital-*'"
    assert (selector.backlog(), selector.participation(), selector.open_rounds()) == before
    assert selector.select().round == 3  # one that could not begin is an empty round with a number


def test_time_goes_on_while_a_round_cannot_begin(tmp_path):
    rules = Rules(groups={"clinics": Group(["clinic-*"], least=2)}, most_per_window=1, window=3)
    with pytest.warns(FairnessWarning, match="at most 33 % of the rounds"):
        selector = make(rules, cohort_size=4, observers=[Record(tmp_path)])
    begun = []
    for _ in range(9):
        try:
            begun.append(selector.select().round)
        except RoundNotBegunError:
            assert selector.round not in selector.open_rounds()
    assert begun == [1, 4, 7]
    first = selector.ids_of(Log(tmp_path).find(1).chosen)
    free = next(client for client in SITES if client not in first)
    selector.observers[0].close()
    assert "but round 2 is not begun: group 'clinics' lacks 2 clients" in why(Log(tmp_path), free, 2)
    assert verify(tmp_path, Uniform()).is_whole
    shown = call("log", "show", tmp_path, "--json").stdout
    assert [row["round"] for row in json.loads(shown) if "not_begun" in row] == [2, 3, 5, 6, 8, 9]
    assert selector.participation()["clinic-a"] == 3


def test_deciding_books_nothing():
    selector = make(Rules(least_cohort=3), policy=RBCSF(beta=0.2), cohort_size=3)
    before = repr(selector), selector.backlog(), selector.participation()
    first, again = selector.decide(), selector.decide()
    assert first.chosen.tolist() == again.chosen.tolist()
    assert selector.decide(["laptop"]).not_begun.startswith("round 1 is not begun: 1 client ")
    assert (repr(selector), selector.backlog(), selector.participation()) == before
    assert selector.select().clients == selector.ids_of(first.chosen)


def test_a_client_of_two_groups_stays_out():
    groups = {"a": Group(["hospital-*"], most=2), "b": Group(["*-b"], most=1)}
    selector = make(Rules(groups=groups))
    assert "hospital-b" not in selector.select().clients
    assert selector.excluded()["hospital-b"] == "named by the groups 'a' and 'b'"


def test_priorities_hold_within_groups():
    rules = Rules(groups={"h": Group(["hospital-*"], least=1)}, priorities={"hospital-c": 1, "clinic-*": 2})
    for cohort in map(set, answered(make(rules, cohort_size=2), 20)):
        assert "hospital-c" in cohort
        assert cohort - {"hospital-c"} < {"clinic-a", "clinic-b"}


# -------------------------------------------------------------------- how often


def test_a_clock_that_was_set_back_lets_no_client_in_too_early():
    now = [1000.0]
    selector = make(Rules(least_separation_s=60.0), clients=["a", "b"], cohort_size=1, clock=lambda: now[0])
    (first,) = selector.select().clients
    now[0] = 5.0  # time stands still
    assert {first, *selector.select().clients} == {"a", "b"}
    now[0] += 59.0
    assert selector.select().is_empty
    now[0] += 1.0
    assert len(selector.select().clients) == 1


def test_a_clock_that_leaps_ahead_keeps_nobody_out():
    now = [1000.0]
    rules = Rules(least_separation_s=60.0, most_per_window=2, window="10min")
    selector = make(rules, clients=["a", "b"], cohort_size=2, clock=lambda: now[0])
    now[0] = 3e9  # for one round
    assert len(selector.select().clients) == 2
    now[0] = 1010.0
    assert selector.select().is_empty
    now[0] = 1071.0
    assert len(selector.select().clients) == 2
    now[0] = 1140.0
    assert selector.select().is_empty
    assert selector.excluded()["a"] == "has taken part 2 times in 10min (most_per_window)"
    now[0] = 1700.0
    assert len(selector.select().clients) == 2


def test_what_is_owed_grows_while_a_client_waits_for_its_separation():
    """A rate over all rounds is met although a rule keeps clients out meanwhile, as long as it can be met."""
    clients = [f"c{i}" for i in range(20)]
    selector = make(Rules(least_separation=5), policy=RBCSF(beta=0.1), clients=clients, cohort_size=3)
    answered(selector, 300)
    assert min(selector.participation().values()) >= 0.1 * 300 - max(selector.backlog().values())
    assert max(selector.backlog().values()) < 2.0
    assert min(selector.participation_rates().values()) > 0.09


def test_rules_in_time_are_warned_of_once_by_the_time_between_rounds():
    now = [0.0]
    rules = Rules(groups={"clinics": Group(["clinic-*"], least=2)}, most_per_window=3, window="7d")
    clients = [f"clinic-{number}" for number in range(3)]
    selector = make(rules, clients=clients, cohort_size=2, clock=lambda: now[0] * 86400.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for day in range(40):
            now[0] = float(day)
            with suppress(RoundNotBegunError):
                answered(selector, 1)
    assert ["at most 64 % of the rounds can begin" in str(each.message) for each in said] == [True]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_cannot_be_met_is_owed_for_the_rounds_that_the_rules_leave(restarts, tmp_path):
    with pytest.warns(FairnessWarning, match="least_separation = 5 lets a client take part in 1 of 5"):
        selector = make(Rules(least_separation=5), policy=RBCSF(beta=0.3), cohort_size=2)
    if restarts:
        selector.save(tmp_path / "state.npz")
        selector = Selector.load(tmp_path / "state.npz", selector.policy)
    answered(selector, 60)
    assert max(selector.backlog().values()) < 3.0


# -------------------------------------------------------------------- evaluation


def test_who_may_evaluate():
    selector = make(Rules(deny=["laptop"], least_separation=3, most_participations=1), cohort_size=2)
    cohort = set(selector.select().clients)
    assert set(selector.allowed("evaluation")) == set(SITES) - {"laptop"}  # the cohort's own round goes on
    selector.select()
    assert not cohort & set(selector.allowed("evaluation"))
    assert not cohort & set(selector.allowed("training"))
    assert selector.allowed("evaluation", clients=["laptop", "stranger"], not_registered=["stranger"]) == ()
    assert selector.allowed("evaluation", clients=["stranger"]) == ("stranger",)
    with pytest.raises(ConfigurationError, match="purpose is 'sale'"):
        selector.allowed("sale")


# -------------------------------------------------------------------- malformed


@pytest.mark.parametrize(
    ("table", "error", "text"),
    [
        ({"allow": "a"}, ConfigurationError, "allow is 'a'; expected a list"),
        ({"allow": np.array("a")}, ConfigurationError, r"allow is array\('a'.*; expected a list"),
        ({"deny": [1.5]}, ConfigurationError, "deny holds 1.5"),
        ({"denied": ["a"]}, UnknownNameError, "unknown rule 'denied'. Did you mean 'deny'"),
        ({"allow": ["tag:aproved"], "tags": {"approved": ["a"]}}, UnknownNameError, "Did you mean 'approved'"),
        ({"tags": {"x": ["tag:y"], "y": ["a"]}}, ConfigurationError, "holds another tag"),
        ({"groups": {"g": {"clients": []}}}, ConfigurationError, "names no clients"),
        ({"groups": {"g": {"least": 1}}}, ConfigurationError, "has no clients"),
        ({"groups": {"g": {"clients": ["a"], "least": 3, "most": 2}}}, ConfigurationError, "expected an integer >= 3"),
        ({"groups": {"g": {"clients": ["a"], "max": 2}}}, UnknownNameError, "'max'"),
        ({"priorities": {"a": 1.5}}, ConfigurationError, "priority of 'a'"),
        ({"least_separation_s": float("nan")}, ConfigurationError, "least_separation_s is nan"),
        ({"most_per_window": 2}, ConfigurationError, "expected both or neither"),
        ({"window": 0, "most_per_window": 1}, ConfigurationError, "window is 0"),
        ({"window": "7 days", "most_per_window": 1}, ConfigurationError, "window is '7 days'"),
        ({"least_separation": "2d", "least_separation_s": 1.0}, ConfigurationError, "expected one of them"),
        ({"most_participations": True}, ConfigurationError, "most_participations is True"),
    ],
)
def test_malformed_rules_are_refused(table, error, text):
    with pytest.raises(error, match=text):
        Rules.from_table(table)


@pytest.mark.parametrize("rules", [5, ["a"], {"deny": ["a"]}, "rules.toml"])
def test_what_is_no_rules_is_refused(rules):
    with pytest.raises(ConfigurationError, match=r"expected Rules, such as Rules.load"):
        make(rules)
    selector = make(None)
    with pytest.raises(ConfigurationError, match=r"expected Rules"):
        selector.rules = rules


def test_numbers_are_names_of_tags_and_groups_too():
    rules = Rules(tags={1: ["a"]}, deny=["tag:1"], groups={2: Group(["b"], most=1)})
    assert rules == Rules(tags={"1": ["a"]}, deny=["tag:1"], groups={"2": Group(["b"], most=1)})


def test_rules_that_no_cohort_can_keep_are_refused():
    with pytest.raises(InfeasibleError, match="least_cohort = 7 is more than cohort_size = 6"):
        make(Rules(least_cohort=7))
    groups = {"a": Group(["a*"], least=4), "b": Group(["b*"], least=3)}
    selector = make(Rules(deny=["laptop"]))
    with pytest.raises(InfeasibleError, match="add up to 7"):
        selector.rules = Rules(groups=groups)
    assert selector.rules == Rules(deny=["laptop"])


# -------------------------------------------------------------------- promises


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (Rules(least_separation=4), "least_separation = 4"),
        (Rules(allow=["hospitl-*"]), "no client can take part: the lists exclude all 6 members"),
        (Rules(most_per_window=1, window=4), "a rate of 0.25"),
        (Rules(most_participations=9), "until a client has taken part 9 times"),
        (Rules(groups={"l": Group(["laptop"], least=1)}), "2.5 places a round are owed"),
        (Rules(priorities={"hospital-*": 1}), "3 clients have the highest priority"),
        (
            Rules(groups={"h": Group(["hospital-*", "x"], least=1, most=1)}, deny=["hospital-*"]),
            "group 'h' has 0 clients",
        ),
        (Rules(least_cohort=2, allow=["laptop"]), "the federation has 1 client for one cohort"),
        (Rules(least_cohort=2, least_separation=4), "6 clients, each at most 0.25 times .* at most 75 % of the rounds"),
        (Rules(least_cohort=2, least_separation=6), "which makes 1 place a round, and least_cohort = 2: at most 50 %"),
        (Rules(least_cohort=2, most_participations=4), "at most 12 rounds can begin"),
    ],
)
def test_a_rule_that_makes_a_promise_impossible_says_so(rules, text):
    policy = RBCSF(beta=0.3)
    with pytest.warns(FairnessWarning, match=text):
        make(rules, policy=policy, cohort_size=2)
    selector = make(None, policy=policy, cohort_size=2)
    with pytest.warns(FairnessWarning, match=text):
        selector.rules = rules
    assert selector.rules == rules


def test_rules_that_leave_a_promise_possible_say_nothing():
    groups = {"h": Group(["hospital-*"], least=1, most=2)}
    rules = Rules(
        allow=["hospital-*", "clinic-*"],
        groups=groups,
        least_separation=2,
        most_per_window=2,
        window=4,
        least_cohort=2,
    )
    make(rules, policy=RBCSF(beta=0.3), cohort_size=2)  # a warning would be an error


COUNTRIES = [f"{land}-{number}" for land in ("de", "fr") for number in range(3)]
TWO_OF_EACH = {land: Group([f"{land}-*"], least=2) for land in ("de", "fr")}


@pytest.mark.parametrize(
    ("rules", "share"),
    [
        (Rules(groups=TWO_OF_EACH, most_per_window=3, window=7), 64),
        (Rules(groups=TWO_OF_EACH, least_separation=3), 50),
        (Rules(groups=TWO_OF_EACH, most_per_window=2, window=4, least_separation=3), 50),
    ],
)
def test_members_that_cannot_meet_rules_together_are_told_so(rules, share):
    """Each rule can be met alone: the groups have three clients, and each client may come back."""
    with pytest.warns(
        FairnessWarning, match=f"some rounds cannot begin: group 'de' .* at most {share} % of the rounds"
    ):
        selector = make(rules, policy=Floor(beta=0.3), clients=COUNTRIES, cohort_size=4)
    begun = 0
    for _ in range(140):
        try:
            selector.select()
            begun += 1
        except RoundNotBegunError as error:
            said = str(error)
    assert "lacks" in said
    assert "; kept out: 3 (" in said or "; kept out: 2 (" in said
    assert 0.6 * 1.4 * share <= begun <= 1.4 * share + 2  # time goes on, and no more can begin than was said
    assert len(selector.rules.check(COUNTRIES)) == 2  # of both countries


def test_a_check_asks_how_long_rounds_take_and_who_is_there():
    rules = Rules(groups=TWO_OF_EACH, most_per_window=3, window="7d")
    assert rules.check(COUNTRIES, cohort_size=4, beta=0.3) == ()
    said = rules.check(COUNTRIES, cohort_size=4, beta=0.3, round_s=86400.0)
    assert len(said) == 2
    assert "at most 64 % of the rounds" in said[0]
    assert rules.check(COUNTRIES, round_s=2 * 86400.0) == ()
    rules = Rules(groups=TWO_OF_EACH, least_separation="1h")
    assert rules.check(COUNTRIES, round_s=3600.0) == ()
    assert rules.check(COUNTRIES, beta=0.3, cohort_size=4, round_s=600.0)[-1].startswith("beta = 0.3 cannot be met")
    assert rules.check(COUNTRIES, availability=0.7) == ()
    assert "at most 90 %" in rules.check(COUNTRIES, availability={"fr-1": 0.3, "fr-2": 0.5})[0]
    assert rules.check(COUNTRIES, cohort_size=3)[0].startswith("the groups' least numbers add up to 4")


@pytest.mark.parametrize(
    "wrong",
    [{"cohort_size": 0}, {"beta": 2.0}, {"availability": {"fr-1": np.nan}}, {"availability": "x"}, {"round_s": -1.0}],
)
def test_a_check_of_what_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        Rules(least_separation="1h").check(COUNTRIES, **wrong)


def test_a_selector_finds_out_who_is_rarely_there():
    rules = Rules(groups={"de": Group(["de-*"], least=2)})
    selector = make(rules, clients=COUNTRIES, cohort_size=4)
    for number in range(70):
        try:
            selector.select([each for each in COUNTRIES if number % 5 < 2 or each != "de-2"])
        except RoundNotBegunError:
            pytest.fail("two are always there")
    with pytest.warns(FairnessWarning, match="group 'de' has 2 clients, which makes 1.4 places a round"):
        selector.rules = replace(rules, deny=["de-0"])


def test_a_promise_counts_the_clients_that_the_rules_leave():
    with pytest.raises(InfeasibleError):
        make(None, policy=RBCSF(beta=0.5), cohort_size=2)
    make(Rules(allow=["hospital-a", "laptop"]), policy=RBCSF(beta=0.5), cohort_size=2)


# -------------------------------------------------------------------- files


def test_a_file_is_read_once_and_again_when_it_is_loaded_again(tmp_path):
    text = (
        'allow = ["hospital-*"]\nmost_per_window = 3\nwindow = "7d"\n[groups.h]\nclients = ["hospital-*"]\nmost = 2\n'
    )
    path = tmp_path / "rules.toml"
    path.write_text(text)
    selector = make(Rules.load(path))
    groups = {"h": Group(["hospital-*"], most=2)}
    assert selector.rules == Rules(allow=["hospital-*"], groups=groups, most_per_window=3, window="7d")
    path.write_text('allow = ["laptop"]')
    assert len(selector.select().clients) == 2
    selector.rules = Rules.load(path)
    assert selector.select().clients == ("laptop",)
    path.write_text("allow = [")
    with pytest.raises(ConfigurationError, match="no rules"):
        selector.rules = Rules.load(path)
    assert selector.rules == Rules(allow=["laptop"])


def test_a_file_that_cannot_be_used_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "no-such", "/dev/zero", "a\0b"):
        with pytest.raises(ConfigurationError):
            Rules.load(path)
    for content, match in ((b"", "no rule"), (b"x = 1", "'x'"), (b"a" * 4_000_001, "bytes"), (b"\xff\xfe", "no rules")):
        (tmp_path / "rules.toml").write_bytes(content)
        with pytest.raises(ConfigurationError, match=match):
            Rules.load(tmp_path / "rules.toml")


def test_a_table_of_rules_gives_the_same_rules():
    rules = Rules(
        allow=["a", "tag:t"],
        deny=["b"],
        tags={"t": ["c"]},
        groups={"g": Group(["a"], least=1), "h": Group(["c"], most=2)},
        priorities={"a": 3},
        least_cohort=1,
        most_participations=9,
        most_per_window=2,
        window="2w",
        least_separation=2,
        least_separation_s=1.5,
    )
    assert Rules.from_table(rules.as_table()) == rules
    assert Rules().as_table() == {}
    assert Rules.from_table({}) == Rules()


def test_numbers_of_numpy_are_numbers():
    whole, seconds = np.int64(1), np.float32(2.0)
    limits = {"most_per_window": whole, "window": np.int64(2), "least_separation_s": seconds, "least_cohort": whole}
    rules = Rules(groups={"g": Group(["a"], most=whole)}, priorities={"a": whole}, **limits)
    failures = FailureRules(np.bool_(True), np.int64(2), np.int64(9))
    selector = Selector(Uniform(), cohort_size=2, clients=["a", "b"], rules=rules, failures=failures)
    assert selector.rules == Rules.from_table(rules.as_table()) == rules
    assert len(selector.select().clients) == 2
    assert (rules.longest_rounds, debts_rest(rules, 0.6)) == (2, True)
    with pytest.raises(ConfigurationError, match="priority of 'a'"):
        Rules(priorities={"a": -(10**30)})


# -------------------------------------------------------------------- saved


def test_rules_in_time_are_in_the_record(tmp_path):
    days = iter(np.arange(0.0, 1000.0, 0.5))
    rules = Rules(most_per_window=1, window="3d", least_separation="1d")
    selector = make(
        None, clients=["a", "b", "c"], cohort_size=1, clock=lambda: 86400.0 * next(days), observers=[Record(tmp_path)]
    )
    selector.select()
    selector.rules = rules
    cohorts = [selector.select().clients for _ in range(12)]
    assert [len(cohort) for cohort in cohorts] == [1, 1, 1, 0, 0, 0] * 2
    selector.observers[0].close()
    assert verify(tmp_path, Uniform()).is_whole
    again = Log(tmp_path).selector(Uniform())
    assert again.rules == rules
    assert again.excluded() == selector.excluded()


def test_a_state_is_read_back_whose_clock_was_set_back(tmp_path):
    times_s = iter([0.7, 0.1, 0.4, 0.3, 0.9, 0.2, 0.2, 0.15, 0.5, 0.05])
    selector = make(Rules(least_cohort=1), clients=["a", "b"], clock=lambda: next(times_s))
    for _ in range(10):
        selector.select()
    selector.save(tmp_path / "state.npz")  # sums of these numbers are rounded
    assert Selector.load(tmp_path / "state.npz", Uniform()).round == 10


@pytest.mark.parametrize(
    "given",
    [
        {"rules": Rules(most_participations=2**60)},
        {"rules": Rules(least_separation_s=1e13)},
        {"patience_rounds": 2**60},
        {"failures": FailureRules(pause_after=2**60)},
    ],
)
def test_numbers_that_no_log_holds_are_refused_where_they_are_given(given):
    with pytest.raises(ConfigurationError, match="the settings are impossible"):
        make(**{"rules": None, **given})
    selector = make(None)
    if "failures" not in given:
        with pytest.raises(ConfigurationError):
            setattr(selector, *next(iter(given.items())))


def test_a_forgotten_client_begins_anew():
    selector = make(Rules(most_per_window=1, window=50, least_separation=50), clients=["a", "b"], cohort_size=2)
    selector.select()
    selector.leave(["a"], forget=True)
    selector.join(["a"])
    assert selector.select().clients == ("a",)
