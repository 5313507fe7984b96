"""``fedroster watch``: a page that follows the record of a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedroster.cli.command import command
from fedroster.cli.terminal import remark
from fedroster.core.errors import MissingDependencyError


@command()
def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the log.")],
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 for a free one.")] = 8765,
) -> None:
    """Serve a page on this machine that shows which clients were chosen and why, and follows a running federation."""
    try:
        from fedroster.watch.server import serving
    except ModuleNotFoundError as error:
        raise MissingDependencyError.of(error.name or "werkzeug", "watch") from error
    server = serving(folder, port)
    remark(f"http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()
