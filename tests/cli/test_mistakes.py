"""Typical mistakes, the message that a person gets for each, and options that several commands share."""

import json
import math
import shlex
import time

import pytest

from commands import call, fails
from fedroster import RBCSF, Floor, Group, Rules, Selector, compare, federate, simulate, simulate_many
from fedroster.cli.options import Training, read_seeds
from fedroster.cli.terminal import print_json
from fedroster.core.errors import ConfigurationError

TABLE1 = "simulate rbcs-f/table-1"
MISTAKES = [
    # what is typed, and a part of what is said
    ("simulat rbcs-f/table-1", "No such command 'simulat'."),
    ("simulate rbcs-f/table-2", "unknown scenario 'rbcs-f/table-2'. Did you mean 'rbcs-f/table-1'?"),
    ("simulate mnist", "unknown scenario 'mnist'. Did you mean 'cocs/mnist'?"),
    (f"{TABLE1} --policy rbcs", "unknown policy 'rbcs'. Did you mean 'rbcs-f'?"),
    (f"{TABLE1} --policy rbcs-f:betta=0.1", "unknown parameter of policy rbcs-f 'betta'. Did you mean 'beta'?"),
    (f"{TABLE1} --policy cocs", "policy cocs cannot run in rbcs-f/table-1: "),
    (f"{TABLE1} --policy my_package.Mine", "policy 'my_package.Mine' cannot be imported"),
    (f"{TABLE1} --set num_client=4", "'num_client'. Did you mean 'num_clients'?"),
    (f"{TABLE1} --set num_clients=100", "beta = 0.15 cannot be met: 100 clients x 0.15 = 15 places"),
    (f"{TABLE1} --set noise=1 --set noise=0", "setting 'noise' is given twice"),
    (f"{TABLE1} --engine spark", "Invalid value for '--engine'"),
    (f"{TABLE1} --ray-address auto", "--ray-address is 'auto' and --engine 'local'; expected --engine ray with it"),
    ("compare --task mnist", "unknown task 'mnist'. Did you mean 'mnist-logistic'?"),
    (f"{TABLE1} --policy floor:beta=15%", "beta is '15%'; expected a number; 15% is 0.15"),
    (f"{TABLE1} --set availability=50", "availability is 50.0; expected a finite number >= 0 and <= 1 (50 % is 0.5)"),
    ("plan rbcs-f/table-1 --every-client 5 --rounds-under 9s", "(5 % is 0.05)"),
    (f"{TABLE1} --policy 'rbcs-f(V=20)'", "unknown policy 'rbcs-f(V=20)'. Did you mean 'rbcs-f:V=20'?"),
    (f"{TABLE1} --policy 'rbcs-f V=20'", "Did you mean 'rbcs-f:V=20'?"),
    (f"{TABLE1} --policy 'rbcs-f:V=20 beta=0.1'", "V is '20 beta=0.1'; expected a number; parameters are separated by"),
    ("compare --policies random floor", "several values of one option are separated by commas"),
    ("compare --partition dirichlet", "partition is 'dirichlet'; expected dirichlet:GAMMA_1, labels:NUMBER or iid"),
    ("compare --target 90", "target accuracy is 90.0; expected"),
    ("compare --policies ,", "--policy is ','; expected all, or names"),
    ("reproduce rbcs-f --training-seeds 0-1", "--training-seeds is given, and --scale is not"),
    ("compare --focus floot", "--focus is 'floot', which does not take part; expected one of floor, rbcs-f:V=5"),
    ("compare --clients 10 --set num_clients=10", "--clients is 10 and --set num_clients=10; expected one"),
    ("compare --scenario cocs/mnist --policy floor", "selects for one server; this federation has 3"),
    ("compare --out FILE", "which is a file; expected a folder"),
    ("compare --out FILE/deeper", "is a file; expected a folder"),
    ("reproduce rbcs-f --seeds 0-1 --out FILE", "which is a file; expected a folder"),
    ("reproduce rbcsf", "unknown paper 'rbcsf'. Did you mean 'rbcs-f'?"),
    ("reproduce rbcs-f --figure 9", "unknown figure of rbcs-f '9'"),
    ("reproduce rbcs-f --figure 2 --figure alfa", "Did you mean 'alpha'?"),
    (f"{TABLE1.replace('rbcs-f/table-1', 'traces/devices')} --set traces=~no-such-user/a", "there is no such home"),
    ("plan traces/devices --every-client 5% --rounds-under 9s --set traces=~no-such-user/a", "no such home"),
    ("reproduce rbcs-f --seeds 3", "seeds are [3]; expected at least two different ones"),
    ("compare --again --out runs/nowhere", "runs/nowhere holds no comparison; expected what `fedroster compare` wrote"),
    ("list polices", "unknown part of the catalogue 'polices'. Did you mean 'policies'?"),
    ("data fetch fashion", "unknown data set 'fashion'. Did you mean 'fashion-mnist'?"),
    ("data fetch digits", "Digits ships with a package; expected a data set that has files"),
]


@pytest.mark.parametrize(("typed", "said"), MISTAKES)
def test_what_is_said(typed, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "file").write_text("kept")
    message = fails(2, said, *shlex.split(typed.replace("FILE", "file"))).stderr
    assert not any(mark in message for mark in ("━", "left"))  # no bar is drawn before the arguments are checked
    assert [path.name for path in tmp_path.iterdir()] == ["file"]  # nothing was begun


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Selector(Floor(), cohort=2), r"Selector\(\) got .* 'cohort'. Did you mean 'cohort_size'"),
        (lambda: Selector(Floor(), cohort_size=1, clients=["a"]).observe(1, times={}), "Did you mean 'times_s'"),
        (lambda: Selector(Floor(), cohort_size=1, clients=["a"]).select(place=1), "unexpected .* 'place'"),
        (lambda: RBCSF(v=20), "Did you mean 'V'"),
        (lambda: Rules(most_per_week=3), "Did you mean 'most_per_window'"),
        (lambda: compare(["random"], target=0.8), r"compare\(\) got .* 'target'. Did you mean 'target_accuracy'"),
        (lambda: simulate(Floor(), None, num_rounds=3), "Did you mean 'rounds'"),
        (lambda: federate(Floor(), None, None, round=3), "Did you mean 'rounds'"),
        (lambda: simulate_many(["random"], seed=3), "Did you mean 'seeds'"),
        (lambda: Group(["a"], minimum=1), "unexpected keyword argument 'minimum'"),
    ],
)
def test_a_wrong_keyword_is_a_type_error_that_says_which_is_meant(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_no_seed_is_counted_as_several_and_nothing_invisible_is_printed(monkeypatch, tmp_path):
    policy = "rbcs-f:V=0.85,beta=0.01,alpha=0.2"
    command = f"compare --policy {policy} --policy random --seeds 0 --rounds 3 --task none".split()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedroster.lab.compare.figures.figures_of", lambda *_: {})
    for columns in ("60", "200"):
        monkeypatch.setenv("COLUMNS", columns)
        shown = call(*command).stdout
        assert all(sign.isprintable() or sign == "\n" for sign in shown)
        assert "1 seed" in shown
        assert "1 seeds" not in shown
        words = "".join(shown.split())
        assert policy in words or columns == "60"


def test_json_has_null_for_what_is_no_number(capsys):
    print_json({"a": math.nan, "b": [math.inf, 1.0, (2, -math.inf)]})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {"a": None, "b": [None, 1.0, [2, None]]}


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [3]), ("0-4,7", [0, 1, 2, 3, 4, 7]), ("5,1", [5, 1]), (" 1 , 2-2 ", [1, 2])]
)
def test_seeds_are_read(text, seeds):
    assert read_seeds(text) == seeds


MALFORMED = ("3-1", "a", "", "1,", "1-", "-1", "1-2-3", "1.5", "0x1", "\u00b2", "1-b", "9" * 5000)
WRONG = dict.fromkeys(MALFORMED, "0-4 or 1,3,5") | dict.fromkeys(("1,1", "0-4,2"), "each seed once")


@pytest.mark.parametrize(
    ("text", "expected"), [*WRONG.items(), *((text, "100,000") for text in ("0-99999999999", "0-9,10-100000"))]
)
def test_seeds_that_are_none(text, expected):
    """A range is checked before it is spelt out: it may be too long for the memory."""
    with pytest.raises(ConfigurationError, match=expected):
        read_seeds(text)


@pytest.mark.parametrize("more", ["--policy floor --policy random", "--rounds 20", "--set noise=0", "--out a.svg"])
def test_rules_alone_are_tried_on_a_log_as_it_is(tmp_path, more):
    (tmp_path / "rules.toml").write_text("most_per_window = 1\nwindow = 8\n")
    asked = ("plan", tmp_path, "--rules", tmp_path / "rules.toml", *more.split())
    fails(2, "expected one --policy at most", *asked)


def test_the_time_is_given_in_minutes(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert Training(minutes=2.0).conditions().stop_at == 1120.0
    assert Training().conditions().stop_at == math.inf
