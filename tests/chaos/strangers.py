"""What strangers made, given to everything that reads it: logs, folders, tables, rules, states and pages are data.

Nothing is written but what was asked for, nothing is connected to or started, no link is live, no line is forged, no
cell is a formula (:mod:`chaos.judge`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import random
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import fedroster
from chaos.judge import FORGED, Port, judge_file, judge_said, watched
from chaos.rows import Row
from fedroster.cli import app
from fedroster.core.errors import FedrosterError
from fedroster.engine.report import CsvLog, RoundSink

answered: Counter[str] = Counter()  # commands that ended with 0: others refuse what they are given
PORT = Port()
LONG = "x" * 10_000_000
FLOOR = fedroster.Floor(beta=0.01)
FEW = ("--policy", "random,floor", "--task", "none", "--rounds", "6", "--seeds", "0-1", "--workers", "1")


def names_at(home: Path) -> list[str]:
    """Hostile names; some are places in a home that is watched, and one is a port that listens."""
    outside = home / "outside" / "pwned"
    return [
        "../../outside/pwned", "..", ".", "/", "a/b", f"{outside}", f"file://{outside}", "~", "~root", "C:\\pwned",
        "\\\\host\\share", "CON", "nul.txt", "a:b", "trailing. ", "-", "--out=pwned", "*", "[a-z]*", "?",
        "%2e%2e%2fpwned", "$x_$ \\frac{1}{2}", f"$(touch {outside})", f"`touch {outside}`", f"; touch {outside} #",
        "${HOME}", "%PATH%", f"two\n{FORGED}", f"three\r\n{FORGED}\r", f"four\u2028{FORGED}\u2029", f"\x85{FORGED}",
        "a\x00b", '"><script>pwned()</script>', "' onclick=pwned() x='", "<img src=x onerror=pwned()>",
        "</script><script>pwned()", "<!--", "]]>", "<style>@import 'x'</style>", "&lt;b&gt;", "{{ 7 * 7 }}",
        "{% raw %}", "{raw}`x`", "[bold]x[/]", "[link=javascript:pwned()]x[/]", "\x1b[2J\x07",
        "\x1b]8;;http://x\x07y\x1b]8;;\x07", "\x9b31m", "\x08\x08\x7f", "\u202egpj.exe", "\u2066x\u2069", "\u200b",
        "\ufeff", "\udc80", "e\u0301" * 40, "=1+1", "@SUM(A1)", "\t=1+1", "\r=1+1", "\n=1+1", " =1+1",
        "+cmd|' /C calc'!A0", "-2+3", '=HYPERLINK("http://x","y")', "a,b;c\td|e", '"quoted"', "Case", "case", "CASE",
        "stra\u00dfe", "STRASSE", "javascript:pwned()", "[x](javascript:pwned())", "![x](http://x/y)", "[x]",
        "[x]: javascript:pwned()", "<http://x>", f"http://127.0.0.1:{PORT.number}/", "data:text/html,<b>", "```",
        "~~~ {include} /etc/passwd", "# head", "| a | b |", "\\", "\\]", "%s%n{}", "None", "NaN", "1e999", "-0",
        "x" * 1000,
    ]  # fmt: skip


@contextlib.contextmanager
def home_of(row: Row, rng: random.Random) -> Iterator[tuple[Path, list[str]]]:
    """A home that is watched, and hostile names in it."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch).resolve()
        for folder in ("outside", "asked", "cwd", "tmp"):
            (home / folder).mkdir()
        (home / "outside" / "whole.txt").write_text("whole\n")
        was, before = Path.cwd(), {name: os.environ.get(name) for name in ("HOME", "TMPDIR")}
        os.environ |= {"HOME": str(home), "TMPDIR": str(home / "tmp")}
        os.chdir(home / "cwd")
        try:
            names = names_at(home)
            rng.shuffle(names)
            yield home, names
        finally:
            os.chdir(was)
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def asked(row: Row, home: Path, mine: Path | None, *arguments: object) -> None:
    """Give a command, and judge what it says and writes; it ends with a status and never with a traceback."""
    case = " ".join(str(each).replace(str(home), "~")[:40] for each in arguments)
    with row.attempt(case), watched(home, mine, PORT, lambda words: row.fault(f"{words}: {case}")) as written:
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
    answered[row.what] += done.exit_code == 0
    answered[f"{arguments[0]} {arguments[1]}" if arguments[0] == "log" else str(arguments[0])] += done.exit_code == 0
    for said in (done.stdout, done.stderr):
        judge_said(said, lambda words: row.fault(f"{words}: {case}"))
    for file in written:
        try:
            judge_file(file, lambda words: row.fault(f"{words}: {case}"))
        except Exception as error:  # its parser refuses it
            row.fault(f"{file.name} is malformed, {type(error).__name__} {error}: {case}")


# -------------------------------------------------------------------- logs


class _Lines(logging.Handler):
    """Judges what is logged."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row

    def emit(self, record: logging.LogRecord) -> None:
        self.row.tries += 1
        judge_said(self.format(record), lambda words: self.row.fault(f"{words}: log line"))
        if "\n" in record.getMessage():
            self.row.fault(f"a line of a log is {record.getMessage()[:60]!r}")


def _play(row: Row, folder: Path, names: list[str], home: Path, rng: random.Random, *, contexts: bool) -> None:
    """Play a federation of hostile names, with a sink of each kind."""

    def show(report: Any) -> None:
        reasons = dict.fromkeys(report.clients, rng.choice(names))
        for level, line in type(report).lines(replace(report, reasons=reasons), {}):
            logging.getLogger("chaos.strangers").log(level, "%s", line)

    sinks = [RoundSink(show), CsvLog(home / "asked" / "rounds.csv")]
    record = fedroster.Record(folder)
    selector = fedroster.Selector(
        FLOOR, cohort_size=4, seed=rng.randrange(9), observers=[record, *sinks],
        **({"num_features": 2} if contexts else {}),
    )  # fmt: skip
    for name in names[:24]:
        with contextlib.suppress(FedrosterError):  # it reads as another's, or is none
            selector.join([name])
    with contextlib.suppress(FedrosterError):
        selector.rules = fedroster.Rules(allow=["*"], deny=names[:3])
    for _ in range(22):
        here = {name: [rng.random(), rng.random()] for name in selector.clients}
        cohort = selector.select(here) if contexts else selector.select()
        lost = [name for name in cohort.clients if rng.random() < 0.2]
        times_s = {name: 0.5 + rng.random() for name in cohort.clients if name not in lost}
        if cohort.clients:  # a name such as * denies all
            selector.observe(cohort.round, times_s=times_s, failed=lost, round_s=2.0)
    record.close()


def _craft(folder: Path, names: list[str], rng: random.Random) -> None:
    """Texts of a log are replaced, and its chain is made again: what a writer never lets in."""
    file = next(folder.glob("rounds-*.jsonl"))
    before, texts, at = hashlib.sha256(b"").hexdigest(), [], rng.randrange(6)
    long = rng.random() < 0.1
    for number, text in enumerate(file.read_text(encoding="utf-8").split("\n")[:-1], 1):
        line = json.loads(text)
        if number - 1 == at or rng.random() < 0.1:
            line = {key: each if key in ("kind", "format") else _spoilt(each, names, rng) for key, each in line.items()}
            if long and number - 1 == at:
                line |= {"policy": LONG} if "policy" in line else {"clients": [LONG]} if "clients" in line else {}
        raw = json.dumps(line | {"line": number, "before": before}).encode()
        before = hashlib.sha256(raw).hexdigest()
        texts.append(raw + b"\n")
    file.write_bytes(b"".join(texts))


def _spoilt(value: Any, names: list[str], rng: random.Random) -> Any:
    """The same with some texts and keys replaced."""
    if isinstance(value, dict):
        return {
            rng.choice(names) if rng.random() < 0.1 else key: _spoilt(each, names, rng) for key, each in value.items()
        }
    if isinstance(value, list):
        return [_spoilt(each, names, rng) for each in value]
    return rng.choice(names) if isinstance(value, str) and rng.random() < 0.4 else value


def logs(tries: int, rng: random.Random, *, crafted: bool) -> Row:
    how = "whose lines a stranger wrote, in a chain that holds" if crafted else "whose clients have hostile names"
    row = Row(f"logs {how}, given to each command that reads logs")
    handler = _Lines(row)
    logging.getLogger().addHandler(handler)
    for attempt in range(tries):
        with home_of(row, rng) as (home, names):
            folder = home / rng.choice(["log", "[a-z]", "~root", "=1+1", "$(touch pwned)", "a\x1b[2J", "<b>"])
            _play(row, folder, names, home, rng, contexts=attempt % 3 == 0)
            if crafted:
                _craft(folder, names, rng)
            _read(row, home, folder, names, rng)
    logging.getLogger().removeHandler(handler)
    row.note = f"{answered[row.what]} ended with status 0, the others refused"
    return row.done()


def _read(row: Row, home: Path, folder: Path, names: list[str], rng: random.Random) -> None:
    own = home / "asked"
    known = names[:24]
    asked(row, home, None, "log", "show", folder)
    asked(row, home, None, "log", "show", folder, "--json")
    asked(row, home, None, "log", "verify", folder)
    asked(row, home, None, "log", "verify", folder, "--json")
    for name in rng.sample(known, 2):
        asked(row, home, None, "log", "why", folder, name, 3)
        asked(row, home, None, "log", "report", folder, "--client", name)
    asked(row, home, own, "log", "report", folder, "--client", rng.choice(known), "--out", own / "letter.md")
    asked(row, home, own, "log", "export", folder, own / "table.csv")
    asked(row, home, own, "log", "export", folder, own / "table.parquet")
    (own / "link.html").symlink_to(home / "outside" / "new.html")  # whose place the reader chose: it may be followed
    (own / "link.html").unlink()
    asked(row, home, own, "log", "page", folder, "--out", own / "page.html")
    asked(row, home, own, "replay", folder, "--policy", "random")
    rules = home / "rules.toml"
    lists = {key: rng.sample(names, rng.choice([1, 4])) for key in ("allow", "deny")}
    text = "".join(f"{key} = {_toml(value)}\n" for key, value in lists.items())
    odd = f"[groups.{_toml(rng.choice(names))}]\nclients = {_toml(rng.sample(names, 3))}\nshare = 0.5\n"
    rules.write_text(text + odd * (rng.random() < 0.5), encoding="utf-8", errors="replace")
    asked(row, home, None, "plan", folder, "--rules", rules)
    wish = ("--every-client", "1%", "--rounds-under", "5s", "--policy", "random", "--seeds", "0")
    if rng.random() < 0.25:  # it takes seconds
        asked(row, home, own, "plan", folder, *wish, "--out", own / "plan.svg")
    if rng.random() < 0.25:
        asked(row, home, own, "plan", folder, *wish, "--json")


def _toml(value: Any) -> str:
    return json.dumps(value).replace("\\ud", "\\\\ud").replace("\x7f", "\\u007f")


# -------------------------------------------------------------------- folders


def _links(folder: Path, home: Path, rng: random.Random) -> None:
    """A part of a folder is a link that leads out of it."""
    targets = {file: home / "outside" / file.name for file in sorted(folder.rglob("*"))}
    part = rng.choice([*targets, folder / "report.html", folder / "index.md", folder / ".lock", folder / ".lock.json"])
    target = targets.get(part, home / "outside" / "whole.txt")
    if part.is_dir():
        shutil.copytree(part, target)
        shutil.rmtree(part)
    elif part.exists():
        shutil.copy(part, target)
        part.unlink()
    part.symlink_to(target)


def _change(folder: Path, home: Path, names: list[str], rng: random.Random) -> None:
    """Change one thing, a name everywhere, a table, or anything; or put a link into the folder."""
    file = rng.choice(sorted(folder.rglob("settings.json")))
    known, how = json.loads(file.read_text(encoding="utf-8")), rng.random()
    if how < 0.2:
        _links(folder, home, rng)
    elif how < 0.5:
        some = rng.sample(names, 3)
        field = rng.choice(["command", "machine", "left_out", "folders", "scenario", "settings", "omniscient", "task"])
        kinds = {dict: {each: rng.choice(names) for each in some}, list: some, str: some[0], type(None): None}
        known[field] = kinds[rng.choice([type(known.get(field, "")), type(known.get(field, "")), *kinds])]
        file.write_text(json.dumps(known), encoding="utf-8")
    elif how < 0.6:
        file.write_text(rng.choice(["[" * 200_000, '{"a":' * 100_000, json.dumps(known | {"command": LONG})]))
    elif how < 0.8:  # a policy or a scenario has another name in all texts
        name, old = rng.choice(names), rng.choice(["floor", "rbcs-f/table-1", "random"])
        for each in [*folder.rglob("settings.json"), *folder.rglob("rounds.csv")]:
            new = json.dumps(name)[1:-1] if each.suffix == ".json" else name.replace('"', "").replace("\n", " ")
            each.write_text(each.read_text().replace(old, new), encoding="utf-8", errors="replace")
    else:
        file.write_text(json.dumps(_spoilt(known, names, rng)), encoding="utf-8")


def folders(tries: int, rng: random.Random) -> Row:
    row = Row("folders of comparisons that a stranger made, drawn again")
    with tempfile.TemporaryDirectory() as made:
        one, several = Path(made) / "one", Path(made) / "several"
        both = ["--scenario", "rbcs-f/table-1", "--scenario", "rbcs-f/volatile"]
        for folder, scenarios in ((one, []), (several, both)):
            CliRunner().invoke(app, ["compare", *FEW, *scenarios, "--out", str(folder)], catch_exceptions=False)
        for _ in range(tries):
            with home_of(row, rng) as (home, names):
                mine = home / "asked" / rng.choice(["given", "given", "[a-z]", "~root", "$(touch x)", "a\x1b[2J"])
                shutil.copytree(rng.choice([one, several]), mine)
                (home / "asked" / "a").mkdir()  # what [a-z] would match
                _change(mine, home, names, rng)
                asked(row, home, mine, "compare", "--again", "--out", mine)
    row.note = f"{answered[row.what]} ended with status 0, the others refused"
    return row.done()


def gone_on(tries: int, rng: random.Random) -> Row:
    """Commands that go on in a folder: what a stranger left there is kept apart, or refused."""
    row = Row("folders of a comparison, a reproduction and a log that a stranger made, in which one goes on")
    paper = ["rbcs-f", "--figure", "3", "--seeds", "0-1", "--rounds", "20", "--workers", "1"]
    with tempfile.TemporaryDirectory() as made:
        compared, reproduced = Path(made) / "compared", Path(made) / "reproduced"
        CliRunner().invoke(app, ["compare", *FEW, "--out", str(compared)], catch_exceptions=False)
        CliRunner().invoke(app, ["reproduce", *paper, "--out", str(reproduced)], catch_exceptions=False)
        for attempt in range(tries):
            with home_of(row, rng) as (home, names):
                mine = home / "asked" / "given"
                if attempt % 3 == 2:
                    _go_on(row, home, mine, names, rng)
                    continue
                shutil.copytree(compared if attempt % 3 else reproduced, mine)
                _change(mine, home, names, rng)
                command = ["compare", *FEW] if attempt % 3 else ["reproduce", *paper]
                asked(row, home, mine, *command, "--out", mine)
    row.note = f"{answered[row.what]} ended with status 0, the others refused"
    return row.done()


def _go_on(row: Row, home: Path, mine: Path, names: list[str], rng: random.Random) -> None:
    """Open a log, with its states, that a stranger wrote."""
    clients = ["a", "b", "c", "d"]
    selector = fedroster.Selector.open(mine, FLOOR, clients=clients, cohort_size=2)
    for _ in range(3):
        cohort = selector.select()
        selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
    _closed(selector)
    how = rng.random()
    if how < 0.4:
        _links(mine, home, rng)
    elif how < 0.8:
        _craft(mine, names, rng)
    (mine / ".lock.json").unlink(missing_ok=True)
    (mine / ".lock.json").write_text(json.dumps(dict.fromkeys(("process", "host", "program", "since"), LONG)))
    with row.attempt("open"), watched(home, mine, PORT, lambda words: row.fault(f"{words}: open")):
        try:
            selector = fedroster.Selector.open(mine, FLOOR, cohort_size=2)
            if selector.clients:
                selector.select()
            _closed(selector)
            answered[row.what] += 1
        except FedrosterError as error:
            judge_said(str(error), lambda words: row.fault(f"{words}: open"))


def _closed(selector: Any) -> None:
    for observer in selector.observers:
        if isinstance(observer, fedroster.Record):
            observer.close()


def held(tries: int) -> Row:
    """A folder is held by another process, whose name a stranger wrote."""
    row = Row("a folder that is held, with a holder that a stranger wrote")
    for attempt in range(tries):
        with tempfile.TemporaryDirectory() as scratch:
            first, told = fedroster.Record(scratch), Path(scratch) / ".lock.json"
            nasty = names_at(Path(scratch))[attempt % 40] if attempt else LONG
            told.write_text(json.dumps(dict.fromkeys(("process", "host", "program", "since"), nasty)))
            with row.attempt("held"):
                try:
                    fedroster.Record(scratch)
                except FedrosterError as error:
                    judge_said(str(error), lambda words: row.fault(f"{words}: held"))
            first.close()
    return row.done()


# -------------------------------------------------------------------- tables and names


def tables(tries: int, rng: random.Random) -> Row:
    row = Row("tables of traces with hostile clients, values and file names")
    for _ in range(tries):
        with home_of(row, rng) as (home, names):
            file = home / "asked" / rng.choice(["t.csv", "[a-z].csv", "~root.csv", "a\x1b[2J.csv", "*.csv"])
            (home / "asked" / "b.csv").write_text("not this one\n")
            cells = [["client", "time", "available", "compute", "bandwidth"]]
            for number, name in enumerate(rng.sample(names, 6)):
                cells += [[f"{name}", "0", "1", "10", "5"], [name, str(90 + number), "0", "10", "5"]]
            if rng.random() < 0.7:
                rng.choice(cells)[rng.randrange(5)] = rng.choice([*names, LONG])
            text = "\n".join(",".join('"' + cell.replace('"', '""') + '"' for cell in line) for line in cells)
            file.write_text(text, encoding="utf-8", errors="replace")
            how = ["--policy", "random", "--rounds", "3", "--set", f"traces={file}", "--workers", "1"]
            asked(row, home, None, "simulate", "traces/devices", *how)
    row.note = f"{answered[row.what]} ended with status 0, the others refused"
    return row.done()


def run(size: float, seed: int) -> list[Row]:
    warnings.simplefilter("ignore")
    os.environ.pop("FEDROSTER_DEBUG", None)
    logging.disable(logging.NOTSET)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        rng = random.Random(seed)
        return [
            logs(max(2, round(30 * size)), rng, crafted=False),
            logs(max(2, round(30 * size)), rng, crafted=True),
            folders(max(10, round(240 * size)), rng),
            gone_on(max(6, round(60 * size)), rng),
            tables(max(4, round(60 * size)), rng),
            held(max(4, round(40 * size))),
        ]
