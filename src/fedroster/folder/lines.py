"""What the lines of a log say: from events to JSON, and back with every value checked."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import FedrosterError, LogFileError
from fedroster.core.ids import ClientId, Roster, checked_ids
from fedroster.core.problem import Feedback, Status
from fedroster.core.state import load_arrays
from fedroster.folder.arrays import pack_bits, pack_floats, pack_ints, unpack_bits, unpack_floats, unpack_ints
from fedroster.folder.chain import Line
from fedroster.folder.events import Asked, Began, Decided, Event, Joined, Left, Links, NotKeptError, Set, Told

FORMAT, VERSION = "fedroster-log", 1
OPEN = 255
"""Status of a client that has not answered yet."""
_MOST_FEATURES, _MOST_SERVERS, _MOST_REASONS = 10_000, 2**20, 1000
_MOST_NUMBERS = 2**28  # of one array
LATEST_S = 1e12
"""No time is longer, seconds."""


# -------------------------------------------------------------------- to JSON


def hashed(key: bytes, client: ClientId) -> str:
    """An id that only the holder of a key can tell: HMAC-SHA-256, 32 digits."""
    text = f"{'number' if isinstance(client, int) else 'text'}:{client}".encode(errors="surrogatepass")
    return hmac.new(key, text, hashlib.sha256).hexdigest()[:32]


def decided(event: Decided, *, contexts: bool, hides: bool = False) -> Any:
    """The line of a decision.

    Args:
        event: The event.
        contexts: Whether to keep the contexts of all clients; those of the cohort are always kept.
        hides: Whether names that stand in reasons are left out.
    """
    asked, chosen = event.asked, event.chosen
    line: dict[str, Any] = {
        "round": event.round,
        "at_s": event.at_s,
        "slots": event.capacity,
        "places": event.places,
        "num_features": int(asked.rows.shape[1]),
    }
    if not asked.of_all:
        line["asked"] = pack_ints(asked.slot)
    line["available"] = "all" if asked.available.all() else pack_bits(asked.available)
    if not asked.given:
        line["contexts"] = "none"
    elif contexts:
        line["contexts"] = pack_floats(asked.rows)
    if asked.places is not None:
        line["at_most"] = asked.places
    if not asked.busy_too:
        line["busy_too"] = False
    if asked.not_registered.shape[0]:
        line["not_registered"] = pack_ints(asked.not_registered)
    if asked.links is not None:
        if asked.slot.shape[0] > event.capacity or np.unique(asked.slot).shape[0] < asked.slot.shape[0]:
            line["links_asked"] = True
        line["links"] = {
            "row": pack_ints(asked.links.row),
            "server": pack_ints(asked.links.server),
            "price": pack_floats(asked.links.price),
        }
    line["excluded"] = {
        _QUOTED.sub("...", reason) if hides else reason: pack_ints(slots)
        for reason, slots in event.excluded.items()
        if slots.shape[0]
    }
    line["chosen"] = pack_ints(chosen)
    if event.servers is not None:
        line["rows"], line["servers"] = pack_ints(event.links), pack_ints(event.servers)
    line["features"] = pack_floats(event.features)
    if not np.array_equal(event.features, event.believed):
        line["believed"] = pack_floats(event.believed)
    for name, values in (("expected_s", event.expected_s), ("owed", event.owed)):
        if values is not None:
            line[name] = pack_floats(values)
    if event.busy.shape[0]:
        line["busy"] = pack_ints(event.busy)
    if not math.isinf(event.deadline_s):
        line["deadline_s"] = event.deadline_s
    if asked.budget is not None:
        line["budget"] = pack_floats(asked.budget)
    if asked.members is not None:
        line["members"] = pack_bits(asked.members)
    if event.not_begun:
        line["not_begun"] = _QUOTED.sub("...", event.not_begun) if hides else event.not_begun
    return line | {"state": event.state}


def told(event: Told) -> Any:
    """The line of feedback."""
    feedback = event.feedback
    line: dict[str, Any] = {
        "round": event.round,
        "at_s": event.at_s,
        "clients": pack_ints(feedback.client),
        "status": pack_ints(feedback.status.astype(np.int64)),
        "time_s": pack_floats(feedback.exchange_time_s),
    }
    if not np.array_equal(event.learned_s, feedback.exchange_time_s, equal_nan=True):
        line["learned_s"] = pack_floats(event.learned_s)
    for name in _MEASURED:
        if getattr(feedback, name) is not None:
            line[name] = pack_floats(getattr(feedback, name))
    if feedback.staleness:
        line["staleness"] = feedback.staleness
    if event.round_s is not None:
        line["round_s"] = float(event.round_s)
    if event.costs:
        line["costs"] = [[slot, cost] for slot, cost in event.costs.items()]
    if event.unlearned is not None:
        line["unlearned"] = list(event.unlearned)
    return line


_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_MEASURED = ("loss", "squared_loss", "num_samples")


# -------------------------------------------------------------------- from JSON


def number(content: Mapping[str, Any], name: str, least: float, most: float, *, whole: bool = True) -> Any:
    """A number of a line that is in its range."""
    value: Any = content.get(name)
    if type(value) not in ((int,) if whole else (int, float)) or not least <= value <= most:
        raise LogFileError(f"{name} is {shown(value)}; expected a number in {shown(least)}..{shown(most)}")
    return value if whole else float(value)


def read_ids(content: Mapping[str, Any]) -> list[ClientId]:
    """Ids of a line about clients that join or leave."""
    ids = content.get("clients")
    if not isinstance(ids, list):
        raise LogFileError(f"clients are {shown(ids)}; expected a list of ids")
    try:
        return checked_ids(ids)
    except FedrosterError as error:
        raise LogFileError(str(error)) from error


def read_start(folder: Path, start: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and header of a state from which a log goes on, which is kept beside it.

    Raises:
        LogFileError: If it is missing, or is not the one that the log knows.
    """
    if not isinstance(start, dict) or not isinstance(start.get("file"), str):
        raise LogFileError(f"the log goes on from {shown(start)}; expected a file and its digest")
    name = start["file"]
    file = folder / name
    if not re.fullmatch(r"start-\d{12}\.npz", name) or not file.is_file():
        raise LogFileError(f"the log goes on from {shown(name)}, which is not beside it")
    with file.open("rb") as raw:
        if hashlib.file_digest(raw, "sha256").hexdigest() != start.get("sha256"):
            raise LogFileError(f"{name!r} was changed: its digest is not the one in the log")
    return load_arrays(file, kind=str(start.get("kind")))


def read_decided(content: Mapping[str, Any], members: Roster) -> Decided:
    """Read the line of a decision, by members as they are then.

    Raises:
        LogFileError: If a value is not what it must be.
    """
    capacity = members.capacity
    if number(content, "slots", 1, 2**31) != capacity:
        raise LogFileError(f"there are {content['slots']} slots; expected {capacity} for the clients that joined")
    length = number(content, "num_features", 1, _MOST_FEATURES)
    asked = _read_asked(content, members, length)
    rows, links = asked.slot.shape[0], asked.links
    chosen = unpack_ints(content.get("chosen"), below=capacity, most=rows, order="distinct")
    taken, servers = chosen, None
    if links is not None:
        taken = unpack_ints(content.get("rows"), below=links.row.shape[0], most=rows, order="distinct")
        servers = unpack_ints(content.get("servers"), below=_MOST_SERVERS, most=rows)
        if not np.array_equal(asked.slot[links.row[taken]], chosen) or not np.array_equal(links.server[taken], servers):
            raise LogFileError(f"the cohort of round {content.get('round')} is not that of its links")
    features = _matrix(content.get("features"), chosen.shape[0], length)
    has_deadline = "deadline_s" in content
    return Decided(
        round=number(content, "round", 1, 2**52),
        asked=asked,
        capacity=capacity,
        places=number(content, "places", 0, 2**31),
        excluded=_read_excluded(content.get("excluded"), capacity),
        chosen=chosen,
        links=taken,
        servers=servers,
        features=features,
        believed=_matrix(content["believed"], chosen.shape[0], length) if "believed" in content else features,
        busy=unpack_ints(content.get("busy", []), below=capacity, most=capacity, order="distinct"),
        deadline_s=number(content, "deadline_s", 0.0, LATEST_S, whole=False) if has_deadline else math.inf,
        expected_s=_beliefs(content.get("expected_s"), chosen, capacity),
        owed=_beliefs(content.get("owed"), chosen, capacity),
        state=str(content.get("state")),
        not_begun=str(content.get("not_begun", "")),
    )


def _read_asked(content: Mapping[str, Any], members: Roster, length: int) -> Asked:
    capacity = members.capacity
    is_of_links = content.get("links_asked") is True  # a simulation's contexts are those of links
    slot = members.slots()
    if "asked" in content:
        most = _MOST_NUMBERS if is_of_links else capacity
        slot = unpack_ints(content["asked"], below=capacity, most=most, order="any" if is_of_links else "distinct")
    rows = slot.shape[0]
    given = content.get("available")
    available = np.ones(rows, np.bool_) if given == "all" else unpack_bits(given, rows)
    contexts, features = content.get("contexts"), np.zeros((rows, length))
    if contexts == "none":
        features = np.ones((rows, length))
    elif contexts is not None:
        features = _matrix(contexts, rows, length)
    budget = content.get("budget")
    num_servers = len(budget) if isinstance(budget, list) else number(budget, "n", 1, _MOST_SERVERS) if budget else 0
    return Asked(
        slot,
        features,
        available,
        at_s=number(content, "at_s", 0.0, LATEST_S, whole=False),
        given=contexts != "none",
        of_all="asked" not in content,
        known=contexts is not None,
        links=_read_links(content["links"], rows) if "links" in content else None,
        not_registered=unpack_ints(content.get("not_registered", []), below=capacity, most=capacity, order="distinct"),
        places=number(content, "at_most", 1, 2**31) if "at_most" in content else None,
        busy_too=content.get("busy_too") is not False,
        members=unpack_bits(content["members"], capacity) if "members" in content else None,
        budget=None if budget is None else unpack_floats(budget, num_servers),
    )


def _matrix(value: Any, rows: int, length: int) -> FloatArray:
    if rows * length > _MOST_NUMBERS:
        raise LogFileError(f"{rows} contexts of {length} numbers; expected {_MOST_NUMBERS} numbers at most")
    return unpack_floats(value, rows * length).reshape(rows, length)


def _read_links(value: Any, rows: int) -> Links:
    if not isinstance(value, dict):
        raise LogFileError(f"links are {shown(value)}; expected rows, servers and prices")
    row = unpack_ints(value.get("row"), below=max(rows, 1), most=_MOST_NUMBERS)
    server = unpack_ints(value.get("server"), below=_MOST_SERVERS, most=row.shape[0])
    if server.shape != row.shape:
        raise LogFileError(f"{row.shape[0]} links have {server.shape[0]} servers")
    return Links(row, server, unpack_floats(value.get("price"), rows))


def _read_excluded(value: Any, capacity: int) -> dict[str, IntArray]:
    if not isinstance(value, dict) or len(value) > _MOST_REASONS:
        raise LogFileError(f"the excluded are {shown(value)}; expected slots by reason")
    return {reason: unpack_ints(slots, below=capacity, most=capacity) for reason, slots in value.items()}


def _beliefs(value: Any, chosen: IntArray, capacity: int) -> FloatArray | None:
    """Values of all slots, or of the cohort's alone."""
    if value is None:
        return None
    length = len(value) if isinstance(value, list) else value.get("n") if isinstance(value, dict) else None
    return unpack_floats(value, capacity if length == capacity else chosen.shape[0])


def read_told(content: Mapping[str, Any], capacity: int) -> Told:
    """Read the line of feedback, whose contexts are those of its round.

    Raises:
        LogFileError: If a value is not what it must be.
    """
    client = unpack_ints(content.get("clients"), below=capacity, most=capacity, order="distinct")
    count = client.shape[0]
    status = unpack_ints(content.get("status"), below=len(Status), most=count).astype(np.uint8)
    if status.shape[0] != count:
        raise LogFileError(f"{count} clients have {status.shape[0]} outcomes")
    time_s = unpack_floats(content.get("time_s"), count)
    costs, unlearned = content.get("costs", []), content.get("unlearned")
    if not isinstance(costs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in costs):
        raise LogFileError(f"costs are {shown(costs)}; expected pairs of slot and cost")
    slots = unpack_ints([slot for slot, _ in costs], below=capacity, most=capacity, order="distinct")
    amounts = unpack_floats([cost for _, cost in costs], len(costs))
    if unlearned is not None:
        unlearned = tuple(unpack_ints(unlearned, below=capacity, most=capacity, order="distinct").tolist())
    measured: Any = {name: unpack_floats(content[name], count) for name in _MEASURED if name in content}
    round = number(content, "round", 1, 2**52)
    return Told(
        round=round,
        at_s=number(content, "at_s", 0.0, LATEST_S, whole=False),
        feedback=Feedback(round, client, np.zeros((count, 0)), status, time_s, **measured),
        round_s=number(content, "round_s", 0.0, LATEST_S, whole=False) if "round_s" in content else None,
        learned_s=unpack_floats(content["learned_s"], count) if "learned_s" in content else time_s,
        costs=dict(zip(slots.tolist(), amounts.tolist(), strict=True)),
        unlearned=unlearned,
    )


def content_of(event: Set | Joined | Left | Decided | Told, *, contexts: bool, key: bytes | None) -> tuple[str, Any]:
    """Kind and content of an event's line.

    Args:
        event: The event.
        contexts: Whether to keep the contexts of all clients.
        key: Secret by which ids are hashed; None for the ids themselves.
    """
    match event:
        case Set():
            return "settings", {"settings": event.settings}
        case Joined():
            return "joined", {"clients": _named(event.clients, key)}
        case Left():
            return "left", {"clients": _named(event.clients, key), "forgotten": event.forgotten}
        case Decided():
            return "decided", decided(event, contexts=contexts, hides=key is not None)
        case Told():
            return "told", told(event)


def _named(clients: tuple[ClientId, ...], key: bytes | None) -> list[ClientId]:
    return [client if key is None else hashed(key, client) for client in clients]


def event_of(line: Line, members: Roster) -> Event:
    """The event that a line tells of, by the members as they are then.

    Raises:
        LogFileError: If it says what cannot be.
    """
    content = line.content
    match line.kind:
        case "joined":
            return Joined(tuple(read_ids(content)))
        case "left":
            return Left(tuple(read_ids(content)), content.get("forgotten") is True)
        case "decided":
            return read_decided(content, members)
        case "told":
            return read_told(content, members.capacity)
        case "settings" | "gap":
            return Set(_read_settings(content))
        case "begun":
            check_begun(content)
            features = number(content, "num_features", 1, _MOST_FEATURES) if content.get("num_features") else None
            return Began(
                round=number(content, "round", 0, 2**52),
                kind=str(content.get("of")),
                policy=str(content.get("policy")),
                settings=_read_settings(content),
                num_features=features,
                draws=str(content.get("draws", "unknown")),
                code={},
            )
    raise LogFileError(f"line {line.number} is a {shown(line.kind)}; expected a line of this version")


def _read_settings(content: Mapping[str, Any]) -> dict[str, Any]:
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise LogFileError(f"settings are {shown(settings)}; expected what the selector was made with")
    if "digest" in settings.get("rules", {}):
        raise NotKeptError("the rules name clients, and the log has only hashes of names; expected a log without a key")
    return settings


def check_begun(content: Mapping[str, Any]) -> None:
    """Refuse a line that does not begin a log of ours."""
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise LogFileError(
            f"it is a {shown(content.get('format'))} of version {shown(content.get('version'))}; "
            f"expected a {FORMAT} of version {VERSION}"
        )


def standing(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines that were not taken back by the one after them.

    Raises:
        LogFileError: If a line takes back another one than the line before.
    """
    held: Line | None = None
    for line in lines:
        if line.kind == "undone":
            if held is None or line.content.get("of") != held.number:
                what = shown(line.content.get("of"))
                raise LogFileError(f"line {line.number} takes back {what}, not the line before")
            held = None
            continue
        if held is not None:
            yield held
        held = line
    if held is not None:
        yield held
