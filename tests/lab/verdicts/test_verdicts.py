"""Verdicts by hand, with planted truths; the share of whole pages with a wrong one; and what a page says first."""

import dataclasses
import math

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError
from fedroster.lab.statistics import LEVEL, Interval, one_sided_p
from fedroster.lab.verdicts.claims_page import claims_sections, counted, headline
from fedroster.lab.verdicts.courses import lacks_at_most
from fedroster.lab.verdicts.verdicts import (
    Chain,
    Claim,
    Part,
    Promise,
    accuracy_gap,
    claims_of,
    corrected,
    gain,
    judge,
    promise,
    threshold,
    time_gap,
    within,
)
from runs import planted_run


def claim(name, *parts):
    made = tuple(one if isinstance(one, Part | Promise) else threshold(np.asarray(one, float)) for one in parts)
    return Claim(name, "Fig. 1", f"statement of {name}", "measure", made)


def word(*parts, **options):
    return judge([claim("c", *parts)], **options)[0].word


def normal(mean, spread=0.3, seeds=10, seed=0):
    return np.random.default_rng(seed).normal(mean, spread, seeds)


def test_all_parts_of_a_claim_must_be_right():
    rng = np.random.default_rng(7)
    parts = {"true": (1.0,), "opposite": (-1.0,), "nothing": (0.0,), "all": (1.0, 2.0), "one wrong": (1.0, -1.0, 2.0)}
    found = judge([claim(name, *(rng.normal(mean, 0.3, 10) for mean in means)) for name, means in parts.items()])
    assert [(one.word, one.part) for one in found] == [
        *(("holds", 0), ("contradicted", 0), ("undecided", 0), ("holds", 1), ("contradicted", 1))
    ]
    assert (found[1].why, found[2].why.startswith("about ")) == ("the opposite is shown", True)


@pytest.mark.parametrize(
    ("lead", "word", "why"),
    [
        (0.02, "holds", ""),
        (0.005, "holds, but small", "less than 1 point"),
        (0.0, "undecided", "less than 1 point either way"),
        (-0.005, "contradicted", "the opposite is shown, but small"),
        (-0.02, "contradicted", "the opposite is shown"),
    ],
)
def test_what_is_below_the_smallest_effect_that_matters(lead, word, why):
    """A margin that only we name contradicts nothing; beside it there is an effect, or there is none."""
    worse = 0.5 + normal(0.0, 0.02)
    noise = normal(0.0, 0.001, seed=1)
    (verdict,) = judge([claim("c", accuracy_gap(worse + lead + noise - noise.mean(), worse))])
    assert (verdict.word, verdict.why, verdict.unit) == (word, why, "points")
    assert verdict.effect.mean == pytest.approx(100 * lead, abs=0.01)
    assert verdict.holds == word.startswith("holds")
    assert (verdict.effect.low > 0.0, verdict.effect.high < 0.0) == (verdict.holds, word == "contradicted")


def panels_of(leads, seeds=40):
    """Accuracy gaps in panels, in points, with a spread of one."""
    rng = np.random.default_rng(3)
    parts = {
        f"panel {i}|": accuracy_gap(0.01 * rng.normal(lead, 1.0, seeds), np.zeros(seeds))
        for i, lead in enumerate(leads)
    }
    return claims_of("Fig. 1", {"c": ("it is higher.", "accuracy, in each panel", parts)})


def test_one_panel_does_not_contradict_a_general_sentence():
    for leads, expected in (
        ((2.0, 2.0, 2.0), ("holds", "")),
        ((2.0, 2.0, -2.0), ("undecided", "the opposite is shown in 1 of 3 panels: panel 2")),
        ((-2.0, -2.0), ("contradicted", "the opposite is shown: in each of 2 panels")),
        ((-2.0,), ("undecided", "the opposite is shown in 1 of 1 panels: panel 0")),
    ):
        (verdict,) = judge(panels_of(leads))
        assert (verdict.word, verdict.why) == expected, leads


def test_the_smallest_effects_of_interest():
    later, more = np.array([100.0, 200.0]), np.array([100.0, 300.0])
    assert time_gap(np.array([95.0, 100.0]), later).surplus == pytest.approx((0.0, 90.0))
    assert time_gap(np.array([100.0, 100.0]), later).slack == pytest.approx((5.0, 105.0))
    assert time_gap(np.array([95.0, 100.0]), later, at_most=0.9).advantage == pytest.approx((-5.0, 80.0))
    assert time_gap(np.array([95.0, 100.0]), later, at_most=0.9).surplus == pytest.approx((-5.0, 80.0))
    assert gain(more, np.array([99.0, 200.0])).surplus == pytest.approx((0.0, 97.0))
    assert gain(more, np.array([100.0, 200.0])).slack == pytest.approx((1.0, 102.0))
    assert accuracy_gap(np.array([0.52]), np.array([0.5])).surplus == pytest.approx((1.0,))


def test_similar_is_an_equivalence_test():
    ratio = normal(1.0, 0.02)
    assert word(*within(ratio, 0.9, 1.1)) == "holds"
    assert word(*within(ratio + 0.3, 0.9, 1.1)) == "contradicted"
    assert word(*within(ratio + 0.1, 0.9, 1.1)) == "undecided"


def test_the_weakest_part_decides():
    strong, weak = (2.0, 2.1, 1.9, 2.05, 2.2, 1.95), (0.1, 0.3, -0.1, 0.2, 0.25, 0.05)
    (verdict,) = judge([claim("both", strong, weak, strong)])
    assert verdict.p_holds == 2 * one_sided_p(weak)  # two chains
    assert (verdict.part, verdict.effect.mean, verdict.test) == (1, pytest.approx(np.mean(weak)), "t")


def test_a_part_against_a_claim_counts_as_one_of_its_parts():
    against = -normal(0.45, 0.3)
    alone, among = (judge([claim("c", *[against] + [normal(9.0)] * others)])[0] for others in (0, 3))
    assert among.p_contradicted == pytest.approx(4 * alone.p_contradicted)


def test_a_promise_is_kept_or_broken_and_costs_other_claims_nothing():
    kept, broken = np.zeros((20, 50), bool), np.zeros((20, 50), bool)
    broken[3, 7] = broken[3, 8] = broken[9, 49] = True
    other = claim("c", normal(0.4))
    first, second, third = judge([claim("kept", promise(kept)), claim("b", promise(kept), promise(broken)), other])
    assert (first.word, first.why, first.test) == ("holds", "kept by all 20 seeds in every round", "promise")
    assert (second.word, second.why, second.part) == ("contradicted", "2 of 20 seeds broke it", 1)
    assert second.effect == Interval(0.1, 0.1, 0.1)
    assert third == judge([other])[0]
    assert promise(broken).broken[3] == 2
    # One that no run of this length can break is not kept by it.
    safe, wrong, both = judge(
        [
            claim("c", promise(kept, breakable=False)),
            claim("c", promise(broken, breakable=False)),
            claim("c", promise(kept), promise(kept, breakable=False)),
        ]
    )
    assert (safe.word, safe.why) == (both.word, both.why) == ("undecided", "no run of this length could break it")
    assert wrong.word == "contradicted"


def test_what_a_run_is_too_short_to_owe_is_no_promise_kept():
    """With beta = 0.15, three participations are owed after 20 rounds, and a client can lack three."""

    def word(rounds, **measured):
        run = planted_run(
            2, rounds, **{name: np.zeros(rounds) for name in ("lacking", "lacking_available")}, **measured
        )
        return [judge([claim("c", lacks_at_most(2, [run, run], 0.15, of_available=is_of))])[0].word for is_of in (0, 1)]

    assert word(19, available=np.array([19, 3])) == ["undecided", "undecided"]
    assert word(20, available=np.array([20, 3])) == ["holds", "holds"]
    assert word(20, available=np.array([19, 3])) == ["holds", "undecided"]


def test_a_policy_that_never_gets_there_is_no_improvement():
    """The fast policy's runs are short, and none reaches the target: it must not be credited with their length."""
    random, never = np.full(10, 1000.0) + np.arange(10), np.full(10, np.inf)
    assert word(time_gap(never, random, at_most=0.9)) == "contradicted"
    sooner, tie = judge([claim("c", time_gap(random, never)), claim("c", time_gap(never, never))])
    assert (sooner.word, sooner.test, sooner.effect.mean) == ("holds", "sign", math.inf)
    assert (tie.word, tie.p_holds, tie.p_small, tie.p_contradicted) == ("undecided", 1.0, 1.0, 1.0)
    assert tie.why == "more seeds would not decide"
    some = np.where(np.arange(10) < 8, 50.0, np.inf)
    # Eight of ten got there alone; the ties speak against: P(Bin(10, 1/2) >= 8) = 56 / 1024, two chains.
    assert judge([claim("c", time_gap(some, never))])[0].p_holds == pytest.approx(2 * 56 / 1024)


def test_the_correction_by_hand():
    # Chains of one are Holm's: sorted 0.01, 0.02, 0.03, 0.04, times 4, 3, 2, 1, never falling.
    assert [tested.p for tested in corrected([[0.03], [0.01], [0.04], [0.02]])] == [
        pytest.approx([p]) for p in (0.06, 0.04, 0.06, 0.06)
    ]
    # A chain counts until its last hypothesis is rejected: 0.001 and 0.004 of the first by 2, then 0.03 by 1.
    first, second = corrected([[0.001, 0.004], [0.03, 0.9]])
    assert first.p == pytest.approx((0.002, 0.008))
    assert second.p == pytest.approx((0.03, 0.9))
    assert (first.times, second.times) == (2, 1)
    # A weaker hypothesis is never rejected before the one that it is implied by.
    assert corrected([[0.04, 0.01]])[0].p == (0.04, 0.04)
    # What is rejected has its own step's level, and all that is not the level of the step that stopped.
    tested = corrected([[0.001], [0.01], [0.04], [0.5]])
    assert [(one.times, one.p[0] < LEVEL) for one in tested] == [(4, True), (3, True), (2, False), (2, False)]
    # The rest of a family counts as not yet decided.
    assert corrected([[0.001]], family=40)[0] == Chain((0.04,), 40)
    assert corrected([]) == judge([]) == []


def test_no_undecided_claim_stands_beside_an_interval_without_zero():
    rng = np.random.default_rng(11)
    for _ in range(20):
        family = [claim(str(i), rng.normal(rng.uniform(-1, 1), 1.0, int(rng.integers(3, 20)))) for i in range(6)]
        for verdict in judge(family):
            assert (verdict.word == "undecided") == (verdict.effect.low <= 0.0 <= verdict.effect.high)


def test_an_interval_has_zero_where_the_test_on_what_does_not_matter_alone_fails():
    """Ten seeds of a published claim: 0 is rejected at the step's level, and less than what matters is not."""
    advantage = np.array([141.1, 161.9, 68.5, 146.7, 132.9, 113.4, 81.5, 119.9, 101.1, 118.7])
    slack = np.array([147.8, 167.7, 76.7, 154.5, 139.7, 120.4, 89.7, 128.4, 108.3, 126.1])
    skewed = Part(advantage, 2 * advantage - slack, slack)
    [verdict] = judge([claim("early", skewed)], family=43)
    assert one_sided_p(advantage) < LEVEL / 86 < one_sided_p(slack)
    assert verdict.word == "undecided"
    assert verdict.effect.low < 0.0 < verdict.effect.mean < verdict.effect.high
    # It is shown beside a part that is less surely above 0, and more surely than what does not matter.
    assert judge([claim("early", advantage - 3.0, skewed)], family=43)[0].part == 1


SHAPES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy tails": lambda rng, n: rng.standard_t(2, n),
    "heavier tails": lambda rng, n: rng.standard_cauchy(n),
    "uniform": lambda rng, n: rng.uniform(-1.0, 1.0, n),
    "steps": lambda rng, n: 5.0 * rng.integers(-2, 3, n),
    "zero": lambda rng, n: np.zeros(n),
    "a coin": lambda rng, n: rng.choice((-5.0, 5.0), n),
    "never there": lambda rng, n: np.where(
        rng.random(n) < 0.3, rng.choice((-np.inf, np.inf, np.nan), n), rng.normal(size=n)
    ),
}
"""Differences without effect, one for each seed."""


def made_up_page(rng, *, is_true, claims=10):
    """Claims at the edge of truth: every part has just the effect that matters, or one part has none at all."""
    page = []
    for number in range(claims):
        seeds, least = int(rng.integers(3, 41)), float(rng.choice((0.0, 0.5)))
        parts = []
        for place in range(int(rng.integers(1, 3))):
            shape = SHAPES[str(rng.choice(list(SHAPES)))]
            noise = shape(rng, seeds)
            advantage = noise + (least if is_true else 4.0 * (place > 0))
            one = Part(advantage, advantage - least, advantage + least, "", "0.5" if least else "")
            parts.append(one)
        kind = rng.integers(0, 5)
        if kind == 0:
            parts = [promise(np.full((seeds, 4), not is_true))]
        elif kind == 1:  # an equivalence; its limits are just kept, or just not
            middle = rng.normal(size=seeds)
            parts = [threshold(middle + (8.0 if is_true else 0.0)), threshold(8.0 - middle)]
        page.append(claim(str(number), *parts))
    return judge(page)


@pytest.mark.parametrize("is_true", [False, True])
def test_at_most_one_page_in_twenty_has_a_wrong_verdict(is_true):
    """benchmarks/results/verdicts.md has worlds one by one, 2,000 pages each."""
    rng = np.random.default_rng(2026)
    wrong = {"contradicted", "holds, but small"} if is_true else {"holds", "holds, but small"}
    pages = [{verdict.word for verdict in made_up_page(rng, is_true=is_true)} for _ in range(200)]
    assert sum(bool(wrong & words) for words in pages) <= 0.05 * 200
    assert any("undecided" in words for words in pages)


@pytest.mark.parametrize("parts", [[], [np.ones(2), Promise((0, 0))]])
def test_a_claim_has_parts_of_one_kind(parts):
    with pytest.raises(ConfigurationError, match="claim 'a-empty' has"):
        claims_of("Fig. 1", {"empty": ("it is.", "measure", parts)}, prefix="a-")


def test_what_contradicts_is_named():
    draw = np.random.default_rng(0).normal(0.0, 0.001, 20)
    parts = {"slow": accuracy_gap(draw, draw + 0.01 + draw * 0.5), "fast": accuracy_gap(0.1 + draw, draw)}
    (verdict,) = judge(claims_of("Fig. 1", {"higher": ("it is higher.", "measure", parts)}))
    assert (verdict.word, verdict.why) == ("contradicted", "the opposite is shown: slow")


def test_claims_share_a_source_and_say_which_are_ours():
    ups = np.array([1.0, 2.0])
    asked = {"fast": ("it is fast.", "time", [ups, -ups]), "fair": ("it is fair.", "share", iter([ups]))}
    options = {"prefix": "a-", "about": "A: ", "elsewhere": {"fair": "Fig. 2"}, "ours": ["fair"], "changed": "smaller"}
    fast, fair = claims_of("Fig. 1", asked, **options)
    assert [part.slack.tolist() for part in fast.parts] == [[1.0, 2.0], [-1.0, -2.0]]
    assert fast == Claim("a-fast", "Fig. 1", "A: it is fast.", "time", fast.parts, changed="smaller")
    assert fair == Claim("a-fair", "Fig. 2", "A: it is fair.", "share", fair.parts, ours=True, changed="smaller")


@pytest.mark.parametrize(("unit", "why"), [("s", "less than 5% of the time"), ("rounds", "less than 5% of the rounds")])
def test_what_is_too_small_has_its_own_unit(unit, why):
    later = 100.0 + np.linspace(-1.0, 1.0, 12)
    (verdict,) = judge([claim("c", time_gap(later - 0.5 - 0.1 * np.sin(later * 40), later, unit))])
    assert (verdict.word, verdict.why) == ("holds, but small", why)


UP = np.linspace(0.9, 1.1, 12)
MIXED = np.linspace(-1.0, 1.2, 12)


def verdicts(*, ours=False):
    asked = {
        "true": ("It is fast.", "time", [UP]),
        "false": ("It is fair.", "share", [-UP]),
        "open": ("It is small.", "size", [MIXED]),
        "kept": ("It is never late.", "rounds", [promise(np.zeros((12, 5), bool))]),
    }
    claims = claims_of("Fig. 1", asked, ours=ours)
    trained = claims_of("Fig. 2", {"learns": ("It learns.", "accuracy", [-UP])}, ours=ours, changed="fewer rounds")
    return judge([*claims, dataclasses.replace(trained[0], training=True)])


def test_the_headline_counts_and_names_what_is_contradicted():
    sentences = headline(verdicts())
    assert counted(verdicts()) == "2 hold, 0 hold but small, 2 contradicted, 1 undecided"
    assert sentences[0].endswith(f"4 are decided here: {counted(verdicts())}.")
    # What is so in the paper's own set-up comes first.
    assert sentences[1].startswith("Contradicted: “It is fair” (the opposite is shown); “It learns”")
    assert len(sentences) == 2


def test_our_own_questions_are_counted_apart():
    alone, both = headline(verdicts(ours=True)), headline([*verdicts(), *verdicts(ours=True)])
    assert alone[0] == "All 5 claims are ours: 2 hold, 0 hold but small, 2 contradicted, 1 undecided."
    assert alone[1].startswith("Contradicted: ")
    assert both[0].startswith("Of 5 claims of the paper 4 are decided")
    assert both[-1] == "Of our own further questions, 5: 2 hold, 0 hold but small, 2 contradicted, 1 undecided."
    assert headline([]) == ["No claims are judged here."]


def test_every_claim_has_a_line_in_its_group_and_its_details_are_folded():
    found = verdicts()
    *groups, details = claims_sections(found)
    assert [len(section.table.rows) for section in groups] == [4, 1]
    assert [section.title for section in groups] == [
        "Simulation, the paper's own set-up: 2 hold, 0 hold but small, 1 contradicted, 1 undecided",
        "Training, another set-up than the paper's: 0 hold, 0 hold but small, 1 contradicted, 0 undecided",
    ]
    assert details.folded
    assert not any(section.folded for section in groups)
    assert len(details.table.rows) == 5
    assert groups[0].table.rows[3] == ("holds", "It is never late.", "Fig. 1", "kept by all 12 seeds in every round")
    assert claims_sections([]) == []
    # An interval that is open on both ends reads plainly.
    never = np.array([-np.inf] * 3 + [*np.linspace(50.0, 60.0, 6)] + [np.inf] * 3)
    text = str(claims_sections(judge(claims_of("Fig. 1", {"soon": ("It is sooner.", "time", [never])}))))
    assert "55 (anything is possible: in some seeds one of the two runs never got there)" in text
    assert "-never to" not in text
