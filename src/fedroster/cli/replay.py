"""``fedroster replay``: what another policy would have done in a log's rounds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption, check_folder, this_command
from fedroster.cli.terminal import print_json, print_table, remark, say_when_compiling


@command()
def replay(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the log.")],
    *,
    policy: Annotated[list[str], typer.Option(metavar="NAME[:P=V,...]", help="Policy; may be repeated.")],
    out: Annotated[Path | None, typer.Option(help="Folder for a page with the estimates.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate what other policies would have done in a log's rounds, with 90 % intervals, or say why not."""
    from fedroster.catalogue import make_policy
    from fedroster.lab.pages.replay_page import COLUMNS, cells, reasons, replay_page
    from fedroster.lab.replay import replay
    from fedroster.record import Log

    if out is not None:
        check_folder(out)
    policies = {text: make_policy(text) for text in dict.fromkeys(policy)}
    log = Log(folder)
    say_when_compiling()
    found = replay(log, policies)
    if out is not None:
        replay_page(log, found, out, command=this_command())
    if as_json:
        print_json([dataclasses.asdict(one) for one in found])
        return
    title = f"{len(log.rounds)} rounds; 90 % intervals"
    told = [cells(one) for one in found if one.refused is None]
    columns = [heading.replace("counts ", "counts\n") for heading in COLUMNS]
    print_table(columns, told, title=title, right=columns[2:], whole=columns[1:])
    for said in reasons(found):
        remark(": ".join(said))
