"""Intervals, tests and verdicts, against SciPy, by hand, and with planted truths and falsehoods."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedroster.core.errors import ConfigurationError
from fedroster.study import statistics
from fedroster.study.statistics import (
    LEVEL,
    Claim,
    Interval,
    band,
    claims_of,
    holm,
    judge,
    mean_interval,
    one_sided_p,
    two_sided_p,
)


def claim(name, *parts):
    return Claim(name, "Fig. 1", f"statement of {name}", "measure", tuple(tuple(map(float, part)) for part in parts))


@pytest.mark.parametrize("seeds", [2, 3, 10, 100])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_intervals_are_students(seeds, confidence):
    x = np.random.default_rng(seeds).normal(3.0, 2.0, seeds)
    ours = mean_interval(x, confidence=confidence)
    low, high = stats.t.interval(confidence, seeds - 1, loc=x.mean(), scale=stats.sem(x))
    assert (ours.mean, ours.low, ours.high) == pytest.approx((x.mean(), low, high), rel=1e-12)


def test_an_interval_by_hand():
    # mean 2, standard deviation 1, t(0.975, 2) = 4.302653
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.mean == 2.0
    assert interval.high - interval.mean == pytest.approx(4.302652729749464 / math.sqrt(3.0))


def test_one_seed_has_no_width():
    assert mean_interval([2.5]) == Interval(2.5, 2.5, 2.5)
    values = np.array([[1.0, 4.0]])
    assert [edge.tolist() for edge in band(values)] == [[1.0, 4.0]] * 3


def test_equal_seeds_have_no_width():
    assert mean_interval([2.5, 2.5, 2.5]) == Interval(2.5, 2.5, 2.5)


def test_a_band_is_an_interval_at_every_point():
    values = np.random.default_rng(0).normal(size=(5, 7))
    bands = np.stack(band(values, confidence=0.9))
    for point in range(7):
        own = mean_interval(values[:, point], confidence=0.9)
        np.testing.assert_allclose(bands[:, point], [own.mean, own.low, own.high], rtol=1e-12)


def test_intervals_cover_as_often_as_they_say():
    samples = np.random.default_rng(1).normal(1.0, 1.0, (2000, 5))
    _, low, high = band(samples.T, confidence=0.9)
    assert np.mean((low <= 1.0) & (high >= 1.0)) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("shift", [-2.0, -0.3, 0.0, 0.3, 2.0])
@pytest.mark.parametrize("seeds", [2, 5, 30])
def test_p_values_are_those_of_a_paired_t_test(seeds, shift):
    before, after = np.random.default_rng(seeds).normal(size=(2, seeds))
    advantage = after - before + shift
    assert one_sided_p(advantage) == pytest.approx(stats.ttest_1samp(advantage, 0.0, alternative="greater").pvalue)
    assert one_sided_p(advantage) == pytest.approx(stats.ttest_rel(after + shift, before, alternative="greater").pvalue)


@pytest.mark.parametrize(
    ("advantage", "p"), [([0.5, 0.5], 0.0), ([-0.5, -0.5], 1.0), ([0.0, 0.0, 0.0], 1.0), ([3.0], 1.0), ([-3.0], 1.0)]
)
def test_p_values_without_spread_or_with_one_seed(advantage, p):
    assert one_sided_p(advantage) == p


# -------------------------------------------------------------------- verdicts


def with_p_values(monkeypatch, values):
    monkeypatch.setattr(statistics, "one_sided_p", lambda part: values[int(part[0])])
    return judge([claim(f"c{index}", [index, index]) for index in range(len(values))])


def test_holm_by_hand(monkeypatch):
    verdicts = with_p_values(monkeypatch, [0.01, 0.04, 0.03, 0.005])
    assert [verdict.adjusted_p for verdict in verdicts] == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [verdict.holds for verdict in verdicts] == [True, False, False, True]
    assert [verdict.p_value for verdict in verdicts] == [0.01, 0.04, 0.03, 0.005]
    assert [verdict.claim.name for verdict in verdicts] == ["c0", "c1", "c2", "c3"]


def test_holm_is_monotone_and_at_most_one(monkeypatch):
    verdicts = with_p_values(monkeypatch, [0.9, 0.0001, 0.4, 0.4, 0.02])
    assert [verdict.adjusted_p for verdict in verdicts] == pytest.approx([1.0, 0.0005, 1.0, 1.0, 0.08])


def test_one_claim_is_not_corrected(monkeypatch):
    (verdict,) = with_p_values(monkeypatch, [0.049])
    assert verdict.adjusted_p == 0.049
    assert verdict.holds


def test_planted_truths_and_falsehoods():
    rng = np.random.default_rng(7)
    verdicts = judge(
        [
            claim("true", rng.normal(1.0, 0.3, 10)),
            claim("opposite", rng.normal(-1.0, 0.3, 10)),
            claim("nothing", rng.normal(0.0, 0.3, 10) - 0.02),
            claim("all parts", rng.normal(1.0, 0.3, 10), rng.normal(2.0, 0.3, 10)),
            claim("one part wrong", rng.normal(1.0, 0.3, 10), rng.normal(-1.0, 0.3, 10), rng.normal(2.0, 0.3, 10)),
        ]
    )
    assert {verdict.claim.name: verdict.word for verdict in verdicts} == {
        "true": "holds",
        "opposite": "does not hold (the opposite is shown)",
        "nothing": "does not hold (not shown)",
        "all parts": "holds",
        "one part wrong": "does not hold (the opposite is shown)",
    }


def test_the_weakest_part_decides():
    strong, weak = (2.0, 2.1, 1.9, 2.0), (0.1, 0.3, -0.1, 0.2)
    (verdict,) = judge([claim("both", strong, weak, strong)])
    assert verdict.p_value == one_sided_p(weak)
    assert verdict.weakest == mean_interval(weak)
    assert not verdict.holds


def test_false_claims_hold_no_more_often_than_the_level():
    """Negative control: six claims without any truth in them; even one "holds" is an error."""
    rng = np.random.default_rng(11)
    studies = 400
    wrong = sum(
        any(verdict.holds for verdict in judge([claim(str(i), rng.normal(size=8)) for i in range(6)]))
        for _ in range(studies)
    )
    assert 0.01 <= wrong / studies <= 0.09  # 0.05 within four standard errors: the correction is not too strict either


def test_a_claim_with_one_part_without_truth_holds_no_more_often_than_the_level():
    rng = np.random.default_rng(12)
    held = sum(judge([claim("c", rng.normal(5.0, 1.0, 8), rng.normal(size=8))])[0].holds for _ in range(400))
    assert held / 400 <= 0.09


def test_true_claims_are_found():
    """The tests have power: an effect of two standard deviations is shown with eight seeds."""
    rng = np.random.default_rng(13)
    verdicts = judge([claim(str(i), rng.normal(2.0, 1.0, 8)) for i in range(20)])
    assert sum(verdict.holds for verdict in verdicts) >= 15


def test_the_level_can_be_chosen():
    advantage = np.random.default_rng(0).normal(1.0, 1.0, 10)
    p = one_sided_p(advantage)
    assert LEVEL == 0.05
    assert not judge([claim("c", advantage)], level=p)[0].holds
    assert judge([claim("c", advantage)], level=p * 1.001)[0].holds


def test_no_claims_no_verdicts():
    assert judge([]) == []


def test_a_claim_needs_a_part():
    with pytest.raises(ConfigurationError, match="claim 'empty' has no part"):
        judge([claim("fine", [1.0, 2.0]), claim("empty")])


# -------------------------------------------------------------------- both sides


@pytest.mark.parametrize("shift", [-2.0, -0.1, 0.0, 0.4])
def test_two_sided_p_is_scipys(shift):
    x = np.random.default_rng(1).normal(shift, 1.0, 8)
    assert two_sided_p(x) == pytest.approx(stats.ttest_1samp(x, 0.0).pvalue, rel=1e-9)
    assert two_sided_p(-x) == pytest.approx(two_sided_p(x))


def test_two_sided_p_of_what_does_not_vary():
    assert two_sided_p([1.0, 1.0]) == two_sided_p([-1.0, -1.0]) == 0.0
    assert two_sided_p([0.0, 0.0]) == 1.0
    assert two_sided_p([3.0]) == 1.0  # one seed shows nothing


def test_adjusted_p_values_by_hand():
    # sorted 0.01, 0.02, 0.03, 0.04: times 4, 3, 2, 1, never falling
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_keeps_the_probability_of_a_false_alarm():
    """Of 40 true null hypotheses, even one is rejected in 5 % of the worlds at most; without correction, in most."""
    rng = np.random.default_rng(3)
    worlds = [[two_sided_p(rng.normal(size=5)) for _ in range(40)] for _ in range(300)]
    assert np.mean([min(holm(world)) < 0.05 for world in worlds]) < 0.08
    assert np.mean([min(world) < 0.05 for world in worlds]) > 0.7


def test_claims_share_a_source_and_say_which_are_ours():
    ups = np.array([1.0, 2.0])
    asked = {"fast": ("it is fast.", "time", [ups, -ups]), "fair": ("it is fair.", "share", iter([ups]))}
    fast, fair = claims_of("Fig. 1", asked, prefix="a-", about="A: ", elsewhere={"fair": "Fig. 2"}, ours=["fair"])
    assert fast == Claim("a-fast", "Fig. 1", "A: it is fast.", "time", ((1.0, 2.0), (-1.0, -2.0)), ours=False)
    assert fair == Claim("a-fair", "Fig. 2", "A: it is fair.", "share", ((1.0, 2.0),), ours=True)
