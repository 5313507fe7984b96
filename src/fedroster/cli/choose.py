"""``fedroster choose``: a policy for your situation."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

import typer

from fedroster.cli.command import command
from fedroster.core.errors import InvalidInputError

_QUESTIONS = """What do you want of the selection?
  short-rounds   rounds that do not wait for slow clients, while each client keeps a share
  most-updates   as many updates as possible by a deadline, at edge servers or within budgets
  private        privacy accounting that counts on uniform random sampling
  equal-turns    the same number of rounds for each client
"""


@command()
def choose(
    aim: Annotated[
        Literal["short-rounds", "most-updates", "private", "equal-turns"] | None,
        typer.Option(help="What the selection is for; asked if not given."),
    ] = None,
    clients: Annotated[int | None, typer.Option(min=1, help="Number of clients; asked if not given.")] = None,
    places: Annotated[int | None, typer.Option(min=1, help="Clients in a round; asked if not given.")] = None,
    share: Annotated[
        float | None, typer.Option(help="Share of the rounds that each client must have; half of the equal share.")
    ] = None,
) -> None:
    """Ask about your clients and your aim; print a suitable policy, and the code."""
    from fedroster.guide import advise

    if aim is None:
        sys.stderr.write(_QUESTIONS)
    wanted: Any = aim or _asked("aim", str)
    number, size = clients or _asked("clients", int), places or _asked("places", int)
    advice = advise(wanted, num_clients=number, cohort_size=size, share=share)
    sys.stdout.write(f"{advice.policy}: {advice.why}\n\n{advice.code}\n")
    sys.stderr.write(f"\nTry it: fedroster simulate {advice.scenario} --policy {advice.policy} --policy random\n")


def _asked(what: str, kind: type) -> Any:
    """An answer from the terminal."""
    if not sys.stdin.isatty():
        raise InvalidInputError(f"{what} is not given; expected --{what}, because there is no terminal to ask at")
    return typer.prompt(what, type=kind, err=True)
