"""Errors, checks, units, ranges of rows, and the values that travel through a round."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedroster.core import errors, parallel
from fedroster.core.errors import (
    ConfigurationError,
    FedrosterError,
    InvalidInputError,
    MissingDependencyError,
    SelectionError,
    UnknownNameError,
)
from fedroster.core.problem import (
    Feedback,
    Outcome,
    ProblemSpec,
    RoundContext,
    Selection,
    check_context,
    check_selection,
)
from fedroster.core.protocols import missing_signals, wants_losses
from fedroster.policies import COCS, E3CS, OptimalClientSampling, Uniform

SPEC = ProblemSpec(num_clients=3, cohort_size=2, num_features=2)


def context_of(**changes):
    values = {"round": 1, "features": np.ones((3, 2)), "available": np.ones(3, np.bool_), "cohort_size": 2}
    return RoundContext(**(values | changes))


@pytest.mark.parametrize(
    ("builtin", "names"),
    [
        (ValueError, "ConfigurationError InfeasibleError InvalidInputError FeedbackError StateFileError"),
        (LookupError, "UnknownNameError"),
        (RuntimeError, "SelectionError"),
        (ImportError, "MissingDependencyError"),
    ],
)
def test_every_error_has_one_root_and_a_builtin(builtin, names):
    for name in names.split():
        assert issubclass(getattr(errors, name), FedrosterError)
        assert issubclass(getattr(errors, name), builtin)


def test_unknown_names_come_with_the_nearest():
    error = UnknownNameError.of("policy", "rbcsf", ["rbcs-f", "random", "fedcs"])
    assert str(error) == "unknown policy 'rbcsf'. Did you mean 'rbcs-f'? Known: fedcs, random, rbcs-f."
    assert str(UnknownNameError.of("client", "zzz", ["a"])) == "unknown client 'zzz'. Known: a."
    assert str(UnknownNameError.of("client", "zzz", [])) == "unknown client 'zzz'. Known: none."


def test_missing_dependencies_say_what_to_install(monkeypatch, tmp_path):
    error = MissingDependencyError.of("torch", "train")
    assert str(error).endswith(f"run pip install '.[train]' in {Path(__file__).parents[2]}")
    assert "'torch'" in str(error)
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "site-packages" / "fedroster" / "core" / "errors.py"))
    said = str(MissingDependencyError.of("torch", "train"))  # of a wheel that is on no index
    assert all(f"{package}>=" in said.partition("run pip install ")[2] for package in ("torch", "scikit-learn"))
    assert "fedroster" not in said


@pytest.mark.parametrize("wrong", [{"num_clients": 0}, {"num_features": 10_001}, {"num_servers": 2**31}])
def test_bad_problems(wrong):
    with pytest.raises(ConfigurationError, match="expected an integer"):
        replace(SPEC, **wrong)


def test_good_contexts_pass():
    check_context(context_of(), SPEC)
    check_context(context_of(features=np.full((3, 2), -2.5)), SPEC)  # a regression needs no sign
    check_context(context_of(available=np.zeros(3, np.bool_)), SPEC)
    rows = np.array([2, 0])
    check_context(context_of(features=np.ones((2, 2)), available=np.ones(2, np.bool_), client=rows), SPEC)
    away = np.array([[1.0, 1.0], [math.nan, math.inf], [1.0, 1.0]])
    check_context(context_of(features=away, available=np.array([True, False, True])), SPEC)
    check_context(context_of(features=np.full((3, 2), 1.7e308)), SPEC)  # their sum overflows; they do not


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.ones((3, 3))}, r"features have shape \(3, 3\); expected \(3, 2\), \(links, features\)"),
        ({"features": np.ones(3)}, r"features have shape \(3,\)"),
        ({"features": np.ones((2, 2))}, r"features have shape \(2, 2\)"),
        ({"features": np.array([[1, 1], [1, math.nan], [1, 1]])}, r"features of row 1 are \[1\.0, nan\]"),
        ({"features": np.array([[1, 1], [1, 1], [math.inf, 1]])}, r"features of row 2 are \[inf, 1\.0\]"),
        ({"features": np.array([[1, -math.inf], [1, 1], [math.inf, 1]])}, r"features of row 0 are \[1\.0, -inf\]"),
        ({"available": np.ones(3)}, r"available has type float64 and shape \(3,\); expected booleans"),
        ({"available": np.ones((3, 1), np.bool_)}, r"shape \(3, 1\); expected booleans of shape \(links,\)"),
        ({"features": np.ones((2, 2)), "available": np.ones(2, np.bool_)}, "has 2 rows and names no clients"),
        ({"client": np.array([0, 1, 3])}, "client of row 2 is 3; expected 0 <= client < 3"),
        ({"client": np.array([0, -1, 2])}, "client of row 1 is -1"),
        ({"client": np.array([0, 1])}, r"client has shape \(2,\); expected integers of shape \(3,\)"),
        ({"client": np.array([0.0, 1.0, 2.0])}, "expected integers"),
        ({"server": np.array([0, 1, 0])}, "server of row 1 is 1; expected 0 <= server < 1"),
    ],
)
def test_bad_contexts(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        check_context(context_of(**changes), SPEC)


def test_budgets_are_kept():
    """Qu et al. 2021, Eq. 10b."""
    context = context_of(
        client=np.array([0, 1, 2]),
        server=np.array([0, 0, 1]),
        cost=np.array([1.0, 1.5, 9.0]),
        budget=np.array([2.0, 10.0]),
    )
    check_selection(Selection(1, np.array([0, 2])), context, fills_cohort=False)
    with pytest.raises(SelectionError, match=r"server 0 spends 2\.5; expected at most its budget 2"):
        check_selection(Selection(1, np.array([0, 1])), context, fills_cohort=False)
    with pytest.raises(SelectionError, match="server 0 spends nan; expected at most its budget 2"):
        check_selection(
            Selection(1, np.array([0])), replace(context, cost=np.array([math.nan, 1.0, 1.0])), fills_cohort=False
        )


def test_who_leaves_during_a_wait_does_not_respond():
    times_s = np.array([1.0, 2.0, 3.0])
    outcome = Outcome(times_s, times_s, times_s / 2, np.array([True, True, False]), stay_s=np.array([4.0, 4.0, np.inf]))
    assert outcome.after(2.0).responds.tolist() == [True, True, False]
    assert outcome.after(2.5).responds.tolist() == [True, False, False]
    assert outcome.responds.tolist() == [True, True, False]
    np.testing.assert_array_equal(outcome.after(2.5).exchange_time_s, times_s)
    always = replace(outcome, stay_s=None)
    assert always.after(1e9) is always


def test_num_threads_is_configurable(monkeypatch):
    for value, expected in (("3", 3), ("0", None), ("many", None), ("", None), ("\u00b2", None)):
        monkeypatch.setenv("FEDROSTER_NUM_THREADS", value)
        found = parallel.num_threads.__wrapped__()
        assert found == expected if expected else found >= 1


def test_a_part_of_feedback_keeps_every_column():
    whole = Feedback(
        round=4,
        client=np.array([5, 2, 9]),
        features=np.arange(6.0).reshape(3, 2),
        status=np.array([0, 1, 2], np.uint8),
        exchange_time_s=np.array([1.0, 2.0, np.nan]),
        server=np.array([1, 0, 1]),
        loss=np.array([0.1, 0.2, np.nan]),
        squared_loss=np.array([0.01, 0.05, np.nan]),
        signature=np.array([[0.5, 1.5], [np.nan, np.nan], [2.5, 3.5]]),
        num_samples=np.array([10.0, 20.0, np.nan]),
        staleness=3,
    )
    names = [name for name in Feedback.__dataclass_fields__ if name not in ("round", "staleness")]
    for rows in (np.array([2, 0]), np.array([False, True, False]), np.zeros(0, np.int64)):
        part = whole.rows(rows)
        assert (part.round, part.staleness) == (4, 3)
        for name in names:
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[rows], err_msg=name)
    plain = Feedback(4, whole.client, whole.features, whole.status, whole.exchange_time_s).rows(np.array([1]))
    assert (plain.server, plain.loss, plain.squared_loss, plain.num_samples, plain.signature) == (None,) * 5


def test_losses_are_measured_only_when_asked_for():
    class Asks(Uniform):
        wants_losses = True

    assert wants_losses(Asks())
    assert missing_signals(Asks(), losses=False, contexts=False, deadline=False) == ("losses",)
    assert missing_signals(Asks(), losses=True, contexts=False, deadline=False) == ()
    assert missing_signals(E3CS(), losses=False, contexts=False, deadline=False) == ("a deadline",)
    assert missing_signals(COCS(), losses=False, contexts=False, deadline=False) == ("contexts",)
    lacks = missing_signals(OptimalClientSampling(), losses=False, contexts=False, deadline=False)
    assert lacks == ("losses", "norms of updates")
    assert not wants_losses(Uniform())
