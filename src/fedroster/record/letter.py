"""The letter about one client: all that a log says of it, for those who ask on its behalf."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter

from fedroster.core.checks import counted
from fedroster.core.errors import UnknownNameError
from fedroster.core.ids import ClientId
from fedroster.core.outside import marked, plain
from fedroster.core.protocols import AnyPolicy
from fedroster.record.log import Log
from fedroster.record.why import in_words, kept_out, reasons, told
from fedroster.simulation import promised_rate


def letter(log: Log, client: ClientId, policy: AnyPolicy | None = None) -> str:
    """Every round of one client: which rule excluded it, its share against the promise, and its longest wait.

    It is Markdown; the arguments are those of :func:`~fedroster.record.why.why`.

    Raises:
        UnknownNameError: If the log has no such client.
    """
    numbers = [played.round for played in log.rounds]
    slots = {at: ids.index(client) if client in (ids := log.ids_at(at)) else -1 for at in numbers}
    if max(slots.values(), default=-1) < 0:
        raise UnknownNameError.of("client", str(client), [str(each) for each in log.ids if each is not None][:1000])
    known = {} if policy is None else reasons(log, policy, {at: slot for at, slot in slots.items() if slot >= 0})
    counts = Counter[str]()
    rows = []
    member = able = 0.0
    num_chosen = wait = 0
    since, longest = "", (0, "")
    for played in log.rounds:
        slot = slots[played.round]
        because = known.get(played.round)
        chosen = slot in played.chosen
        out = kept_out(played, slot)
        weight = played.chosen.size / log.header.settings.cohort_size if played.asked.places else 1.0
        if slot >= 0 and played.members[slot] and not played.not_begun:
            member += weight
            able += 0.0 if out else weight
            num_chosen += chosen
            place = f"round {played.round} ({played.at})"
            if chosen:
                wait, since = 0, ""
            else:
                wait, since = wait + 1, since or place
            longest = max(longest, (wait, f", from {since} to {place}"), key=itemgetter(0))
        short = f"was {'' if chosen else 'not '}chosen{in_words(because, chosen=chosen, alone=True).partition(';')[0]}"
        counts["was available, but the round did not begin" if played.not_begun else out or short] += 1
        rows.append(f"| {played.round} | {played.at} | {marked(told(log, played, slot, because))} |")
    totals = [f"| {marked(what)} | {number} |" for what, number in counts.most_common()]
    lines = [
        f"# {marked(repr(client))} in rounds {numbers[0]} to {numbers[-1]}",
        f"The record of {marked(log.header.policy)}; digest of its last line: `{log.head}`.",
        "| it ... | rounds |\n| --- | --- |\n" + "\n".join(totals),
        f"It took part in {num_chosen} of {member:.4g} rounds as a member ({num_chosen / max(member, 1.0):.1%}), of "
        f"which it could be chosen in {able:.4g}." + _promise(log, policy, num_chosen, member, able),
        f"Its longest wait took {counted(longest[0], 'round')}{longest[1]}.",
        "## Round by round",
        "| round | when | it ... |\n| --- | --- | --- |\n" + "\n".join(rows),
    ]
    return "\n".join(map(plain, "\n\n".join(lines).split("\n"))) + "\n"


def _promise(log: Log, policy: AnyPolicy | None, num_chosen: int, member: float, able: float) -> str:
    """What the policy promises a client, beside what it had; empty without a promise, or where it changed meanwhile."""
    beta, counted_in = promised_rate(policy)
    if log.changes_policy or not beta:
        return ""
    due, of = (beta * member, "all") if counted_in == "rounds" else (beta * able, "those in which it could be chosen")
    kept = "is kept" if num_chosen >= due else f"lacks {due - num_chosen:.3g}"
    return f" The policy promises {beta:.1%} of {of} in the long run, {due:.4g}: this {kept}."
