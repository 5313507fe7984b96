"""``fedroster data traces``: traces of devices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedroster.cli.command import command
from fedroster.cli.data import group as data_group
from fedroster.cli.options import JsonOption
from fedroster.cli.terminal import WIDE, out, print_json, print_table, remark

if TYPE_CHECKING:
    from fedroster.traces.describe import Description

group = typer.Typer(
    help="Convert, check and describe traces of devices.",
    no_args_is_help=True,
)
data_group.add_typer(group, name="traces")


@command(group=group)
def convert(
    source: Annotated[Path, typer.Argument(help="Table (.csv, .parquet), or folder with FedScale's pickles.")],
    target: Annotated[Path, typer.Argument(help="FILE.npz for a table, a folder for FedScale's.")],
    *,
    period: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Length of a table's trace; its last time if not given.")
    ] = None,
) -> None:
    """Convert traces once to what `--set traces=...` reads; a pickle's code is never run."""
    from fedroster.traces.describe import convert, describe

    for path in convert(source, target, period_s=period):
        remark(f"written to {path}")
    _print(describe(target))


@command(group=group)
def describe(
    path: Annotated[Path, typer.Argument(help=".npz of traces, table (.csv, .parquet), or folder of converted ones.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Check traces, and show their quantiles beside the published ones."""
    from fedroster.traces.describe import describe
    from fedroster.traces.population import LEVELS

    found = describe(path)
    if not as_json:
        _print(found)
        return
    rows = [{"what": row.what, "quantiles": row.values, "published": row.published} for row in found.quantiles()]
    print_json({"path": str(path), **found.counts(), "levels": LEVELS, "measures": rows})


def _print(found: Description) -> None:
    from rich.text import Text

    from fedroster.traces.population import LEVELS

    out().print("; ".join(found.sentences()), markup=False, soft_wrap=True)
    rows: list[list[str | Text]] = []
    for row in found.quantiles():
        rows.append([row.what, *(f"{value:.3g}" for value in row.values)])
        published = ["  published", *(f"{value:.3g}" for value in row.published)]
        rows.append([Text(text, style="dim") for text in published])
    levels = [f"{level:.0%}" for level in LEVELS]
    print_table(["share below", *levels], rows, right=levels, whole=["share below"], padding=WIDE)
