"""``fedroster choose``: the decision guide of the documentation, as a command."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

import typer

from fedroster.cli.command import command
from fedroster.core.checks import check_choice
from fedroster.core.errors import ConfigurationError, InvalidInputError

Keep: TypeAlias = Literal["choices", "updates", "turns", "chances", "nothing"]
End: TypeAlias = Literal["slowest", "tail", "deadline", "budgets"]

_QUESTIONS = {
    "rounds": "Does your engine need rounds? No, if it can fill a place as soon as a client has answered.",
    "own-data": "Do slow clients hold data that others do not have?",
    "keep": """What must be kept?
  choices   each client is chosen in a share of the rounds
  updates   each client's update is used in a share of the rounds, although rounds end without the slowest
  turns     each client has the same number of rounds
  chances   every set of clients is equally likely: privacy accounting counts on it
  nothing   no client has a right to take part""",
    "limit": """What limits a round?
  slowest   it lasts until its slowest client has answered
  tail      the same, but few rounds may be long: spare clients are chosen, and it ends when enough have answered
  deadline  a deadline at one server
  budgets   edge servers, or what each server may spend""",
}
_CODE = """from fedroster import {selector}, make_policy

selector = {selector}(make_policy("{policy}"), cohort_size={size}, clients=ids{more})
cohort = selector.select({asked})  # or select(ids, ...) of those that are available
selector.observe(cohort.round, times_s=seconds)  # seconds by id, as your server measured them
"""
_SEEN = "floor:beta=0.02"  # each client is still seen, where places are many enough for it


class Leaf(NamedTuple):
    """What the guide advises: a policy, ``{beta}`` for the share, and the part of a cohort chosen beyond it."""

    policy: str
    spare: float = 0.0


def leaf(*, rounds: bool, own_data: bool, keep: Keep, limit: End) -> Leaf:
    """What the guide advises for its four answers."""
    if keep in ("chances", "turns"):
        return Leaf("random" if keep == "chances" else "round-robin")
    if limit == "budgets":
        return Leaf("partial-pooling:beta={beta}" + ",V=0.5" * (keep != "nothing"))
    if own_data and not rounds:
        return Leaf("by-speed")
    if keep == "updates" and limit != "slowest":
        return Leaf("round-robin", 0.25)
    return Leaf(_SEEN if keep == "nothing" else "floor:beta={beta}", 0.25 if limit == "tail" else 0.0)


@command()
def choose(
    rounds: Annotated[bool | None, typer.Option(help="Whether your engine needs rounds.")] = None,
    own_data: Annotated[bool | None, typer.Option(help="Whether slow clients hold data of their own.")] = None,
    keep: Annotated[Keep | None, typer.Option(help="What must be kept; asked if not given.")] = None,
    limit: Annotated[End | None, typer.Option(help="What limits a round; asked if not given.")] = None,
    clients: Annotated[int | None, typer.Option(min=1, help="Number of clients; asked if not given.")] = None,
    places: Annotated[int | None, typer.Option(min=1, help="Clients in a round; asked if not given.")] = None,
    share: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Share of the rounds that each client must have; half of the equal share, m / 2N."
        ),
    ] = None,
) -> None:
    """Ask about your engine, your clients and your aim; print a suitable policy, and the code."""
    from fedroster.catalogue import find_policy

    rounds = _asked("rounds", rounds, bool, usual=True)
    own_data = _asked("own-data", own_data, bool, usual=False)
    keep = _asked("keep", keep, get_args(Keep))
    limit = "slowest" if keep in ("turns", "chances") else _asked("limit", limit, get_args(End))
    found = leaf(rounds=bool(rounds), own_data=bool(own_data), keep=keep or "choices", limit=limit or "slowest")
    number, size = _asked("clients", clients, int), _asked("places", places, int)
    # Half of the equal share: every client stays in the model, half of the places are free for speed.
    half = float(f"{min(size / number, 1.0) / 2.0:.4g}")
    beta = half if share is None else share
    if number * beta > size:
        raise ConfigurationError(
            f"each of {number} clients cannot take part in {beta:g} of the rounds with {size} places; "
            f"expected a share <= {size / number:.3g}"
        )
    policy = found.policy.format(beta=beta)
    if policy == _SEEN and number * 0.02 > size:
        policy = f"floor:beta={half}"
    is_edge = policy.startswith("partial-pooling")
    spare = math.ceil(found.spare * size)
    code = _CODE.format(
        selector="EdgeSelector" if is_edge else "Selector",
        policy=policy,
        size=size + spare,
        more=', budgets={"north": 4.0, "south": 4.0}' if is_edge else "",
        asked="" if rounds or is_edge else "at_most=free",
    )
    if when := [f"when {size} have answered"] * bool(spare) + ["at your deadline"] * (limit == "deadline"):
        code += f"# End a round {' or '.join(when)}; report later ones with late=[...]: the policy needs all times.\n"
    if own_data:
        code += "# Average with fedroster.aggregation.memory.UpdateMemory: what slow clients know stays in the model.\n"
    sys.stdout.write(f"{policy}: {find_policy(policy).summary}.\n\n{code}")
    where = "cocs/mnist" if is_edge else f"rbcs-f/table-1 --set num_clients={number} --set cohort_size={size}"
    wish = f" --every-client {100.0 * beta * (keep != 'nothing'):g}% --rounds-under 12s" * bool(spare)
    sys.stderr.write(
        f"\nTry it: fedroster {'plan' if spare else 'simulate'} {where}{wish} --policy {policy} --policy random\n"
    )


def _asked(what: str, given: Any, kind: Any, *, usual: bool | None = None) -> Any:
    """What was given, or an answer from the terminal; ``usual`` if there is none."""
    if given is not None or (usual is not None and not sys.stdin.isatty()):
        return usual if given is None else given
    sys.stderr.write(_QUESTIONS.get(what, what) + "\n")
    if not sys.stdin.isatty():
        raise InvalidInputError(f"{what} is not given; expected --{what}, because there is no terminal to ask at")
    answer = typer.prompt(what, type=kind if isinstance(kind, type) else str, default=usual, err=True)
    if not isinstance(kind, type):
        check_choice(what, answer, kind)
    return answer
