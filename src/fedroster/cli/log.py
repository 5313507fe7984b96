"""``fedroster log``: read the record of a federation: what was decided and why."""

from __future__ import annotations

import dataclasses
import math
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedroster.cli.command import app, command
from fedroster.cli.options import JsonOption, read_range
from fedroster.cli.terminal import print_json, print_table, remark, say
from fedroster.core.checks import counted, shown
from fedroster.core.errors import ConfigurationError, LogFileError, MissingDependencyError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedroster.core.ids import ClientId
    from fedroster.core.protocols import AnyPolicy
    from fedroster.record import Log, LoggedRound
    from fedroster.record.verify import Verified

group = typer.Typer(help="Read, check and export the log that a Record keeps.", no_args_is_help=True)
app.add_typer(group, name="log")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the log.")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", metavar="NAME[:P=V,...]", help="The policy, if it is not in the catalogue.")
]
_NAMED = 8  # clients that a table names
_SHOWN = 20  # rounds, if nothing is said
_DIFFERENCES = 10


@command(group=group)
def show(
    folder: Folder,
    *,
    rounds: Annotated[
        str | None, typer.Option(metavar="FIRST-LAST", help="Rounds, such as 10-20; the last 20 if not given.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show rounds: which clients were available, which were chosen, and what they answered."""
    from fedroster.record import Log

    log = Log(folder)
    wanted = list(log.rounds[-_SHOWN:])
    if rounds is not None:
        if (ends := read_range(rounds)) is None:
            raise ConfigurationError(f"--rounds is {shown(rounds)}; expected something like 10-20, the lower first")
        wanted = [played for played in log.rounds if ends[0] <= played.round <= ends[1]]
    rows = [_row(log, played) for played in wanted]
    if as_json:
        print_json(rows)
        return
    header = log.header
    say(f"{header.policy}, {counted(len(log.rounds), 'round')}, {counted(log.num_lines, 'line')}")
    columns = ["round", "at", "there", "kept out", "round, s", "came", "cohort"]
    cells = [*map(_cells, rows, wanted)]
    print_table(columns, cells, right=columns[:1] + columns[2:6], whole=columns[:6])
    if log.lacks:
        say(log.lacks)


def _row(log: Log, played: LoggedRound) -> dict[str, Any]:
    from fedroster.core.problem import Status

    ids = log.ids_at(played.round)
    return {
        "round": played.round,
        "at_s": played.at_s,
        "members": int(played.members.sum()),
        "available": int((played.available & played.members).sum()),
        "excluded": {reason: slots.shape[0] for reason, slots in played.excluded.items()},
        "cohort": [ids[slot] for slot in played.chosen.tolist()],
        "status": [None if each == 255 else Status(each).name.lower() for each in played.status.tolist()],
        "time_s": played.exchange_time_s.tolist(),
        "round_s": played.round_s,
        "used_s": played.used_s,
    } | ({"not_begun": played.not_begun} if played.not_begun else {})


def _cells(row: dict[str, Any], played: LoggedRound) -> list[str]:
    """A round as a table shows it, by the columns of :func:`show`."""
    in_time = sum(status == "completed" for status in row["status"])
    more = len(row["cohort"]) - _NAMED
    named = ", ".join(map(str, row["cohort"][:_NAMED])) + (f" and {more} more" if more > 0 else "")
    return [
        str(row["round"]),
        played.at,
        f"{row['available']} of {row['members']}",
        str(sum(row["excluded"].values())),
        "" if math.isnan(row["round_s"]) else f"{row['round_s']:.3g}",
        f"{in_time} of {len(row['cohort'])}",
        played.not_begun or named,
    ]


@command(group=group)
def why(
    folder: Folder,
    client: Annotated[str, typer.Argument(help="The client's id in the log.")],
    round: Annotated[int, typer.Argument(help="The round.")],
    *,
    policy: PolicyOption = None,
) -> None:
    """Say in a sentence why a client was chosen in a round, or was not, and what would have turned the decision."""
    from fedroster.record import Log
    from fedroster.record.why import why

    log = Log(folder)
    named = _client(client, [*log.ids_at(round), *log.ids])
    say(why(log, named, round, _policy(folder, policy)[0]))


@command(group=group)
def report(
    folder: Folder,
    *,
    client: Annotated[str, typer.Option(help="The client's id in the log.")],
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.md", help="Where it goes; printed if not given.")
    ] = None,
    policy: PolicyOption = None,
) -> None:
    """Write the letter about one client: its rounds, why it was not chosen, its share against the promise."""
    from fedroster.core.state import write_text_atomically
    from fedroster.record import Log
    from fedroster.record.letter import letter

    log = Log(folder)
    ids = (each for played in log.rounds for each in log.ids_at(played.round))
    said = letter(log, _client(client, ids), _policy(folder, policy)[0])
    if file is None:
        say(said.rstrip("\n"), keep="\n")
    else:
        write_text_atomically(file, said)
        remark(f"written to {file}")


def _client(text: str, ids: Iterable[ClientId | None]) -> ClientId:
    """The client that a text names."""
    return next((each for each in ids if each is not None and str(each) == text), text)


@command(group=group)
def export(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Where the table goes; FILE.parquet with polars.")],
    *,
    cohorts: Annotated[bool, typer.Option("--cohorts", help="Only clients that were chosen, not all members.")] = False,
) -> None:
    """Write a table with a row for each member and round."""
    from fedroster.record import Log
    from fedroster.record.export import write_csv

    log = Log(folder)
    if file.suffix == ".parquet":
        with TemporaryDirectory(dir=file.parent) as beside:
            write_csv(log, table := Path(beside) / "log.csv", cohorts=cohorts)
            _write_parquet(table, file)
    else:
        write_csv(log, file, cohorts=cohorts)
    remark(f"written to {file}")


def _write_parquet(table: Path, file: Path) -> None:
    """Write a log's table as Parquet; it may be larger than the memory."""
    from fedroster.core.state import write_atomically

    try:
        import polars
    except ModuleNotFoundError as error:
        raise MissingDependencyError.of("polars", "study") from error
    with table.open(encoding="utf-8") as lines:
        types: dict[str, Any] = dict.fromkeys(lines.readline().rstrip("\n").split(","), polars.Float64)
    types |= dict.fromkeys(("client", "excluded", "status"), polars.String)
    types |= dict.fromkeys(("available", "chosen"), polars.Boolean) | dict.fromkeys(("round", "server"), polars.Int64)
    write_atomically(file, polars.scan_csv(table.resolve(), schema=types, glob=False).sink_parquet)


@command(group=group)
def page(
    folder: Folder,
    *,
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.html", help="Where it goes; DIR.html here if not given.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Write it again whenever the log has grown; Ctrl-C ends it.")
    ] = False,
) -> None:
    """Write a page that shows who was promised what and got it, and how long rounds take."""
    from fedroster.core.state import write_text_atomically
    from fedroster.lab.pages.log_page import View, page_of
    from fedroster.lab.pages.log_page import follow as follow_log
    from fedroster.record import Log

    file = file or Path(f"{folder.resolve().name}.html")
    if follow:
        remark(f"{file.resolve().as_uri()} follows {folder} (Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):
            follow_log(folder, file)
        return
    write_text_atomically(file, page_of(View(Log(folder)), folder))
    remark(f"written to {file}")


@command(group=group)
def verify(
    folder: Folder,
    *,
    policy: PolicyOption = None,
    head: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="Digest of an earlier last line, which must be in the log."),
    ] = None,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="Exit with 0 although rounds are missing, or a state is not verified.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that no line was changed, removed or moved, and that the policy decides as the log says."""
    from fedroster.record.verify import verify

    known, why_not = _policy(folder, policy)
    found = verify(folder, known, head=head, allow_gaps=allow_gaps, why_not=why_not)
    if as_json:
        print_json(dataclasses.asdict(found) | {"is_whole": found.is_whole})
    else:
        for line in _findings(found):
            say(line)
    if not found.is_whole:
        raise typer.Exit(1)


def _policy(folder: Path, text: str | None) -> tuple[AnyPolicy | None, str]:
    """The policy of a log, and why it is not known if it is not."""
    from fedroster.catalogue import make_policy, policy_of_label
    from fedroster.folder.chain import lines_of
    from fedroster.record import BegunLine

    if text is not None:
        return make_policy(text), ""
    with suppress(LogFileError):  # then this is what is wrong
        first = next(iter(lines_of(folder)), None)
        if first is not None and isinstance(first.content, BegunLine):
            known = first.content.policy_text
            try:
                return make_policy(known) if known else policy_of_label(first.content.policy), ""
            except UnknownNameError as error:
                return None, str(error).rstrip(".")
    return None, "the policy cannot be read"


def _findings(found: Verified) -> list[str]:
    """What was found, in plain sentences."""
    whole = f"{counted(found.num_lines, 'line')} in {counted(found.num_files, 'file')}"
    lines = [f"Chain: {whole}, each line holds the digest of the one before it."]
    if found.flaw:
        lines = [f"NOT WHOLE after {whole}: {found.flaw}"]
    if found.policy:
        rounds = f"rounds {found.first_round} to {found.last_round}" if found.num_rounds else "no rounds"
        lines.append(f"Log of {found.policy}, seed {found.seed}: {rounds}.")
    if found.torn:
        lines.append(f"The last line is incomplete ({found.torn} bytes), as after a killed process: it was skipped.")
    for start in found.starts:
        lines.append(f"{'Allowed' if found.allowed else 'NOT VERIFIED'}: {start}.")
    if found.undone:
        some = ", ".join(f"{number:,}" for number in found.undone[:_DIFFERENCES])
        some = f"line{'s' * (len(found.undone) > 1)} {some}{', ...' * (len(found.undone) > _DIFFERENCES)}"
        lines.append(f"{len(found.undone):,} lines were taken back and count for nothing: {some}.")
    if found.num_not_begun:
        lines.append(f"{found.num_not_begun:,} of the rounds could not begin.")
    lines += _decisions(found)
    if not found.same_code:
        lines.append("The log was written by another version of fedroster's code.")
    return [*lines, *_anchor(found)]


def _decisions(found: Verified) -> list[str]:
    """What deciding again has shown."""
    from fedroster.record.following import DIGITS

    made_again = f"{found.num_decided:,} of {found.num_rounds:,} were made again"
    if found.unverified:
        return [f"Decisions: not verified: {found.unverified}."]
    if found.differences and found.largest <= DIGITS:
        by = f"numbers differ by at most {found.largest:.1g} of themselves, as on another processor"
        return [f"Decisions: {made_again}; the cohorts are the same, {by}."]
    if found.differences:
        lines = [f"DECISIONS DIFFER from what the policy says, in {len(found.differences):,} lines:"]
        shown = found.differences[:_DIFFERENCES]
        return lines + [f"  line {each.line}, round {each.round}: {', '.join(each.what)}" for each in shown]
    unknown = f"; {found.num_unknown:,} have no contexts" if found.num_unknown else ""
    return [f"Decisions: {made_again} and are the same, bit for bit{unknown}."]


def _anchor(found: Verified) -> list[str]:
    """What the digest of the last line shows, and what only it can show."""
    if found.anchor is None:
        return [
            f"Head: {found.head}",
            "A chain alone cannot show that lines were cut off its end, or that all of it was written again: "
            "keep the head elsewhere, and give it with --head.",
        ] * (not found.flaw)
    if found.anchor == 0:
        return ["HEAD NOT FOUND: lines were cut off, the log was written again, or it is another log's head."]
    after = found.num_lines - found.anchor
    return [f"Head: found at line {found.anchor:,}" + (f"; {after:,} lines came after it." if after else ".")]
