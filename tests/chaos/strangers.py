"""Folders, logs and rule files that strangers made, given to every command that reads them: they are data, never
commands.  Nothing is written but what was asked for, nothing is connected to, no link is live, no line is forged."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import tempfile
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import fedroster
from chaos.rows import Row, time_is_up
from fedroster.cli import app
from fedroster.core.errors import FedrosterError

answered: Counter[str] = Counter()  # commands that ended with 0: others refuse what they are given
BIG = "x" * 10_000_000
NASTY = [
    "../../pwned", "/tmp/pwned", "C:\\pwned", "a/b", "..", "$x_$ \\frac{1}{2}", "$(touch pwned)", "`touch pwned`",
    "two\nlines: round 9 begun", "a\rb", '"><script>alert(1)</script>', "' onclick=alert(1) x='", "\x1b[2J\x07",
    "\x1b]0;pwned\x07", "\u202egpj.exe", "\u200b", "\x9b31m", "=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3",
    "Case", "case", "CON", "nul.txt", "javascript:alert(1)", "[x](javascript:alert(1))", "file:///etc/passwd",
    "http://127.0.0.1:9/", "{{ 7 * 7 }}", "[bold]x[/]", "%s%n", "a,b", "<!--", "]]>", "\u2028", "x" * 1000,
]  # fmt: skip


@contextmanager
def watched(row: Row, home: Path, mine: Path, case: str) -> Iterator[None]:
    """Outside ``mine`` nothing in ``home`` changes, and nothing is connected to."""

    def seen() -> dict[str, bytes]:
        files = (each for each in home.rglob("*") if each.is_file() and mine not in [each, *each.parents])
        return {str(each): each.read_bytes() for each in files if ".lock" not in each.name}

    def connect(_: socket.socket, address: Any) -> None:
        row.fault(f"connects to {address}: {case}")
        raise OSError("no network here")

    before, really = seen(), socket.socket.connect
    socket.socket.connect = connect  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        socket.socket.connect = really  # type: ignore[method-assign]
    if changed := {name for name, _ in seen().items() ^ before.items()}:
        row.fault(f"writes {sorted(changed)[:2]}: {case}")


def asked(row: Row, home: Path, mine: Path, *arguments: object) -> str:
    """Give a command, and look at what it says and writes; a command ends with a status and never with a traceback."""
    case = " ".join(map(str, arguments))[:120]
    with row.attempt(case), watched(row, home, mine, case):
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        said, answered[row.what] = done.output, answered[row.what] + (done.exit_code == 0)
        if bad := {sign for sign in said if unicodedata.category(sign) in ("Cc", "Cf", "Cs") and sign != "\n"}:
            row.fault(f"shows {bad}: {case}")
        if "--json" not in arguments and re.search(r"^lines: round 9 begun", said, re.MULTILINE):
            row.fault(f"a line is forged: {case}")
        for file in (each for each in ([mine] if mine.is_file() else mine.rglob("*"))):
            look_at(row, file, case)
        return said
    return ""


def look_at(row: Row, file: Path, case: str) -> None:
    """No page has a live link, a tag or a script of a name; no table a formula."""
    if file.suffix == ".html":
        text = re.sub(r"<script>(?!alert).*?</script>", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"""(?:href|src|action)="([^"]*)\"""", text):
            if not link.startswith(("#", "./", "data:text/csv;")):
                row.fault(f"a link goes to {link[:60]!r} in {file.name}: {case}")
        if "<script>alert" in text or re.search(r"<[a-z][^>\"]*\sonclick=alert", text):
            row.fault(f"a name is markup in {file.name}: {case}")
    elif file.suffix == ".md":
        text = file.read_text(encoding="utf-8")
        if re.search(r"(?<!\\)\]\(\s*(?!\./|[\w-]+\.(svg|png)\))", text) or "<script" in text:
            row.fault(f"a link is live in {file.name}: {case}")
    elif file.suffix == ".csv" and file.name not in ("rounds.csv",):
        for cell in re.split(r"[,\n]", file.read_text(encoding="utf-8")):
            if re.match(r"\"?[=@+\t\r-]", cell) and not re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?|-inf", cell):
                row.fault(f"a cell is a formula, {cell[:40]!r} in {file.name}: {case}")


def _log(folder: Path, names: list[str], seed: int) -> None:
    rng, record = random.Random(seed), fedroster.Record(folder)
    selector = fedroster.Selector(fedroster.Floor(beta=0.01), cohort_size=3, seed=seed, observers=[record])
    for name in names:
        try:
            selector.join([name])
        except FedrosterError:  # it reads as another's
            continue
    for _ in range(12):
        cohort = selector.select()
        lost = [name for name in cohort.clients if rng.random() < 0.2]
        times_s = {name: 0.5 + rng.random() for name in cohort.clients if name not in lost}
        selector.observe(cohort.round, times_s=times_s, failed=lost, round_s=2.0)
    record.close()


def logs(tries: int, rng: random.Random) -> Row:
    row = Row("logs whose clients have hostile names, given to each command that reads logs")
    for attempt in range(tries):
        if time_is_up():
            break
        with tempfile.TemporaryDirectory() as scratch:
            home = Path(scratch)
            log, own = home / "log", home / "asked"
            own.mkdir()
            names = rng.sample(NASTY, 12)
            _log(log, names, attempt)
            none = home / "nothing"
            asked(row, home, none, "log", "show", log)
            asked(row, home, none, "log", "show", log, "--json")
            asked(row, home, none, "log", "verify", log)
            asked(row, home, none, "log", "why", log, rng.choice(names), 3)
            asked(row, home, none, "log", "why", log, "no such \x1b[2J", 3)
            asked(row, home, own, "log", "export", log, own / "table.csv")
            asked(row, home, own, "log", "page", log, "--out", own / "page.html")
            asked(row, home, own, "log", "report", log, "--client", names[0], "--out", own / "letter.md")
            asked(row, home, own, "replay", log, "--policy", "random", "--out", own / "replay")
            rules = home / "rules.toml"
            rules.write_text(f"deny = {json.dumps(rng.sample(NASTY, 5))}\nallow = ['*']\n", encoding="utf-8")
            asked(row, home, none, "plan", log, "--rules", rules)
    row.note = f"{answered[row.what]} ended with status 0, the others refused"
    return row.done()


def _spoilt(value: Any, rng: random.Random) -> Any:
    """The same with some texts, keys and numbers replaced."""
    if isinstance(value, dict):
        return {rng.choice(NASTY) if rng.random() < 0.1 else key: _spoilt(each, rng) for key, each in value.items()}
    if isinstance(value, list):
        return [_spoilt(each, rng) for each in value]
    return rng.choice(NASTY) if rng.random() < 0.25 else value


def folders(tries: int, rng: random.Random) -> Row:
    row = Row("folders of comparisons whose settings and tables a stranger wrote, drawn again")
    with tempfile.TemporaryDirectory() as made:
        one, several = Path(made) / "one", Path(made) / "several"
        few = ["--policy", "random,floor", "--task", "none", "--rounds", "6", "--seeds", "0-1", "--workers", "1"]
        both = ["--scenario", "rbcs-f/table-1", "--scenario", "rbcs-f/volatile"]
        for folder, scenarios in ((one, []), (several, both)):
            CliRunner().invoke(app, ["compare", *few, *scenarios, "--out", str(folder)], catch_exceptions=False)
        for _ in range(tries):
            if time_is_up():
                break
            with tempfile.TemporaryDirectory() as scratch:
                home = Path(scratch)
                mine = home / "a" / "b" / "given"
                shutil.copytree(rng.choice([one, several]), mine)
                (home / "pwned").write_text("whole")
                file = rng.choice(sorted(mine.rglob("settings.json")))
                known = json.loads(file.read_text(encoding="utf-8"))
                if rng.random() < 0.4:  # one thing at a time gets further
                    fields = ["command", "machine", "left_out", "folders", "scenario", "settings", "omniscient"]
                    name = rng.choice(fields)
                    some = rng.sample(NASTY, 3)
                    kinds = {dict: {nasty: rng.choice(NASTY) for nasty in some}, list: some, str: some[0]}
                    known[name] = kinds[rng.choice([type(known.get(name, "")), *kinds])]
                    file.write_text(json.dumps(known), encoding="utf-8")
                elif rng.random() < 0.5:
                    _rename(mine, rng.choice(NASTY))
                else:
                    file.write_text(json.dumps(_spoilt(known, rng)), encoding="utf-8")
                asked(row, home, mine, "compare", "--again", "--out", mine)
    row.note = f"{answered[row.what]} ended with status 0, the others refused"
    return row.done()


def _rename(folder: Path, name: str) -> None:
    """A policy has another name in all texts of a folder."""
    for file in [*folder.rglob("settings.json"), *folder.rglob("rounds.csv")]:
        new = json.dumps(name)[1:-1] if file.suffix == ".json" else name.replace('"', "").replace("\n", " ")
        file.write_text(file.read_text(encoding="utf-8").replace("floor", new), encoding="utf-8")


def long_names(tries: int) -> Row:
    row = Row("an id of 10 MB joins, and is asked for")
    for _ in range(tries):
        selector = fedroster.Selector(fedroster.Floor(beta=0.1), cohort_size=1, clients=["a", "b"])
        for call in (selector.join, selector.leave):
            with row.attempt("10 MB"):
                try:
                    call([BIG])
                except FedrosterError as error:
                    if len(str(error)) > 2_000:
                        row.fault(f"a message of {len(str(error))} characters")
                    continue
                row.fault("an id of 10 MB is accepted")
    return row.done()


def run(size: float, seed: int) -> list[Row]:
    warnings.simplefilter("ignore")
    os.environ.pop("FEDROSTER_DEBUG", None)
    rng = random.Random(seed)
    return [logs(max(2, round(40 * size)), rng), folders(max(10, round(600 * size)), rng), long_names(2)]
