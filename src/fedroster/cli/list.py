"""``fedroster list``: the catalogue."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption
from fedroster.cli.terminal import WIDE, out, print_json, print_table, remark
from fedroster.core.errors import UnknownNameError

if TYPE_CHECKING:
    from fedroster.catalogue import Entry

_WHAT = ("policies", "scenarios", "tasks", "data")


@command("list")
def list_(
    what: Annotated[
        str | None, typer.Argument(metavar="[policies|scenarios|tasks|data]", help="All if not given.")
    ] = None,
    *,
    search: Annotated[
        str, typer.Option(metavar="TEXT", help="Only entries with this text in their name, description or source.")
    ] = "",
    long: Annotated[bool, typer.Option("--long", help="With parameters and their defaults.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List policies, scenarios, tasks and data sets: name, one line, source."""
    if what is not None and what.casefold() not in _WHAT:
        raise UnknownNameError.of("part of the catalogue", what, _WHAT)
    wanted = _WHAT if what is None else (what.casefold(),)
    groups = {name: rows for name, rows in _groups().items() if name in wanted}
    found = {
        name: {key: row for key, row in rows.items() if search.casefold() in f"{key} {row[0]} {row[1]}".casefold()}
        for name, rows in groups.items()
    }
    if as_json:
        print_json({name: [_facts(key, *row) for key, row in rows.items()] for name, rows in found.items()})
        return
    for name, rows in found.items():
        if rows:
            more = [_parameters(entry) if entry else "-" for _, _, entry in rows.values()] if long else []
            columns = ("name", "what", "source", *(["parameters"] if long else []))
            cells = [(key, row[0], row[1], *more[place : place + 1]) for place, (key, row) in enumerate(rows.items())]
            print_table(columns, cells, title=name, whole=["name"], padding=WIDE)
            out().print()
    if not any(found.values()):
        remark(f"nothing has {search!r} in its name, description or source")
    elif not long and sys.stderr.isatty():
        remark("--long: parameters; list policies, list scenarios, list tasks, list data; --search TEXT")


def _groups() -> dict[str, dict[str, tuple[str, str, Entry | None]]]:
    """By group and name: the line, the source, and the entry of what is made by name."""
    from fedroster.catalogue import DATASETS, TASKS, policies, scenarios

    groups: dict[str, dict[str, tuple[str, str, Entry | None]]] = {
        group: {name: (entry.summary, entry.source, entry) for name, entry in entries.items()}
        for group, entries in (("policies", policies()), ("scenarios", scenarios()))
    }
    for group, rows in (("tasks", TASKS), ("data", DATASETS)):
        groups[group] = {name: (*row, None) for name, row in rows.items()}
    return groups


def _facts(name: str, summary: str, source: str, entry: Entry | None) -> Mapping[str, Any]:
    facts: dict[str, Any] = {"name": name, "summary": summary, "source": source}
    return facts | ({"parameters": entry.parameters()} if entry else {})


def _parameters(entry: Entry) -> str:
    from fedroster.catalogue import AUTOMATIC

    def shown(value: Any) -> str:
        if value is None:
            return AUTOMATIC
        return "/".join(f"{part:g}" for part in value) if isinstance(value, tuple) else str(value)

    return ", ".join(f"{name}={shown(value)}" for name, value in entry.parameters().items()) or "-"
