"""State files that were mutated or crafted, under a limit of memory: they are refused, or they work."""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from chaos.children import fork, wait
from chaos.fuzz import holes
from chaos.play import every, history, play, state_of
from chaos.rows import Row
from fedroster.core.errors import StateFileError

_MEMORY = 2**29  # bytes that a child may take beyond what it has
_BATCH = 50
_LIMIT_S = 60
_NUMBERS: tuple[Any, ...] = (
    -1, 0, 1, 2, 10**6, 10**8, 10**12, 2**63, 10**30, -(2**63), 0.5, -1.0, 1e308, True, None, "1", [], {}, [1], "NaN",
)  # fmt: skip

Parts = dict[str, bytes]
"""Content of each member of a file."""


# ---------------------------------------------------------------- how a file is taken apart and put together


def parts_of(path: Path) -> Parts:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def packed(parts: Parts, *, compression: int = zipfile.ZIP_STORED, twice: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
        if twice:
            with contextlib.suppress(UserWarning):
                archive.writestr(zipfile.ZipInfo(twice), parts[twice], compression)
    return out.getvalue()


def array_in(data: bytes) -> np.ndarray:
    return np.load(io.BytesIO(data), allow_pickle=False)


def bytes_of(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array), allow_pickle=True)
    return out.getvalue()


def header_of(parts: Parts) -> dict[str, Any]:
    return dict(json.loads(array_in(parts["__header__.npy"]).tobytes()))


def with_header(parts: Parts, header: Any) -> Parts:
    text = header if isinstance(header, bytes) else json.dumps(header, sort_keys=True).encode()
    return parts | {"__header__.npy": bytes_of(np.frombuffer(text, np.uint8))}


def with_shape(data: bytes, shape: str) -> bytes:
    """An array whose header claims another shape than its bytes have."""
    at = data.index(b"'shape': ") + 9
    end = data.index(b")", at) + 1
    size = len(data[: data.index(b"\n")]) + 1
    head = data[10:at] + shape.encode() + data[end : size - 1].rstrip()
    head = head.ljust(-(-(len(head) + 11) // 64) * 64 - 11) + b"\n"
    return data[:8] + len(head).to_bytes(2, "little") + head + data[size:]


def bomb_in(parts: Parts, name: str) -> bytes:
    """A file of which one member grows to a GiB."""
    out = io.BytesIO()
    size = 2**27
    head = bytes_of(np.empty(0)).replace(b"(0,), }" + b" " * len(str(size)), f"({size},), }}".encode() + b" ")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, data in parts.items():
            if key != name:
                archive.writestr(key, data)
        with archive.open(name, "w", force_zip64=True) as member:
            member.write(head)
            for _ in range(8 * size // 2**20):
                member.write(bytes(2**20))
    return out.getvalue()


# ---------------------------------------------------------------- mutations


def mutated(raw: bytes, parts: Parts, rng: np.random.Generator) -> tuple[str, bytes]:
    """A file that was changed in one of 16 ways, and which."""
    kind = int(rng.integers(16))
    if kind == 0:
        return "cut", raw[: int(rng.integers(len(raw)))]
    if kind == 1:
        spoiled = bytearray(raw)
        for _ in range(int(rng.integers(1, 20))):
            spoiled[rng.integers(len(spoiled))] ^= 1 << int(rng.integers(8))
        return "flipped bits", bytes(spoiled)
    if kind == 2:
        at, length = (int(rng.integers(len(raw))) for _ in range(2))
        return "a hole", raw[:at] + raw[at + length % 500 :]
    names = [name for name in parts if name != "__header__.npy"]
    name = names[rng.integers(len(names))]
    if kind == 3:
        return f"without {name}", packed({key: value for key, value in parts.items() if key != name})
    if kind == 4:
        return f"{name} twice", packed(parts, twice=name)
    if kind in (5, 6):
        return _header_changed(parts, rng)
    values = array_in(parts[name])
    if kind == 7:
        other = names[rng.integers(len(names))]
        return f"{name} is {other}", packed(parts | {name: parts[other], other: parts[name]})
    if kind == 8:
        kinds = (np.float64, np.int64, np.uint8, np.bool_, np.float32, np.complex128, "U3", "M8[s]")
        with contextlib.suppress(ValueError, TypeError), np.errstate(all="ignore"):
            dtype = kinds[rng.integers(len(kinds))]
            return f"{name} as {dtype}", packed(parts | {name: bytes_of(values.astype(dtype))})
    if kind == 9:
        longer = np.concatenate([values.ravel(), np.ones(int(rng.integers(1, 50)), values.dtype)])
        return f"{name} longer", packed(parts | {name: bytes_of(longer)})
    if kind == 10 and values.size:
        return f"{name} shorter", packed(parts | {name: bytes_of(values.ravel()[: int(rng.integers(values.size))])})
    if kind == 11:
        shape = ("(1000000000000,)", "(0,)", "(2, 2)", "(-5,)", "()", "(100000000, 100)")[rng.integers(6)]
        return f"{name} claims {shape}", packed(parts | {name: with_shape(parts[name], shape)})
    if kind == 12:
        return f"{name} transposed", packed(parts | {name: bytes_of(values.T if values.ndim > 1 else values[None])})
    if kind == 13:
        cut = parts[name][: int(rng.integers(1, len(parts[name])))]
        return f"{name} cut", packed(parts | {name: cut})
    if values.size:
        flat_ = values.copy().ravel()
        odd = [-1, 0, 1, 7, 255, 2**31, 2**62, -(2**62)]
        if values.dtype.kind == "f":
            odd += [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.5, 1.5]
        rows = rng.integers(flat_.size, size=1 if kind == 14 else flat_.size)
        with np.errstate(all="ignore"):
            flat_[rows] = np.array(odd[rng.integers(len(odd))]).astype(values.dtype)
        return f"{name} has {flat_[rows[0]]}", packed(parts | {name: bytes_of(flat_.reshape(values.shape))})
    return "as it is", raw


def _header_changed(parts: Parts, rng: np.random.Generator) -> tuple[str, bytes]:
    header = header_of(parts)
    name = list(header)[rng.integers(len(header))]
    how = rng.random()
    within, value = header, header[name]
    if isinstance(value, dict) and value:  # settings, rules
        within, name = value, list(value)[rng.integers(len(value))]
        value = within[name]
    if how < 0.15:
        del within[name]
    elif how < 0.5 and isinstance(value, list) and value:
        at = int(rng.integers(len(value)))
        inner = value[at]
        if isinstance(inner, list) and inner and rng.random() < 0.7:
            inner[rng.integers(len(inner))] = _NUMBERS[rng.integers(len(_NUMBERS))]
        elif rng.random() < 0.3:
            value.append(value[at])
        elif rng.random() < 0.4:
            del value[at]
        else:
            value[at] = _NUMBERS[rng.integers(len(_NUMBERS))]
    else:
        within[name] = _NUMBERS[rng.integers(len(_NUMBERS))]
    return f"header {name}: {str(within.get(name))[:60]}", packed(with_header(parts, header))


# ---------------------------------------------------------------- crafted files


def crafted(raw: bytes, parts: Parts, *, has_bombs: bool) -> list[tuple[str, bytes]]:
    """Files that an attacker would write."""
    header = header_of(parts)
    capacity = header["capacity"]
    changes: list[tuple[str, dict[str, Any]]] = [
        (f"capacity {value}", {"capacity": value}) for value in (10**8, 10**12, -1, 0, 1, 10**400)
    ]
    pending = header["pending"]
    changes += [
        ("a pending round of 10^12 rows", {"pending": [[1, 10**12]]}),
        ("a pending round of -1 rows", {"pending": [[1, -1], *pending]}),
        ("pending rounds to come", {"pending": [[10**9 + n, rows] for n, (_, rows) in enumerate(pending)]}),
        ("10^6 empty pending rounds", {"pending": [[n, 0] for n in range(10**6)]}),
        ("more ids than slots", {"ids": [f"x{n}" for n in range(capacity * 50)]}),
        ("one id again and again", {"ids": ["x"] * capacity}),
        ("ids of all kinds", {"ids": [None, True, 1.5, [], {}, "a"]}),
        ("an id of 10^6 letters", {"ids": ["x" * 10**6]}),
        ("round 10^400", {"round": 10**400}),
        ("patience 10^30", {"settings": header["settings"] | {"patience_rounds": 10**30}}),
        ("cohort of 10^12", {"settings": header["settings"] | {"cohort_size": 10**12}}),
        ("10^9 features", {"num_features": 10**9}),
        ("seed -1", {"settings": header["settings"] | {"seed": -1}}),
        ("NaN for a limit", {"settings": header["settings"] | {"longest_s": float("nan")}}),
        ("strangers 10^30", {"strangers": 10**30}),
        ("failure rules of text", {"settings": header["settings"] | {"failures": ["a", "b", "c"]}}),
    ]
    files = [(what, packed(with_header(parts, header | change))) for what, change in changes]
    slots = array_in(parts["pending.slot.npy"])
    for value in (-1, capacity, 2**40, -(2**62)):
        there = bytes_of(np.full_like(slots, value))
        files.append((f"pending slots {value}", packed(parts | {"pending.slot.npy": there})))
    if has_bombs:
        files.append(("a bomb in a known name", bomb_in(parts, "here.npy")))
        files.append(("a bomb in a name of its own", bomb_in(parts, "x.npy")))
    files.append(("objects", packed(parts | {"here.npy": bytes_of(np.array([{"a": 1}, print], object))})))
    files.append(("a deep header", packed(with_header(parts, b"[" * 200_000))))
    files.append(("a header of one long number", packed(with_header(parts, b'{"format": ' + b"9" * 10**6 + b"}"))))
    files.append(("a header that is a list", packed(with_header(parts, b"[1, 2]"))))
    files.append(("a header that is no text", packed(with_header(parts, b"\xff\xfe\x00"))))
    files.append(("nothing", b""))
    files.append(("an empty archive", packed({})))
    files.append(("an array alone", bytes_of(np.ones(3))))
    files.append(("10,000 members", packed(parts | {f"x{n}.npy": b"" for n in range(10_000)})))
    files.append(("names with folders", packed({f"../../{name}": data for name, data in parts.items()})))
    files.append(("zeros", b"\0" * 10**6))
    files.append(("text behind it", raw + b"x" * 1000))
    return files


# ---------------------------------------------------------------- what becomes of them


def run(size: float, seed: int) -> list[Row]:
    rows = [Row("mutated state files"), Row("crafted state files")]
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        bases = []
        for policy, make in every():
            path = Path(folder) / f"base-{len(bases)}.npz"
            selector = history(make(policy), seed, 60)
            selector.save(path)
            bases.append((selector, path.read_bytes(), parts_of(path)))
        count = max(16, round(5000 * size))

        def mutation(number: int) -> tuple[Any, str, bytes]:
            selector, raw, parts = bases[number % len(bases)]
            if number < len(bases):
                return selector, "as it is", raw
            return selector, *mutated(raw, parts, np.random.default_rng([seed, number]))

        crafts = [
            (base[0], *craft)
            for number, base in enumerate(bases if size >= 0.1 else bases[seed % 8 :: 7])
            for craft in crafted(base[1], base[2], has_bombs=number == 0)
        ]
        chosen = [crafts[n] for n in rng.permutation(len(crafts))]
        _try_all(rows[1], len(chosen), lambda number: chosen[number], Path(folder))
        _try_all(rows[0], count, mutation, Path(folder))
    return rows


def _try_all(row: Row, count: int, make: Callable[[int], tuple[Any, str, bytes]], folder: Path) -> None:
    answers = dict.fromkeys(("refused", "works", "loaded and failed later", "impossible numbers", "no end", "died"), 0)
    at = 0
    while at < count:
        reader, writer = os.pipe()
        last = min(count, at + _BATCH)
        child = fork(lambda: _batch(at, last, make, folder / "file.npz", writer))  # noqa: B023
        os.close(writer)
        with os.fdopen(reader) as lines:
            for line in lines:
                answer, seconds, peak, case = json.loads(line)
                row.tries += 1
                row.slowest_s, row.peak_mib = max(row.slowest_s, seconds), max(row.peak_mib, peak)
                answers[answer] = answers.get(answer, 0) + 1
                if answer.startswith("raw"):
                    row.raw += 1
                if answer not in ("refused", "works"):
                    row.wrong += not answer.startswith("raw")
                    row.cases[len(row.cases) :] = [f"{answer}: {case}"[:300]][: 12 - len(row.cases)]
                at += 1
        code = wait(child)
        if at < last or code:
            selector, what, _ = make(min(at, count - 1))
            ended = "no end" if code == -signal.SIGALRM else "died"
            answers[ended] += 1
            row.tries += 1
            row.fault(f"{ended} with {code}: {selector.policy!r}, {what}")
            at += 1
    row.note = ", ".join(f"{number} {answer}" for answer, number in answers.items() if number)
    row.done()


def _batch(first: int, last: int, make: Callable[[int], tuple[Any, str, bytes]], path: Path, out: int) -> None:
    status = Path("/proc/self/status").read_text().splitlines()
    usage = next(int(line.split()[1]) for line in status if line.startswith("VmSize"))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in range(first, last):
        selector, what, data = make(number)
        path.write_bytes(data)
        del data
        resource.setrlimit(resource.RLIMIT_AS, (usage * 1024 + _MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        signal.alarm(_LIMIT_S)
        begin = time.perf_counter()
        answer, why = _answer(selector, path)
        if what == "as it is" and answer == "refused":
            answer = "a good file is refused"
        seconds = time.perf_counter() - begin
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_AS)[1]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        case = f"{type(selector.policy).__name__}, {what}: {why}"
        os.write(out, (json.dumps([answer, seconds, peak, case]) + "\n").encode())


def _answer(base: Any, path: Path) -> tuple[str, str]:
    try:
        selector = type(base).load(path, base.policy)
    except StateFileError:
        return "refused", ""
    except Exception as error:
        return f"raw {type(error).__name__}", str(error)[:100]
    try:
        for number in range(25):
            play(selector, 99, number)
        for round_, cohort in list(selector.open_rounds().items()):
            selector.observe(round_, times_s=dict.fromkeys(cohort, 1.0))
        state_of(selector)
        strange = _strange(selector) or ", ".join(f"NaN in {name}" for name in sorted(holes(selector) - holes(base)))
    except Exception as error:
        return "loaded and failed later", f"{type(error).__name__}: {str(error)[:100]}"
    return ("impossible numbers", strange) if strange else ("works", "")


def _strange(selector: Any) -> str:
    """Numbers that no federation can have."""
    rates, backlog = list(selector.participation_rates().values()), list(selector.backlog().values())
    if not all(0.0 <= rate < np.inf for rate in rates):  # above 1 where a client fills several places of a round
        return f"rates {[rate for rate in rates if not 0.0 <= rate < np.inf][:3]}"
    if not all(0 <= count <= selector.round for count in selector.participation().values()):
        return "more participations than rounds, or fewer than none"
    if not np.isfinite(backlog).all():
        return "a backlog that is not finite"
    return ""
