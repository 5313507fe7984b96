"""``fedroster data fetch``: a data set for training."""

from __future__ import annotations

from typing import Annotated

import typer

from fedroster.cli.command import app, command
from fedroster.cli.options import DataDirOption, complete
from fedroster.cli.terminal import interrupted, progress, remark

group = typer.Typer(help="Data sets for training.", no_args_is_help=True)
app.add_typer(group, name="data")


@command(group=group)
def fetch(
    name: Annotated[str, typer.Argument(help="Data set, such as mnist.", autocompletion=complete("DATASETS"))],
    *,
    data_dir: DataDirOption = None,
) -> None:
    """Download a data set from its published addresses; after an interruption the same command continues."""
    from fedroster.data.fetch import fetch
    from fedroster.data.load import data_folder, find_dataset

    source, root = find_dataset(name), data_folder(data_dir)
    with (
        interrupted(lambda: "the part that arrived is kept; run the same command to continue"),
        progress(source.title, of_bytes=True) as advance,
    ):
        location = fetch(source, root, progress=advance)
    remark(f"{source.title} lies in {location.folder}, and is the published data set")
