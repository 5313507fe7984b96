"""What rules make impossible: cohorts that no choice of clients can keep, and rates that no policy can."""

from __future__ import annotations

import numpy as np

from fedroster.core.arrays import IntArray
from fedroster.core.errors import InfeasibleError
from fedroster.rules.rules import Rules

_ROUNDING = 1e-9


def check_possible(rules: Rules, cohort_size: int) -> None:
    """Refuse rules that no cohort can keep.

    Raises:
        InfeasibleError: If least numbers exceed the cohort size.
    """
    if rules.least_cohort > cohort_size:
        raise InfeasibleError(
            f"least_cohort = {rules.least_cohort} is more than cohort_size = {cohort_size}: no round could begin"
        )
    least = sum(group.least for group in rules.groups.values())
    if least > cohort_size:
        raise InfeasibleError(
            f"the groups' least numbers add up to {least}, more than cohort_size = {cohort_size}: no round could begin"
        )


def debts_rest(rules: Rules, beta: float) -> bool:
    """Whether rules that keep a client out for a while make a promised rate impossible: then it is owed nothing."""
    found: dict[str, str] = {}
    if beta:
        _rates_of_clients(found, rules, beta)
    return "most_per_window" in found or "least_separation" in found


def flaws(rules: Rules, *, beta: float, cohort_size: int, group: IntArray, priority: IntArray) -> dict[str, str]:
    """What is impossible under rules, as sentences by the kind of rule.

    Args:
        rules: The rules.
        beta: Participation rate that the policy promises, in [0, 1]; 0 for none.
        cohort_size: Largest number of clients in a round, m.
        group: Group of each client that may take part, -1 for none, shape (clients,).
        priority: Priority of each, shape (clients,).
    """
    found: dict[str, str] = {}
    if group.shape[0]:
        sizes = np.bincount(group + 1, minlength=len(rules.groups) + 1)
        _rounds_that_cannot_begin(found, rules, sizes)
        if beta:
            _rates_of_groups(found, rules, sizes, beta, cohort_size)
            first = int(np.count_nonzero(priority == priority.max()))
            if first < priority.shape[0] and first >= cohort_size:
                found["priorities"] = (
                    f"beta = {beta} cannot be met: {first} clients have the highest priority and a cohort has "
                    f"{cohort_size} places, so that the others may never take part"
                )
    if beta:
        _rates_of_clients(found, rules, beta)
    return found


def _rounds_that_cannot_begin(found: dict[str, str], rules: Rules, sizes: IntArray) -> None:
    names = list(rules.groups)
    for (name, group), size in zip(rules.groups.items(), sizes[1:].tolist(), strict=True):
        if size < group.least:
            found[f"least of {name}"] = (
                f"no round can begin: group {name!r} has {size} clients that may take part; "
                f"expected least = {group.least}"
            )
    most = [rules.groups[name].most for name in names]
    reach = sizes[0] + sum(size if top is None else min(size, top) for size, top in zip(sizes[1:], most, strict=True))
    total = int(sizes.sum())
    if reach < rules.least_cohort:
        found["least_cohort"] = (
            f"no round can begin: {reach} clients can be in one cohort; expected least_cohort = {rules.least_cohort}"
        )
    every = rules.least_separation
    if every > 1 and rules.least_cohort * every > total:
        found["least_cohort and least_separation"] = (
            f"some rounds cannot begin: {every} cohorts of least_cohort = {rules.least_cohort} in a row take "
            f"{rules.least_cohort * every} clients, and {total} may take part"
        )
    if rules.most_per_window is not None and rules.window is not None:
        places = total * rules.most_per_window
        if rules.least_cohort * rules.window > places:
            found["least_cohort and most_per_window"] = (
                f"some rounds cannot begin: {rules.window} cohorts of least_cohort = {rules.least_cohort} take "
                f"{rules.least_cohort * rules.window} participations, and {total} clients may give {places}"
            )


def _rates_of_groups(found: dict[str, str], rules: Rules, sizes: IntArray, beta: float, cohort_size: int) -> None:
    owed = float(sizes[0]) * beta
    for (name, group), size in zip(rules.groups.items(), sizes[1:].tolist(), strict=True):
        owed += max(size * beta, group.least)
        if group.most is not None and size * beta > group.most * (1.0 + _ROUNDING):
            found[f"most of {name}"] = (
                f"beta = {beta} cannot be met in group {name!r}: {size} clients are owed {size * beta:g} places a "
                f"round; expected at most its most = {group.most}"
            )
    if owed > cohort_size * (1.0 + _ROUNDING):
        found["least of groups"] = (
            f"beta = {beta} cannot be met: with the groups' least numbers {owed:g} places a round are owed, and a "
            f"round has cohort_size = {cohort_size}"
        )


def _rates_of_clients(found: dict[str, str], rules: Rules, beta: float) -> None:
    if beta * rules.least_separation > 1.0 + _ROUNDING:
        found["least_separation"] = (
            f"beta = {beta} cannot be met of all rounds: least_separation = {rules.least_separation} lets a client "
            f"take part in 1 of {rules.least_separation}; it is met of the rounds in which the rule lets it in"
        )
    if rules.most_per_window is not None and rules.window is not None:
        rate = rules.most_per_window / rules.window
        if beta > rate * (1.0 + _ROUNDING):
            found["most_per_window"] = (
                f"beta = {beta} cannot be met of all rounds: most_per_window = {rules.most_per_window} in "
                f"{rules.window} rounds is a rate of {rate:g}; it is met of the rounds in which the rule lets it in"
            )
    if rules.most_participations is not None:
        found["most_participations"] = (
            f"beta = {beta} holds until a client has taken part {rules.most_participations} times "
            "(most_participations); after that it is owed nothing"
        )
