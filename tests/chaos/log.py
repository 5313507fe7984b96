"""Logs of decisions under attack: bytes and lines that are changed, crafted lines, and writers that are killed."""

from __future__ import annotations

import hashlib
import itertools
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
from chaos.play import edge, flat, history, play
from chaos.rows import Row
from fedroster import Record, Rules
from fedroster.catalogue import make_policy
from fedroster.core.errors import FedrosterError
from fedroster.record import Log, verify

_RBCS_F = "rbcs-f:V=5,beta=0.05"


def made(folder: Path, kind: str, seed: int) -> Any:
    """A log of some kind; returns its policy."""
    record = Record(folder, rotate_bytes=6000 if kind == "rotated" else 2**24)
    policy = {"floor": "floor:beta=0.05", "rotated": _RBCS_F}.get(kind, kind)
    rules = Rules(deny=["c1"]) if kind == "floor" else None
    selector = (edge if kind == "cocs" else flat)(policy, seed=seed, observers=[record], rules=rules)
    history(selector, seed, 60)
    record.close()
    return selector.policy


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
    policy = make_policy(_RBCS_F)
    for number in range(tries):
        with tempfile.TemporaryDirectory() as scratch:
            folder, acknowledged = Path(scratch) / "log", Path(scratch) / "ack"
            seed = rng.randrange(2**31)

            def work(folder: Path = folder, acknowledged: Path = acknowledged, seed: int = seed) -> None:
                record = Record(folder, rotate_bytes=5000)
                selector = flat(_RBCS_F, observers=[record])
                with acknowledged.open("ab", buffering=0) as ack:
                    for operation in itertools.count():
                        play(selector, seed, operation)
                        ack.write(f"{selector.round}\n".encode())

            begin = time.perf_counter()
            row.tries += 1
            child = fork(work)
            time.sleep(0.02 + 0.3 * rng.random())
            end(child, signal.SIGKILL)
            told = acknowledged.read_bytes().split(b"\n")[:-1] if acknowledged.exists() else []
            known = int(told[-1]) if told else 0
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
                    history(again, seed, 5)
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
