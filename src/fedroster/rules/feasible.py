r"""What rules make impossible: cohorts that no choice of clients can keep, and rates that no policy can.

A client can take part in a share :math:`r_n` of the rounds at most: what windows and separations leave, and not more
than it is available.  A group that owes at least :math:`L` places to each cohort can therefore let a share
:math:`\sum_n r_n / L` of the rounds begin, and a total :math:`T` ends it after :math:`N T / L` of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import counted

if TYPE_CHECKING:
    from fedroster.rules.rules import Rules

_ROUNDING = 1e-9


def impossible(rules: Rules, cohort_size: int) -> str:
    """Why no cohort at all can keep rules; empty if one can."""
    if rules.least_cohort > cohort_size:
        return f"least_cohort = {rules.least_cohort} is more than cohort_size = {cohort_size}: no round could begin"
    if (least := sum(group.least for group in rules.groups.values())) > cohort_size:
        return (
            f"the groups' least numbers add up to {least}, more than cohort_size = {cohort_size}: no round could begin"
        )
    return ""


def paces(rules: Rules, round_s: float | None = None) -> dict[str, tuple[float, str]]:
    """Largest share of the rounds in which a client may take part, by the rule that says so, and that rule in words.

    Rules in time say nothing where ``round_s``, from one round to the next, is not known.
    """
    found = {}
    every = int(rules.least_separation)
    most, window_s = rules.most_per_window, rules.window_s
    if every > 1:
        found["least_separation"] = 1.0 / every, f"lets a client take part in 1 of {every}"
    if most is not None and isinstance(rules.window, int):
        rate = most / rules.window
        found["most_per_window"] = rate, f"in {rules.window} rounds is a rate of {rate:g}"
    if round_s is not None:
        where = f"where a round takes {round_s:g} s"
        if rules.least_separation_s:
            rate = round_s / rules.least_separation_s
            found["least_separation_s"] = rate, f"is a rate of {rate:.3g} {where}"
        if most is not None and window_s is not None:
            rate = most * round_s / window_s
            found["most_per_window"] = rate, f"in {rules.window} is a rate of {rate:.3g} {where}"
    return found


def debts_rest(rules: Rules, beta: float) -> bool:
    """Whether rules that keep a client out for some rounds make a promised rate impossible: then it is owed nothing."""
    return any(beta > rate * (1.0 + _ROUNDING) for rate, _ in paces(rules).values())


def flaws(
    rules: Rules,
    *,
    beta: float,
    cohort_size: int | None,
    group: IntArray,
    priority: IntArray,
    availability: FloatArray,
    num_members: int,
    round_s: float | None = None,
) -> dict[str, str]:
    """What is impossible under rules, as sentences by the kind of rule.

    Args:
        rules: The rules.
        beta: Participation rate that the policy promises, in [0, 1]; 0 for none.
        cohort_size: Largest number of clients in a round, m; None if it is not known.
        group: Group of each client that may take part, -1 for none, shape (clients,).
        priority: Priority of each, shape (clients,).
        availability: Share of the rounds in which each is available, in [0, 1], shape (clients,).
        num_members: How many members there are, with those that may not take part.
        round_s: Time from one round to the next, seconds; None if it is not known.
    """
    found: dict[str, str] = {}
    if num_members and not group.shape[0] and rules.allow != ():  # an empty list is meant
        found["lists"] = f"no client can take part: the lists exclude all {num_members} members"
    if group.shape[0]:
        _rounds_that_cannot_begin(found, rules, group, availability, round_s)
        if beta and cohort_size is not None:
            _rates_of_groups(found, rules, np.bincount(group + 1, minlength=len(rules.groups) + 1), beta, cohort_size)
            first = int(np.count_nonzero(priority == priority.max()))
            if first < priority.shape[0] and first >= cohort_size:
                found["priorities"] = (
                    f"beta = {beta} cannot be met: {first} clients have the highest priority and a cohort has "
                    f"{cohort_size} places, so that the others may never take part"
                )
    for name, (rate, words) in paces(rules, round_s).items() if beta else ():
        if beta > rate * (1.0 + _ROUNDING):
            found[name] = (
                f"beta = {beta} cannot be met of all rounds: {name} = {getattr(rules, name):g} {words}; it is met of "
                "the rounds in which the rule lets it in"
            )
    if beta and rules.most_participations is not None:
        found["most_participations"] = (
            f"beta = {beta} holds until a client has taken part {rules.most_participations} times "
            "(most_participations); after that it is owed nothing"
        )
    return found


def _rounds_that_cannot_begin(
    found: dict[str, str], rules: Rules, group: IntArray, availability: FloatArray, round_s: float | None
) -> None:
    """Hold what each group, and all clients together, can give against what a cohort needs of them."""
    known = paces(rules, round_s)
    name = min(known, key=lambda each: known[each][0], default="")
    pace = known[name][0] if name else 1.0
    how = f", each at most {pace:.3g} times a round ({name} = {getattr(rules, name)})" if name else ""
    sizes = np.bincount(group + 1, minlength=len(rules.groups) + 1)
    gives = np.bincount(group + 1, weights=np.minimum(pace, availability), minlength=len(rules.groups) + 1)
    tops = [math.inf if each.most is None else each.most for each in rules.groups.values()]
    parts: list[Any] = [
        (f"least of {called}", f"group {called!r}", each.least, size, size, give)
        for (called, each), size, give in zip(rules.groups.items(), sizes[1:].tolist(), gives[1:].tolist(), strict=True)
    ]
    reach, give = (float(each[0] + np.minimum(each[1:], tops).sum()) for each in (sizes, gives))
    parts.append(("least_cohort", "the federation", rules.least_cohort, group.shape[0], int(reach), give))
    ends: dict[int, str] = {}
    for kind, what, least, size, fit, places in parts:
        needed = f"{kind.partition(' ')[0]} = {least}"
        has = f"{what} has {counted(size, 'client')}"
        if fit < least:
            found[kind] = f"no round can begin: {what} has {counted(fit, 'client')} for one cohort; expected {needed}"
        elif places < least * (1.0 - _ROUNDING):
            found[kind] = (
                f"some rounds cannot begin: {has}{how}, which makes {places:.3g} "
                f"place{'s' * (abs(places - 1.0) > _ROUNDING)} a round, "
                f"and {needed}: at most {100.0 * places / least:.0f} % of the rounds can begin"
            )
        if rules.most_participations is not None and least:
            rounds = size * rules.most_participations // least
            ends[rounds] = (
                f"at most {counted(rounds, 'round')} can begin: {has}, each {rules.most_participations} times "
                f"in all (most_participations), and {needed}"
            )
    if ends:
        found["total"] = ends[min(ends)]


def _rates_of_groups(found: dict[str, str], rules: Rules, sizes: IntArray, beta: float, cohort_size: int) -> None:
    """Hold what a promise owes to each group against the places that it has, and that a cohort has."""
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
