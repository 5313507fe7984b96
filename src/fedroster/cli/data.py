"""``fedroster data fetch``: a data set for training."""

from __future__ import annotations

from typing import Annotated

import typer

from fedroster.cli.command import app, command
from fedroster.cli.options import DataDirOption, complete
from fedroster.cli.terminal import progress, remark

group = typer.Typer(help="Data sets for training.", no_args_is_help=True)
app.add_typer(group, name="data")


@command(group=group)
def fetch(
    name: Annotated[str, typer.Argument(help="Such as mnist.", autocompletion=complete("lab.data.load.DATASETS"))],
    *,
    data_dir: DataDirOption = None,
) -> None:
    """Download a data set from its published addresses; what is there already is kept."""
    from fedroster.lab.data.load import fetch_dataset

    with progress(name, of_bytes=True) as advance:
        folder = fetch_dataset(name, folder=data_dir, progress=advance)
    remark(f"{name} lies in {folder}, and is the published data set")
