"""``fedroster cite``: BibTeX of the papers behind the policies."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.core.errors import InvalidInputError, UnknownNameError


@command()
def cite(
    name: Annotated[
        str | None, typer.Argument(help="Policy, such as rbcs-f, or fedroster; all papers if not given.")
    ] = None,
) -> None:
    """Print BibTeX of the paper behind a policy, or of fedroster."""
    from fedroster.catalogue import policies
    from fedroster.core.citation import SOFTWARE

    citations = {known: getattr(entry.make, "citation", "") for known, entry in policies().items()}
    citations["fedroster"] = SOFTWARE
    if name is None:
        sys.stdout.write("\n".join([*filter(None, dict.fromkeys(citations.values())), ""]))
    elif name not in citations:
        raise UnknownNameError.of("policy", name, citations)
    elif not citations[name]:
        raise InvalidInputError(f"policy {name} names no paper; expected BibTeX in its class attribute `citation`")
    else:
        sys.stdout.write(citations[name] + "\n")
