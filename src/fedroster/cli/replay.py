"""``fedroster replay``: what another policy would have done in a log's rounds."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption
from fedroster.cli.terminal import print_json, print_table, remark, say_when_compiling

_MEASURES = {
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
    from fedroster.record import Log
    from fedroster.replay import replay

    policies = {text: make_policy(text) for text in dict.fromkeys(policy)}
    log = Log(folder)
    say_when_compiling()
    found = replay(log, policies)
    rows = [
        {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in fields.items()}
        for fields in map(dataclasses.asdict, found)
    ]
    if as_json:
        print_json(rows)
        return
    title = f"{len(log.rounds)} rounds of {log.header.policy_text or log.header.policy}; 90 % intervals"
    headings = ["policy", "kind", "measure", "estimate", "interval", "counts for it"]
    told = [row for row in rows if row["refused"] is None]
    if told:
        print_table(headings, [_cells(row) for row in told], title=title, right=headings[3:], whole=headings)
    for row in rows:
        if row["refused"] is not None:
            remark(f"{row['policy']}, {row['kind']}, {_MEASURES[str(row['measure'])]}: {row['refused']}")


def _cells(row: dict[str, Any]) -> list[str]:
    interval = f"{row['low']:.4g} to {row['high']:.4g}"
    counted = f"{row['effective_sample_size']:,.0f}"
    return [row["policy"], row["kind"], _MEASURES[row["measure"]], f"{row['estimate']:.4g}", interval, counted]
