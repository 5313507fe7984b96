"""``fedroster replay``: what another policy would have done in a log's rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption
from fedroster.cli.terminal import print_json, print_table, remark, say_when_compiling

_HEADINGS = {
    "mean_round_time_s": "round, s",
    "min_participation_rate": "lowest rate",
    "deadline_misses": "misses",
}


@command()
def replay(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the log.")],
    *,
    policy: Annotated[list[str], typer.Option(metavar="NAME[:P=V,...]", help="Policy; may be repeated.")],
    as_json: JsonOption = False,
) -> None:
    """Estimate what other policies would have done in a log's rounds, with 90 % intervals, or say why not."""
    from fedroster.catalogue import make_policy
    from fedroster.lab.replay import replay
    from fedroster.record import Log

    policies = {text: make_policy(text) for text in dict.fromkeys(policy)}
    log = Log(folder)
    say_when_compiling()
    found = replay(log, policies)
    if as_json:
        print_json(found)
        return
    told = [
        (
            one.policy,
            _HEADINGS[one.measure],
            f"{one.estimate:.4g}",
            "in the log" if one.kind == "logged" else f"{one.low:.4g} to {one.high:.4g}",
        )
        for one in found
        if one.refused is None
    ]
    columns = ("policy", "measure", "estimate", "interval")
    title = f"{len(log.rounds)} rounds; 90 % intervals"
    print_table(columns, told, title=title, right=columns[2:], whole=columns[1:])
    for said in dict.fromkeys(f"{one.policy}: {one.remark}" for one in found if one.remark):
        remark(said)
