"""Why a client was chosen in a round, or was not, in one sentence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedroster.core.arrays import FloatArray
from fedroster.core.errors import UnknownNameError
from fedroster.core.ids import ClientId
from fedroster.core.problem import Status
from fedroster.folder.lines import OPEN
from fedroster.record.log import Log, LoggedRound
from fedroster.rules.names import Lists
from fedroster.rules.rules import Rules

_ENDED = {
    Status.COMPLETED: "its answer came in time",
    Status.LATE: "its answer came late",
    Status.DROPPED: "it dropped out",
    Status.FAILED: "its answer was an error, or refused",
}
_DRAWS = {"never": "the policy does not draw at random", "uniform": "the policy draws uniformly"}


def why(log: Log, client: ClientId, round: int) -> str:
    """Say why a client was chosen in a round, or was not: rules, chance, debt, time, price.

    Args:
        log: The log.
        client: Its id, as the log has it.
        round: The round.

    Raises:
        UnknownNameError: If the log has no such round, or client.
    """
    played = log.find(round)
    ids = log.ids_at(round)
    if client not in ids:
        known = [each for each in ids if each is not None]
        if client not in log.ids:
            raise UnknownNameError.of("client", str(client), [str(each) for each in known[:1000]])
        return f"In round {round}, {client!r} was not a member of the federation."
    slot = ids.index(client)
    start = f"In round {round}, {client!r}"
    if not played.members[slot]:
        return f"{start} was not a member of the federation."
    if not played.available[slot]:
        return f"{start} was not available."
    for reason, slots in played.excluded.items():
        if slot in slots:
            return f"{start} was available, but excluded from every cohort: {reason}."
    if played.not_begun:
        return f"{start} was available, but {played.not_begun}."
    place = np.flatnonzero(played.chosen == slot)
    out = sum(slots.shape[0] for slots in played.excluded.values())
    eligible = int(np.count_nonzero(played.available & played.members)) - out
    facts = _facts(played, slot, ids, _DRAWS.get(log.header.draws, ""))
    could = f"{played.chosen.shape[0]} of {eligible} eligible clients"
    if place.shape[0]:
        return f"{start} was chosen, one of {could}{facts}; {_ended(played, int(place[0]))}."
    return f"{start} was available and not chosen; {could} were chosen{facts}."


def _facts(played: LoggedRound, slot: int, ids: list[ClientId | None], draws: str) -> str:
    """What the decision used for this client, beside the same values of the rest of the cohort."""
    others = played.chosen[played.chosen != slot]
    parts = _by_rules(played, slot, ids)
    if draws and not parts:  # with priorities or groups, the policy decides parts of the cohort
        parts.append(draws)
    for name, unit, values in (
        ("it was owed", " rounds", played.owed),
        ("it was expected to take", " s", played.expected_s),
        ("its price was", "", _prices(played)),
    ):
        if values is not None and not math.isnan(values[slot]):
            parts.append(f"{name} {values[slot]:.3g}{unit}{_beside(values, others, unit)}")
    return "".join(f"; {part}" for part in parts)


def _by_rules(played: LoggedRound, slot: int, ids: list[ClientId | None]) -> list[str]:
    """What rules that shape a cohort say of a client: its priority, and its group."""
    if "priorities" not in played.rules and "groups" not in played.rules:
        return []
    rules, parts = Rules.from_table(played.rules), []
    lists = Lists(rules)
    at_work = played.busy if played.asked.places else played.chosen[:0]
    judged = {
        each: lists.judge(client)
        for each in {slot, *played.chosen.tolist(), *at_work.tolist()}
        if (client := ids[each]) is not None
    }
    if rules.priorities:
        priority = np.full(played.members.shape[0], np.nan)
        priority[list(judged)] = [rank for _, _, rank in judged.values()]
        others = played.chosen[played.chosen != slot]
        parts.append(f"its priority was {priority[slot]:g}{_beside(priority, others, '')}")
    if (number := judged[slot][1]) >= 0:
        name, group = list(rules.groups.items())[number]
        count = sum(
            judged[each][1] == number for each in [*played.chosen.tolist(), *at_work.tolist()] if each in judged
        )
        limits = [f"at least {group.least}"] * bool(group.least) + [f"at most {group.most}"] * (group.most is not None)
        parts.append(f"its group {name!r} has {count} of the places ({' and '.join(limits) or 'no limit'})")
    return parts


def _beside(values: FloatArray, others: Any, unit: str) -> str:
    known = values[others]
    known = known[~np.isnan(known)]
    if not known.shape[0]:
        return ""
    low, high = f"{known.min():.3g}", f"{known.max():.3g}"
    return f" (the others of the cohort {low if low == high else f'{low} to {high}'}{unit})"


def _prices(played: LoggedRound) -> FloatArray | None:
    asked = played.asked
    if asked.links is None:
        return None
    prices = np.full(played.members.shape[0], np.nan)
    prices[asked.slot] = asked.links.price
    return prices


def _ended(played: LoggedRound, place: int) -> str:
    status, time_s = int(played.status[place]), float(played.exchange_time_s[place])
    if status == OPEN:
        return "no answer is in the log"
    took = "" if math.isnan(time_s) else f" after {time_s:.3g} s"
    learned_s = float(played.learned_s[place])
    counted = "" if math.isnan(learned_s) or learned_s == time_s else f", and counted as {learned_s:.3g} s"
    return f"{_ENDED[Status(status)]}{took}{counted}"
