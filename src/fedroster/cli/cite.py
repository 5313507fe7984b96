"""``fedroster cite``: BibTeX of the papers behind the policies."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.core.errors import InvalidInputError


@command()
def cite(
    name: Annotated[
        str | None, typer.Argument(help="Policy, such as rbcs-f, or fedroster; all papers if not given.")
    ] = None,
) -> None:
    """Print BibTeX of the paper behind a policy, or of fedroster."""
    from fedroster.catalogue import find_policy, policies
    from fedroster.core.citation import SOFTWARE

    if name is None:
        papers = [getattr(entry.make, "citation", "") for entry in policies().values()]
        sys.stdout.write("\n".join([*filter(None, dict.fromkeys([*papers, SOFTWARE])), ""]))
        return
    citation = SOFTWARE if name.casefold() == "fedroster" else getattr(find_policy(name).make, "citation", "")
    if not citation:
        raise InvalidInputError(f"policy {name} names no paper; expected BibTeX in its class attribute `citation`")
    sys.stdout.write(citation + "\n")
