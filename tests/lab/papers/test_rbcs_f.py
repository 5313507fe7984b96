"""Huang et al. 2021: claims on simulations, with planted truth."""

import numpy as np

from fedroster.lab.papers.rbcs_f import figures as rbcs_f
from fedroster.lab.verdicts.paper import find_paper
from fedroster.lab.verdicts.verdicts import judge
from runs import planted_run

ROUNDS, SEEDS = 200, 12


def planted(*, settling, plateau=1, growth=0.0, round_time_s=5.0, cohort=8, chosen=None, seed=0):
    """A run whose queues rise to a plateau, settle after some rounds, and grow on from there."""
    plateau, settling = plateau + 0.01 * seed, settling + seed % 2
    rng = np.random.default_rng([seed, int(1000 * plateau), settling])
    rounds = np.arange(1, ROUNDS + 1)
    backlog = plateau * (1.0 - np.exp(-rounds / settling)) + growth * rounds + 1e-4 * rng.random(ROUNDS)
    return planted_run(
        40,
        ROUNDS,
        round_time_s=round_time_s + 0.1 * rng.standard_normal(ROUNDS),
        cohort_size=np.full(ROUNDS, cohort),
        mean_backlog=backlog,
        bound_margin=np.ones(ROUNDS),
        chosen=rng.integers(30, 50, 40) if chosen is None else chosen + rng.integers(0, 3, 40),
    )


def verdicts(figure, runs):
    """Whether each claim on a figure holds for these runs."""
    return {each.claim.name: each.holds for each in judge(find_paper("rbcs-f").figures[figure].claims(runs))}


def runs(policies, **values):
    """Runs of each policy, with its own one of some values."""
    return {
        policy: [
            planted(**{"settling": 5 + index} | {name: own[index] for name, own in values.items()}, seed=seed)
            for seed in range(SEEDS)
        ]
        for index, policy in enumerate(policies)
    }


def queues(plateau, settling, growth=0.0):
    return runs(rbcs_f.RBCS_F, plateau=plateau, settling=settling, growth=[growth] * 4)


def test_claims_on_queues_hold_where_they_are_true():
    assert set(verdicts("2", queues((1, 2, 4, 8), (5, 10, 15, 20))).values()) == {True}


def test_claims_on_queues_do_not_hold_where_they_are_false():
    growing = verdicts("2", queues((1, 2, 4, 8), (5, 10, 15, 20), growth=0.02))
    assert not any(holds for name, holds in growing.items() if name.startswith("flat"))
    falling = verdicts("2", queues((8, 4, 2, 1), (20, 15, 10, 5)))
    assert not falling["higher-with-V"]
    assert not falling["later-with-V"]
    one_step_wrong = verdicts("2", queues((1, 4, 2, 8), (5, 10, 15, 20)))
    assert not one_step_wrong["higher-with-V"]
    assert one_step_wrong["later-with-V"]


def times(*values, cohort=8):
    return runs(rbcs_f.FIGURE_POLICIES, round_time_s=values, cohort=[cohort] * 7)


def test_claims_on_time():
    true = verdicts("3", times(12, 10, 8, 6, 15, 3, 7))
    assert true["faster-with-V"]
    assert true["between"]
    false = verdicts("3", times(6, 8, 10, 12, 5, 3, 7))
    assert not false["faster-with-V"]
    assert not false["between"]
    assert true["eight-clients"]
    assert not verdicts("3", times(12, 10, 8, 6, 15, 3, 7, cohort=10))["eight-clients"]


def pulls(*uneven):
    return runs(rbcs_f.FIGURE_POLICIES, chosen=[np.arange(40) * steepness // 40 + 20 for steepness in uneven])


def test_claims_on_pulls():
    true = verdicts("4", pulls(2, 40, 80, 120, 2, 400, 100))
    assert true["uneven-with-V"]
    assert true["fedcs-least-even"]
    assert true["fair-is-even"]
    false = verdicts("4", pulls(120, 80, 40, 2, 300, 60, 100))
    assert not any(false[name] for name in ("uneven-with-V", "fedcs-least-even", "fair-is-even"))


def test_a_bound_above_all_that_can_be_decides_nothing():
    """Theorem 3's bounds are above the longest mean time for any run of this length, and a regret is not."""
    recipe = find_paper("rbcs-f").figures["regret"]

    def words(regret_s):
        runs = {
            label: [planted_run(40, 50, round_time_s=np.full(50, 5.0 + regret_s * (label != rbcs_f.OPTIMAL)))] * 2
            for label in recipe.needs
        }
        return {verdict.claim.name: (verdict.word, verdict.why) for verdict in judge(recipe.claims(runs))}

    unbreakable = ("undecided", "no run of this length could break it")
    assert words(1.0) == {"theorem-3": unbreakable, "theorem-3-mended": unbreakable}
    assert {word for word, _ in words(1e9).values()} == {"contradicted"}
