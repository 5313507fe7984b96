"""Why a client was chosen in a round, or was not, in one sentence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.because import Because, Limit, Quantity, Reason
from fedroster.core.errors import LogFileError, StateFileError, UnknownNameError
from fedroster.core.ids import ClientId
from fedroster.core.problem import Status
from fedroster.core.protocols import AnyPolicy
from fedroster.core.state import as_labelled
from fedroster.folder.chain import files_of, first_line_of, lines_of, newest_start, standing
from fedroster.folder.events import BegunLine, Decided
from fedroster.folder.lines import OPEN, DecidedLine
from fedroster.record.following import Books, Following
from fedroster.record.log import Log, LoggedRound
from fedroster.rules.rules import Lists, Rules

_ENDED = {
    Status.COMPLETED: "its answer came in time",
    Status.LATE: "its answer came late",
    Status.DROPPED: "it dropped out",
    Status.FAILED: "its answer was an error, or refused",
}
_PRICE = "a price grows with a client's usual time and with what it is owed"
_REASONS: Mapping[Reason, tuple[str, str]] = {
    "everybody": ("there was a place for everybody", ""),
    "urgent": ("it was owed so much that it had to take part", "the places went to clients that had to take part"),
    "owed": ("it was owed more than those that were not chosen", "others were owed more"),
    "price": (f"it had a higher price than others ({_PRICE})", f"others had a higher price ({_PRICE})"),
    "time": ("it was fast enough", "others were faster"),
    "turn": ("it was its turn", "it was the turn of others"),
    "loss": ("its loss was among the greatest", "others had greater losses"),
    "tier": ("its tier of speed was drawn, or is next to it", "another tier of speed was drawn"),
    "worth": ("the best links within the budgets include one of its own", "other links are better within the budgets"),
    "untried": ("who was hardly tried goes first",) * 2,
    "away": ("it may be away next time, rather than others", "others may rather be away next time, or it rests"),
    "arm": ("it is in the cohort of the pool that was played", "it is not in the cohort of the pool that was played"),
    "drawn": ("chance decided",) * 2,
}
"""Each reason in words, for a client that was chosen and for one that was not."""
_TURNS: Mapping[Quantity, tuple[str, str, str]] = {
    "expected_s": ("been expected {} {} s", "below", "above"),
    "owed": ("been owed {1} {0}", "less", "more"),
    "last": ("had its last turn {} round {}", "before", "after"),
    "chosen": ("been in {} cohorts than {}", "fewer", "more"),
    "loss": ("had a loss {} {}", "below", "above"),
}
"""What would have turned a decision, in words, and the words for below and above."""


def reasons(log: Log, policy: AnyPolicy, slots: Mapping[int, int]) -> dict[int, Because]:
    """What decided on the client of a slot, by round: the policy decides again, in the state to which the log leads.

    Rounds are missing of which contexts are not kept, in which rules decided, or that the policy decides otherwise now.
    """
    found: dict[int, Because] = {}

    def before(books: Books, event: Decided) -> None:
        if event.round not in slots or not event.asked.known:
            return
        again = books.decide(event.asked, explain=False)
        if again.because is None or not np.array_equal(again.chosen, event.chosen):
            return
        said = again.because(slots[event.round])
        if said is not None:
            found[event.round] = said

    files = files_of(log.folder)
    start = first_line_of(files[newest_start(files, min(slots))])  # what came before is in the state that begins there
    with suppress(LogFileError, StateFileError):  # as of contexts that are not kept; what is there tells the rest
        lines = standing(lines_of(log.folder, start=start))
        began = next(lines)
        if isinstance(began.content, BegunLine):
            policy = as_labelled(began.content.policy, policy)
        following = Following(policy, log.folder)
        following.before = before
        for line in itertools.chain([began], lines):
            if isinstance(line.content, DecidedLine) and line.content.round > max(slots):
                break
            following.take(line)
    return found


def why(log: Log, client: ClientId, round: int, policy: AnyPolicy | None = None) -> str:
    """Say why a client was chosen in a round, or was not: rules, chance, debt, time, price.

    Args:
        log: The log.
        client: Its id, as the log has it.
        round: The round.
        policy: The policy that wrote it, which says what decided; None if it is not known.

    Raises:
        UnknownNameError: If the log has no such round, or client.
    """
    played = log.find(round)
    ids = log.ids_at(round)
    if client not in ids and client not in log.ids:
        raise UnknownNameError.of("client", str(client), [str(each) for each in ids if each is not None][:1000])
    slot = ids.index(client) if client in ids else -1
    because = reasons(log, policy, {round: slot}).get(round) if policy is not None and slot >= 0 else None
    return f"In round {round}, {client!r} {told(log, played, slot, because)}."


def told(log: Log, played: LoggedRound, slot: int, because: Because | None) -> str:
    """What became of the client of a slot in a round, -1 for one without a slot, after its name."""
    if out := kept_out(played, slot):
        return out
    place = np.flatnonzero(played.chosen == slot)
    num_out = sum(slots.size for slots in played.excluded.values())
    eligible = int(np.count_nonzero(played.available & played.members)) - num_out
    alone = not played.rules.keys() & {"groups", "priorities", "least_cohort"}
    why = in_words(because, chosen=bool(place.size), alone=alone)
    facts = _facts(played, slot, log.ids_at(played.round))
    could = f"{played.chosen.size} of {eligible} eligible clients"
    if place.size:
        return f"was chosen, one of {could}{why}{facts}; {_ended(played, int(place[0]))}"
    return f"was available and not chosen{why}; {could} were chosen{facts}"


def kept_out(played: LoggedRound, slot: int) -> str:
    """Why the client of a slot could not be chosen in a round, after its name; empty if it could."""
    if slot < 0 or not played.members[slot]:
        return "was not a member of the federation"
    if not played.available[slot]:
        return "was not available"
    for reason, slots in played.excluded.items():
        if slot in slots:
            return f"was available, but excluded from every cohort: {reason}"
    return f"was available, but {played.not_begun}" if played.not_begun else ""


def in_words(because: Because | None, *, chosen: bool, alone: bool) -> str:
    """A reason, and what would have turned the decision; if not ``alone``, the policy's part of what rules compose."""
    if because is None:
        return ""
    said = f", because {_REASONS[because.reason][0 if chosen else 1]}"
    if not math.isnan(because.chance):
        said += f" (with a probability of {because.chance:.3g})"
    turns = " or ".join(map(_turn, because.limits))
    return said + (
        f"; it would {'not ' * chosen}have been {'chosen' if alone else 'preferred'} if it had {turns}" if turns else ""
    )


def _turn(limit: Limit) -> str:
    """What would have turned a decision, after "if it had"; digits that are left out make it no less true."""
    text, below, above = _TURNS[limit.quantity]
    by = abs(limit.bound - limit.value) if limit.quantity == "owed" else limit.bound
    scale = 10.0 ** (2 - math.floor(math.log10(abs(by)))) if by else 1.0
    rounded = math.ceil if limit.above or limit.quantity == "owed" else math.floor
    return text.format(above if limit.above else below, f"{rounded(by * scale) / scale:g}" if by else "any")


def _facts(played: LoggedRound, slot: int, ids: list[ClientId | None]) -> str:
    """What the decision used for this client, beside the same values of the rest of the cohort."""
    parts, others, whose = _by_rules(played, slot, ids)
    for name, unit, values in (
        ("it was owed", " rounds", played.owed),
        ("it was expected to take", " s", played.expected_s),
    ):
        if values is not None and not math.isnan(values[slot]):
            parts.append(f"{name} {values[slot]:.3g}{unit}{_beside(values, others, unit, whose)}")
    return "".join(f"; {part}" for part in parts)


def _by_rules(played: LoggedRound, slot: int, ids: list[ClientId | None]) -> tuple[list[str], IntArray, str]:
    """What rules that shape a cohort say of a client, its priority and its group; and those it is compared with."""
    others, whose = played.chosen[played.chosen != slot], "the others of the cohort"
    if "priorities" not in played.rules and "groups" not in played.rules:
        return [], others, whose
    rules, parts = Rules.from_table(played.rules), []
    lists = Lists(rules)
    there = [*played.chosen.tolist(), *(played.busy.tolist() if played.asked.places else [])]
    judged = {each: lists.judge(client) for each in {slot, *there} if (client := ids[each]) is not None}
    if rules.priorities:
        priority = np.full(played.members.size, np.nan)
        priority[list(judged)] = [rank for _, _, rank in judged.values()]
        parts.append(f"its priority was {priority[slot]:g}{_beside(priority, others, '', whose)}")
    if (number := judged[slot][1]) >= 0:
        name, group = list(rules.groups.items())[number]
        count = sum(judged[each][1] == number for each in there if each in judged)
        limits = [f"at least {group.least}"] * bool(group.least) + [f"at most {group.most}"] * (group.most is not None)
        parts.append(f"its group {name!r} has {count} of the places ({' and '.join(limits) or 'no limit'})")
        others = others[[judged[each][1] == number for each in others.tolist()]]
        whose = "the others of its group"
    return parts, others, whose


def _beside(values: FloatArray, others: IntArray, unit: str, whose: str) -> str:
    known = values[others]
    known = known[~np.isnan(known)]
    if not known.size:
        return ""
    low, high = f"{known.min():.3g}", f"{known.max():.3g}"
    return f" ({whose} {low if low == high else f'{low} to {high}'}{unit})"


def _ended(played: LoggedRound, place: int) -> str:
    status, time_s = int(played.status[place]), float(played.exchange_time_s[place])
    if status == OPEN:
        return "no answer is in the log"
    took = "" if math.isnan(time_s) else f" after {time_s:.3g} s"
    learned_s = float(played.learned_s[place])
    counted = "" if math.isnan(learned_s) or learned_s == time_s else f", and counted as {learned_s:.3g} s"
    return f"{_ENDED[Status(status)]}{took}{counted}"
