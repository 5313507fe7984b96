"""Logs of decisions under attack: bytes and lines that are changed, crafted lines, and writers that are killed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from chaos.children import end, fork
from chaos.rows import Row, time_is_up
from fedroster import COCS, RBCSF, EdgeSelector, Floor, Record, Rules, Selector
from fedroster.core.errors import FedrosterError
from fedroster.policies import E3CS
from fedroster.record import Log, verify

CLIENTS = [f"site-{number}" for number in range(12)]


def live(selector: Selector, rounds: int, rng: random.Random) -> None:
    """Rounds with absence, late and missing answers, and clients that come and go."""
    for _ in range(rounds):
        here = [client for client in selector.clients if rng.random() < 0.8]
        if isinstance(selector, EdgeSelector):
            near = {client: rng.sample(["n", "s"], rng.randint(1, 2)) for client in here}
            cohort = selector.select({client: [rng.random()] for client in here}, servers=near)
        else:
            cohort = selector.select({client: [0.5 + rng.random(), rng.random()] for client in here})
        for number, waiting in list(selector.open_rounds().items()):
            answered = [client for client in waiting if rng.random() < 0.7]
            failed = [client for client in answered if rng.random() < 0.2]
            times_s = {client: 0.5 + rng.random() for client in answered if client not in failed}
            if answered:
                selector.observe(number, times_s=times_s, failed=failed, round_s=3.0)
        if rng.random() < 0.1:
            gone = rng.choice(selector.clients)
            selector.leave([gone], forget=rng.random() < 0.5)
            selector.join([gone])
        assert cohort.round == selector.round


def made(folder: Path, kind: str, seed: int) -> Any:
    """A log of some kind; returns its policy."""
    policy = {"floor": Floor(beta=0.05), "e3cs": E3CS(), "cocs": COCS(), "rotated": RBCSF(V=5.0, beta=0.05)}[kind]
    options: dict[str, Any] = {"cohort_size": 3, "clients": CLIENTS, "seed": seed}
    record = Record(folder, rotate_bytes=6000 if kind == "rotated" else 2**24)
    if kind == "cocs":
        selector: Selector = EdgeSelector(policy, budgets={"n": 2.0, "s": 2.0}, observers=[record], **options)
    else:
        rules = Rules(deny=["site-1"]) if kind == "floor" else None
        selector = Selector(policy, observers=[record], rules=rules, **options)
    live(selector, 25, random.Random(seed))
    record.close()
    return policy


def lines_of(file: Path) -> list[bytes]:
    return file.read_bytes().splitlines(keepends=True)


def put(file: Path, lines: list[bytes]) -> None:
    file.write_bytes(b"".join(lines))


def flip(file: Path, rng: random.Random) -> str:
    raw = bytearray(file.read_bytes())
    at = rng.randrange(len(raw))
    raw[at] ^= 1 << rng.randrange(8)
    file.write_bytes(raw)
    return f"bit of byte {at}"


def cut(file: Path, rng: random.Random) -> str:
    at = rng.randrange(file.stat().st_size)
    os.truncate(file, at)
    return f"cut at {at}"


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(1, 200)).replace(b"\n", b"") + b"\n"


def on_lines(change: Callable[..., list[bytes]]) -> Callable[[Path, random.Random], str]:
    """A change of a line, given the lines before and after it."""

    def attack(file: Path, rng: random.Random) -> str:
        lines = lines_of(file)
        at = rng.randrange(len(lines) - 1)
        put(file, change(lines[:at], lines[at], lines[at + 1 :], rng))
        return f"line {at + 1}"

    return attack


ATTACKS: dict[str, Callable[[Path, random.Random], str]] = {
    "a bit of a log is flipped": flip,
    "a log is cut off anywhere": cut,
    "two lines change places": on_lines(lambda head, line, tail, rng: [*head, tail[0], line, *tail[1:]]),
    "a line is doubled": on_lines(lambda head, line, tail, rng: [*head, line, line, *tail]),
    "a line is removed": on_lines(lambda head, line, tail, rng: head + tail),
    "the last lines are removed": on_lines(lambda head, line, tail, rng: [*head, line]),
    "noise is put between lines": on_lines(lambda head, line, tail, rng: [*head, noise(rng), line, *tail]),
    "a line is another one's copy": on_lines(lambda head, line, tail, rng: [*head, rng.choice(head + tail), *tail]),
}


def content_of(folder: Path) -> dict[str, bytes]:
    """What a log's files say."""
    return {file.name: file.read_bytes() for file in sorted(folder.glob("rounds-*"))}


def changed(
    row: Row,
    attack: Callable[[Path, random.Random], str],
    base: Path,
    policies: dict[str, Any],
    tries: int,
    rng: random.Random,
) -> None:
    """Each change of a log's content must be found by one who has kept its head."""
    heads = {kind: Log(base / kind).head for kind in policies}
    whole = {kind: content_of(base / kind) for kind in policies}
    for _ in range(tries):
        if time_is_up():
            break
        kind = rng.choice(list(policies))
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "log"
            shutil.copytree(base / kind, folder)
            file = rng.choice([file for file in sorted(folder.glob("rounds-*")) if len(lines_of(file)) > 2])
            case = f"{kind}, {file.name}, {attack(file, rng)}"
            if content_of(folder) == whole[kind]:
                continue
            with row.attempt(case):
                if verify(folder, policies[kind], head=heads[kind]).is_whole:
                    row.fault(f"not found: {case}")
            with row.attempt(f"read, {case}"):
                for each in Log(folder).rounds:
                    assert each.round > 0
            with row.attempt(f"opened, {case}"):
                Record(folder).close()


ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 1e308, -1e308, 0.5, "", "x" * 50, [], [[]], {}, [0] * 70, [1e400], ["a"],
    {"n": 2**40, "z": ""}, {"n": 3, "z": "eJw="}, "all", "none", "chosen",
)  # fmt: skip


def crafted_line(line: dict[str, Any], rng: random.Random) -> str:
    names = [name for name in line if name not in ("line", "before")]
    name = rng.choice(names)
    how = rng.random()
    if how < 0.2:
        del line[name]
    elif how < 0.4 and isinstance(line[name], list) and line[name]:
        line[name][rng.randrange(len(line[name]))] = rng.choice(ODD)
    elif how < 0.6 and isinstance(line[name], dict) and line[name]:
        line[name][rng.choice(list(line[name]))] = rng.choice(ODD)
    else:
        line[name] = rng.choice(ODD)
    return f"{line.get('kind')}.{name}"


def crafted(row: Row, base: Path, policies: dict[str, Any], tries: int, rng: random.Random) -> None:
    """Lines with odd values, in a chain that is made again: errors are fedroster's own, and memory stays small."""
    for _ in range(tries):
        if time_is_up():
            break
        kind = rng.choice([kind for kind in policies if kind != "rotated"])
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "log"
            shutil.copytree(base / kind, folder)
            file = next(folder.glob("rounds-*"))
            lines = [json.loads(line) for line in lines_of(file)]
            at = rng.randrange(len(lines))
            case = f"{kind}, line {at + 1}, {crafted_line(lines[at], rng)}"
            before, texts = hashlib.sha256(b"").hexdigest(), []
            for number, line in enumerate(lines, 1):
                text = json.dumps({**line, "line": number, "before": before}).encode()
                before = hashlib.sha256(text).hexdigest()
                texts.append(text + b"\n")
            put(file, texts)
            with row.attempt(f"verified, {case}"):
                verify(folder, policies[kind])
            with row.attempt(f"read, {case}"):
                for each in Log(folder).rounds:
                    assert each.round > 0
            with row.attempt(f"rebuilt, {case}"):
                Log(folder).selector(policies[kind])


def killed(row: Row, tries: int, rng: random.Random) -> None:
    """A writer is killed at any moment: what it acknowledged is in the log, and the log goes on."""
    policy = RBCSF(V=5.0, beta=0.05)
    for number in range(tries):
        if time_is_up():
            break
        with tempfile.TemporaryDirectory() as scratch:
            folder, acknowledged = Path(scratch) / "log", Path(scratch) / "ack"
            seed = rng.randrange(2**31)

            def work(folder: Path = folder, acknowledged: Path = acknowledged, seed: int = seed) -> None:
                record = Record(folder, rotate_bytes=5000)
                selector = Selector(policy, cohort_size=3, clients=CLIENTS, observers=[record])
                with acknowledged.open("ab", buffering=0) as ack:
                    while True:
                        live(selector, 1, random.Random(seed + selector.round))
                        ack.write(f"{selector.round}\n".encode())

            begin = time.perf_counter()
            row.tries += 1
            child = fork(work)
            time.sleep(0.02 + 0.3 * rng.random())
            end(child, signal.SIGKILL)
            known = acknowledged.read_bytes().count(b"\n") if acknowledged.exists() else 0
            case = f"try {number}, {known} rounds acknowledged"
            try:
                if not list(folder.glob("rounds-*")) or not sum(map(len, map(lines_of, folder.glob("rounds-*")))):
                    row.lose(known, f"no log, {case}")
                    continue
                record = Record(folder, rotate_bytes=5000)
                log = Log(folder)
                row.lose(max(0, known - len(log.rounds)), case)
                if not verify(folder, policy).is_whole:
                    row.fault(f"not whole, {case}")
                again = log.selector(policy, observers=[record])
                if again.clients:  # it was killed after its clients had joined
                    live(again, 2, rng)
                record.close()
                if not verify(folder, policy).is_whole:
                    row.fault(f"not whole after it went on, {case}")
            except FedrosterError as error:
                row.fault(f"{error}, {case}")
            except Exception as error:
                row.error(error, case)
            row.timed(begin)


def run(size: float, seed: int) -> list[Row]:
    warnings.simplefilter("ignore")
    rng = random.Random(seed)
    np.seterr(all="ignore")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        policies = {kind: made(base / kind, kind, seed) for kind in ("floor", "e3cs", "cocs", "rotated")}
        for what, attack in ATTACKS.items():
            rows.append(row := Row(what))
            changed(row, attack, base, policies, max(3, int(100 * size)), rng)
            row.done()
        rows.append(row := Row("a line is crafted, and the chain made again"))
        crafted(row, base, policies, max(10, int(1000 * size)), rng)
        row.done()
    rows.append(row := Row("a writer is killed"))
    killed(row, max(3, int(100 * size)), rng)
    row.done()
    return rows
