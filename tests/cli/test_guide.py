"""Each leaf of the guide, played in three small worlds against every other leaf, by what its reader has asked for."""

import itertools
import math
import re
import warnings
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from fedroster import federate, make_policy, make_scenario, simulate
from fedroster.aggregation.memory import UpdateMemory
from fedroster.aggregation.places import FreePlaces
from fedroster.cli.choose import End, Keep, leaf
from fedroster.core.errors import FedrosterError
from fedroster.core.protocols import draws
from fedroster.lab.planning import ScenarioWorld, Setting, Wish, settings_for
from fedroster.lab.replay.playing import RoundEnd
from fedroster.lab.task import Task, usual_times
from fedroster.optimization.budgeted import choices_of
from fedroster.types import Status

FLAT = {
    "table": ("rbcs-f/table-1", {"num_clients": "12", "cohort_size": "4"}),
    "volatile": ("rbcs-f/volatile", {"num_clients": "16", "cohort_size": "4"}),
    "drift": ("rbcs-f/table-1", {"num_clients": "24", "cohort_size": "6", "drift": "0.5", "drift_rounds": "30"}),
}
EDGE = ["cocs/mnist", "cocs/mnist-geometric", "hidden/mnist"]
SEEDS, ROUNDS = range(4), 36
LEAVES = {
    leaf(rounds=True, own_data=False, keep=keep, limit=limit)
    for keep, limit in itertools.product(get_args(Keep), get_args(End))
}
PAGE = (Path(__file__).parents[2] / "docs" / "which-policy.md").read_text(encoding="utf-8")


def better(of, than, sign):
    """Whether one is shown to be better than the other in all their worlds together: paired, one-sided, 1 %."""
    worlds = sorted(of.keys() & than.keys())
    size = {name: max(np.mean(of[name]), np.mean(than[name]), 1e-12) for name in worlds}
    apart = np.concatenate([sign * (of[name] - than[name]) / size[name] for name in worlds] or [[0.0]])
    return bool(apart.std() > 0.0 and ttest_1samp(apart, 0.0, alternative="greater").pvalue < 0.01)


def stands(numbers, chosen, sign):
    """Whether no rival is shown to be better than the leaf, and the leaf is shown to be better than one of them."""
    rivals = numbers.keys() - {chosen}
    worse = [other for other in rivals if better(numbers[other], numbers[chosen], sign)]
    assert not worse, (chosen, worse)
    return any(better(numbers[chosen], numbers[other], sign) for other in rivals)


def share(world):
    """Half of the equal share."""
    return round(world.cohort_size / world.num_clients / 2.0, 4)


@cache
def world_of(name):
    scenario, settings = FLAT[name]
    return ScenarioWorld(scenario, settings, rounds=ROUNDS)


@cache
def deadline_s(name):
    times = [each.exchanges.time_s for each in world_of(name).play("random", 0, 99, RoundEnd())]
    return float(np.quantile(np.concatenate(times), 0.85))


@cache
def played(name, policy, spare, limited, seed):
    """Of a run: mean round, 95 % of the rounds, least and greatest share of choices, of updates, updates / s."""
    world = world_of(name)
    text = policy.format(beta=share(world))
    ending = RoundEnd(world.cohort_size, deadline_s(name) if limited else math.inf)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = world.play(text, math.ceil(spare * world.cohort_size), seed, ending)
    chosen, used, lengths = np.zeros(world.num_clients), np.zeros(world.num_clients), []
    for each in run:
        chosen[each.chosen] += 1.0 / len(run)
        used[each.chosen[each.status == Status.COMPLETED]] += 1.0 / len(run)
        lengths.append(each.length_s)
    tail = np.quantile(lengths, 0.95)
    return np.mean(lengths), tail, chosen.min(), chosen.max(), used.min(), used.sum() * len(run) / np.sum(lengths)


def numbers(column, *, limited, spares, keeping=None):
    """A number of every leaf by world and seed; of those, and in those worlds, that keep what one leaf keeps."""
    runs = {
        (policy, spare): {
            name: np.array([played(name, policy, spare, limited, seed) for seed in SEEDS]) for name in FLAT
        }
        for policy, spare in sorted({(each.policy, each.spare) for each in LEAVES if "pooling" not in each.policy})
        if spare in spares
    }
    kept = {name: 0.9 * runs[keeping][name][:, 2].mean() if keeping else 0.0 for name in FLAT}
    return {
        key: {name: own[name][:, column] for name in FLAT if own[name][:, 2].mean() >= kept[name]}
        for key, own in runs.items()
    }


CASES = {
    ("choices", "slowest"): (0, -1, {"spares": (0.0,), "limited": False}),
    ("updates", "slowest"): (0, -1, {"spares": (0.0,), "limited": False}),
    ("nothing", "slowest"): (0, -1, {"spares": (0.0,), "limited": False}),
    ("choices", "tail"): (1, -1, {"spares": (0.0, 0.25), "limited": False}),
    ("nothing", "tail"): (1, -1, {"spares": (0.0, 0.25), "limited": False}),
    ("updates", "tail"): (4, 1, {"spares": (0.0, 0.25), "limited": True}),
    ("updates", "deadline"): (4, 1, {"spares": (0.0, 0.25), "limited": True}),
    ("choices", "deadline"): (5, 1, {"spares": (0.0,), "limited": True}),
    ("nothing", "deadline"): (5, 1, {"spares": (0.0,), "limited": True}),
}
"""By what is kept and what limits a round: the number that counts, whether more of it is better, and the rivals."""


@pytest.mark.parametrize(("keep", "limit"), CASES)
def test_no_other_leaf_is_better_at_one_server(keep, limit):
    column, sign, which = CASES[keep, limit]
    own = leaf(rounds=True, own_data=False, keep=keep, limit=limit)
    key = own.policy, own.spare
    share_is_kept = keep == "choices" or (keep, limit) == ("updates", "slowest")
    assert stands(numbers(column, **which, keeping=key if share_is_kept else None), key, sign)


def test_a_wrong_leaf_is_found_out():
    with pytest.raises(AssertionError, match="floor"):
        stands(numbers(0, spares=(0.0,), limited=False), ("random", 0.0), -1)


def test_turns_are_most_equal_and_only_one_leaf_draws_evenly():
    turns = leaf(rounds=True, own_data=False, keep="turns", limit="slowest")
    runs = {
        key: np.subtract(
            *[np.concatenate(list(numbers(column, spares=(0.0,), limited=False)[key].values())) for column in (3, 2)]
        )
        for key in numbers(2, spares=(0.0,), limited=False)
    }
    assert min(runs, key=lambda key: runs[key].mean()) == (turns.policy, 0.0)
    even = {each.policy for each in LEAVES if draws(make_policy(each.policy.format(beta=0.1))) == "uniform"}
    assert even == {leaf(rounds=True, own_data=False, keep="chances", limit="slowest").policy}


def test_at_edge_servers_no_other_leaf_has_more_updates():
    found, tenth = {}, {}
    bare = "partial-pooling"  # no leaf: it has most updates, and leaves clients out of the model
    for policy, name in itertools.product(sorted({bare, *(each.policy for each in LEAVES)}), EDGE):
        network, runs = make_scenario(name), []
        for seed in range(3):
            served, reachable, updates = np.zeros(network.spec.num_clients), np.zeros(network.spec.num_clients), 0
            try:
                for each in simulate(make_policy(policy.format(beta=0.05)), network, rounds=60, seed=seed):
                    served[each.feedback.client] += 1.0
                    reachable[np.unique(choices_of(each.context).client)] += 1.0
                    updates += np.count_nonzero(each.feedback.status == Status.COMPLETED)
            except FedrosterError:  # it is for one server
                break
            known = reachable >= 20.0
            rates = np.sort(served[known] / reachable[known])
            runs.append((updates, rates[: max(rates.shape[0] // 10, 1)].mean()))
        if runs:
            found.setdefault(policy, {})[name], tenth.setdefault(policy, {})[name] = np.transpose(runs)
    free, own = (
        leaf(rounds=True, own_data=False, keep=keep, limit="budgets").policy for keep in ("nothing", "choices")
    )
    assert found.keys() == {bare, free, own, "random"}
    found.pop(bare)
    assert stands(found, free, 1)
    assert better(tenth[own], tenth[free], 1)
    assert min(rates.mean() for rates in tenth[own].values()) >= 0.8 * 0.05
    assert max(rates.mean() for rates in tenth[bare].values()) < 0.5 * 0.05
    assert stands({own: found[own], "random": found["random"]}, own, 1)


def test_in_free_places_no_other_leaf_has_a_model_sooner():
    found = {}
    own = leaf(rounds=False, own_data=True, keep="choices", limit="slowest")
    policies = sorted({own.policy, *(each.policy for each in LEAVES if "pooling" not in each.policy)})
    task, places = Task("digits-logistic", coupling=0.9, learning_rate=0.1), FreePlaces()
    for name, (scenario, settings) in FLAT.items():
        network = make_scenario(scenario, settings)
        for seed in range(3):
            times_s = usual_times(network, seed=seed)
            trainer = task.trainer(num_clients=network.spec.num_clients, seed=seed, times_s=times_s)
            for policy in policies:
                made = make_policy(policy.format(beta=share(world_of(name))))
                run = federate(made, network, trainer, rounds=400, seed=seed, memory=UpdateMemory(), places=places)
                soon = next(each.elapsed_s for each in run if each.accuracy >= 0.8)
                found.setdefault(policy, {}).setdefault(name, np.zeros(3))[seed] = soon
    stands(found, own.policy, -1)


def test_the_page_and_plan_say_what_the_command_says():
    table = re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \| (.*?) \| `(.*?)`(.*?) \|$", PAGE, re.M)
    assert len(table) >= 8
    for rounds, own_data, keep, limit in itertools.product((True, False), (True, False), get_args(Keep), get_args(End)):
        answers = ("yes" if rounds else "no", "yes" if own_data else "no", keep, limit)
        row = next(
            row
            for row in table
            if all(
                cell == "any" or answer in cell.replace("`", "").split(", ")
                for cell, answer in zip(row, answers, strict=False)
            )
        )
        found = leaf(rounds=rounds, own_data=own_data, keep=keep, limit=limit)
        assert row[4] == found.policy.format(beta=0.123).replace("0.123", "m/2N"), answers
        assert ("a quarter more" in row[5]) == bool(found.spare)
    world = world_of("table")
    tried = set(settings_for(world, Wish(share(world), 12.0), 4.0))
    for each in LEAVES:
        if "pooling" not in each.policy and each.policy != "floor:beta=0.02":
            spare = math.ceil(each.spare * world.cohort_size)
            assert Setting(each.policy.format(beta=share(world)), spare) in tried
            assert Setting(each.policy.format(beta=share(world)), spare, 12.0) in tried


TREE = {
    "No rounds needed": lambda rounds, own_data, keep, limit: not rounds and own_data,
    "Must every set": lambda rounds, own_data, keep, limit: keep == "chances",
    "Equal turns": lambda rounds, own_data, keep, limit: keep == "turns",
    "Edge servers": lambda rounds, own_data, keep, limit: limit == "budgets",
    "Must updates be used": lambda rounds, own_data, keep, limit: keep == "updates" and limit != "slowest",
    "Must each client": lambda rounds, own_data, keep, limit: keep != "nothing",
}
"""Who says yes to a question of the tree, by its first words."""
CALLED = {
    "BySpeed()": "by-speed",
    "Uniform()": "random",
    "RoundRobin()": "round-robin",
    "PartialPooling(beta)": "partial-pooling:beta={beta}",
    "Floor(beta)": "floor:beta={beta}",
    "Floor(beta=0.02)": "floor:beta=0.02",
}


def test_the_tree_of_the_page_says_what_the_command_says():
    lines = re.search(r"^```{decision-tree}.*?\n(.*?)^```", PAGE, re.M | re.S)[1].splitlines()
    for answers in itertools.product((True, False), (True, False), get_args(Keep), get_args(End)):
        for line in lines:
            question, arrow, answer = line.partition(" -> ")
            if not arrow or next(says for words, says in TREE.items() if question.startswith(words))(*answers):
                break
        advised = CALLED[(answer if arrow else line).split(" ")[0]]
        found = leaf(**dict(zip(("rounds", "own_data", "keep", "limit"), answers, strict=True)))
        assert found.policy.removesuffix(",V=0.5") == advised, answers
