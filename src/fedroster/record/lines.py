"""What the lines of a log say: from events to JSON, and back with every value checked."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray, StatusArray
from fedroster.core.checks import shown
from fedroster.core.errors import FedrosterError, LogFileError
from fedroster.core.problem import Feedback, Status
from fedroster.core.state import load_arrays, pack
from fedroster.federation.candidates import Candidates, Links
from fedroster.federation.events import Decided, Told
from fedroster.federation.members import ClientId, Members, checked_ids
from fedroster.record.codec import pack_bits, pack_floats, pack_ints, unpack_bits, unpack_floats, unpack_ints

FORMAT, VERSION = "fedroster-log", 1
ALL_BELIEFS = 1000
"""Slots up to which a decision's line has what is expected of, and owed to, every client; else of the cohort alone."""
OPEN = 255
"""Status of a client that has not answered yet."""
_MOST_FEATURES, _MOST_SERVERS, _MOST_REASONS = 10_000, 2**20, 1000
_MOST_NUMBERS = 2**28  # of one array
LATEST_S = 1e12
"""No time is longer, seconds."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a line says of a decision; arrays of rows have one row for each client that the caller named.

    Attributes:
        round: Its number.
        at_s: When, seconds since 1970.
        capacity: Number of slots.
        cohort_size: Largest number of clients that could be chosen.
        asked: What the caller named; its contexts are zeros where the log has none.
        has_contexts: Whether the contexts of all rows are known.
        excluded: Slots that could not be chosen although they are available, by the reason.
        chosen: Slots of the cohort, shape (k,).
        links: Rows of the policy's context that were chosen, shape (k,).
        servers: Edge server of each, shape (k,); None without edge servers.
        features: Contexts under which they were chosen, as the policy got them, shape (k, D).
        believed: Their own contexts as far as they are plausible, shape (k, D).
        expected_s: Exchange times that the policy expected, shape (slots,); NaN where it is not known.
        owed: Rounds owed to each slot's client before the decision, shape (slots,).
        busy: Slots of clients that still owed an answer.
        state: Digest of the policy's state before the decision.
    """

    round: int
    at_s: float
    capacity: int
    cohort_size: int
    asked: Candidates
    has_contexts: bool
    excluded: dict[str, IntArray]
    chosen: IntArray
    links: IntArray
    servers: IntArray | None
    features: FloatArray
    believed: FloatArray
    expected_s: FloatArray | None
    owed: FloatArray | None
    busy: IntArray
    state: str

    @property
    def available(self) -> BoolArray:
        """Which slots' clients are available, shape (slots,)."""
        seen = np.zeros(self.capacity, np.bool_)
        asked = self.asked
        if asked.links is None:
            seen[asked.slot] = asked.available
        else:
            row = asked.links.row
            seen[asked.slot[row][asked.available[row]]] = True
        return seen


@dataclass(frozen=True, slots=True)
class Answer:
    """What a line says of feedback.

    Attributes:
        round: The round that it is of.
        at_s: When, seconds since 1970.
        client: Slots, shape (j,).
        status: How each exchange ended, shape (j,).
        time_s: Times as they were told, shape (j,), seconds; NaN where none was.
        learned_s: Times as they were learned, in the same form.
        measured: Losses, squared losses and sample counts by name, shape (j,) each.
        round_s: How long the round took by the server's clock; None if it is not known.
        costs: Costs of edge servers' clients, by slot.
        unlearned: Slots whose times are not learned; None if none was named.
    """

    round: int
    at_s: float
    client: IntArray
    status: StatusArray
    time_s: FloatArray
    learned_s: FloatArray
    measured: dict[str, FloatArray]
    round_s: float | None
    costs: dict[int, float]
    unlearned: tuple[int, ...] | None


# -------------------------------------------------------------------- to JSON


def hashed(key: bytes, client: ClientId) -> str:
    """An id that only the holder of a key can tell: HMAC-SHA-256, 32 digits."""
    text = f"{'number' if isinstance(client, int) else 'text'}:{client}".encode(errors="surrogatepass")
    return hmac.new(key, text, hashlib.sha256).hexdigest()[:32]


def state_digest(state: Any) -> str:
    """Digest of all arrays of a policy's state."""
    content = hashlib.sha256()
    for name, array in pack(state).items():
        content.update(f"{name}{array.dtype}{array.shape}".encode())
        content.update(np.ascontiguousarray(array).data if array.ndim else array.tobytes())
    return content.hexdigest()[:32]


def decided(
    event: Decided,
    *,
    contexts: bool,
    expects: Callable[[IntArray, FloatArray], FloatArray] | None,
    slots: IntArray,
    owed: FloatArray | None,
    hides: bool = False,
) -> Any:
    """The line of a decision.

    Args:
        event: The event.
        contexts: Whether to keep the contexts of all clients; those of the cohort are always kept.
        expects: Gives the times that the policy expects of slots' clients in their contexts; None if it expects none.
        slots: Clients that it is asked for; of many clients, it is asked for the cohort.
        owed: Rounds owed to each slot's client; None if the policy keeps no count.
        hides: Whether names that stand in reasons are left out.
    """
    asked, context, chosen = event.asked, event.context, event.chosen
    capacity = event.members.shape[0]
    features = context.features[event.selection.links]
    expected_s = None
    if expects is not None and event.servers is None:
        of_all = capacity <= ALL_BELIEFS
        rows = slots if of_all else chosen
        expected_s = expects(rows, context.features[rows])
        if of_all:
            expected_s, known_s = np.full(capacity, np.nan), expected_s
            expected_s[rows] = known_s
    if owed is not None and capacity > ALL_BELIEFS:
        owed = owed[chosen]
    line: dict[str, Any] = {
        "round": event.round,
        "at_s": event.at_s,
        "slots": capacity,
        "places": event.places,
        "num_features": int(context.features.shape[1]),
    }
    if not np.array_equal(asked.slot, np.flatnonzero(event.members)):
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
        if asked.slot.shape[0] > capacity or np.unique(asked.slot).shape[0] < asked.slot.shape[0]:
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
        line["rows"], line["servers"] = pack_ints(event.selection.links), pack_ints(event.servers)
    line["features"] = pack_floats(features)
    if not np.array_equal(features, event.believed):
        line["believed"] = pack_floats(event.believed)
    for name, values in (("expected_s", expected_s), ("owed", owed)):
        if values is not None:
            line[name] = pack_floats(values)
    if event.busy is not None and event.busy.shape[0]:
        line["busy"] = pack_ints(event.busy)
    return line


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
    if not np.array_equal(event.learned.exchange_time_s, feedback.exchange_time_s, equal_nan=True):
        line["learned_s"] = pack_floats(event.learned.exchange_time_s)
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


def book_members(members: Members, kind: str, content: Mapping[str, Any]) -> None:
    """Let clients join or leave, as a selector does."""
    ids = read_ids(content)
    try:
        if kind == "left":
            members.leave(ids, forget=content.get("forgotten") is True)
        else:
            members.grow(members.wanted_capacity(ids))
            members.join(ids)
    except FedrosterError as error:
        raise LogFileError(str(error)) from error


def read_decided(content: Mapping[str, Any], members: Members) -> Decision:
    """Read the line of a decision, by members as they are then.

    Raises:
        LogFileError: If a value is not what it must be.
    """
    capacity = members.capacity
    if number(content, "slots", 1, 2**31) != capacity:
        raise LogFileError(f"there are {content['slots']} slots; expected {capacity} for the clients that joined")
    length = number(content, "num_features", 1, _MOST_FEATURES)
    slot = members.slots()
    if "asked" in content:
        is_of_links = content.get("links_asked") is True  # a simulation's contexts are those of links
        slot = unpack_ints(
            content["asked"],
            below=capacity,
            most=_MOST_NUMBERS if is_of_links else capacity,
            order="any" if is_of_links else "distinct",
        )
    rows = slot.shape[0]
    given = content.get("available")
    available = np.ones(rows, np.bool_) if given == "all" else unpack_bits(given, rows)
    contexts, features = content.get("contexts"), np.zeros((rows, length))
    if contexts == "none":
        features = np.ones((rows, length))
    elif contexts is not None:
        features = _matrix(contexts, rows, length)
    links = _read_links(content["links"], rows) if "links" in content else None
    unknown = unpack_ints(content.get("not_registered", []), below=capacity, most=capacity, order="distinct")
    asked = Candidates(
        slot,
        features,
        available,
        given=contexts != "none",
        links=links,
        not_registered=unknown,
        places=number(content, "at_most", 1, 2**31) if "at_most" in content else None,
        busy_too=content.get("busy_too") is not False,
    )
    chosen = unpack_ints(content.get("chosen"), below=capacity, most=rows, order="distinct")
    taken, servers = chosen, None
    if links is not None:
        taken = unpack_ints(content.get("rows"), below=links.row.shape[0], most=rows, order="distinct")
        servers = unpack_ints(content.get("servers"), below=_MOST_SERVERS, most=rows)
        if not np.array_equal(slot[links.row[taken]], chosen) or not np.array_equal(links.server[taken], servers):
            raise LogFileError(f"the cohort of round {content.get('round')} is not that of its links")
    told_to = _matrix(content.get("features"), chosen.shape[0], length)
    believed = _matrix(content["believed"], chosen.shape[0], length) if "believed" in content else told_to
    return Decision(
        round=number(content, "round", 1, 2**52),
        at_s=number(content, "at_s", 0.0, LATEST_S, whole=False),
        capacity=capacity,
        cohort_size=number(content, "places", 0, 2**31),
        asked=asked,
        has_contexts=contexts is not None,
        excluded=_read_excluded(content.get("excluded"), capacity),
        chosen=chosen,
        links=taken,
        servers=servers,
        features=told_to,
        believed=believed,
        expected_s=_by_slot(content.get("expected_s"), chosen, capacity),
        owed=_by_slot(content.get("owed"), chosen, capacity),
        busy=unpack_ints(content.get("busy", []), below=capacity, most=capacity, order="distinct"),
        state=str(content.get("state")),
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


def _by_slot(value: Any, chosen: IntArray, capacity: int) -> FloatArray | None:
    """Values by slot; where only those of the cohort are kept, NaN for all others."""
    if value is None:
        return None
    length = len(value) if isinstance(value, list) else value.get("n") if isinstance(value, dict) else None
    if length == capacity:
        return unpack_floats(value, capacity)
    values = np.full(capacity, math.nan)
    values[chosen] = unpack_floats(value, chosen.shape[0])
    return values


def read_told(content: Mapping[str, Any], capacity: int) -> Answer:
    """Read the line of feedback.

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
    has_round_s = "round_s" in content
    return Answer(
        round=number(content, "round", 1, 2**52),
        at_s=number(content, "at_s", 0.0, LATEST_S, whole=False),
        client=client,
        status=status,
        time_s=time_s,
        learned_s=unpack_floats(content["learned_s"], count) if "learned_s" in content else time_s,
        measured={name: unpack_floats(content[name], count) for name in _MEASURED if name in content},
        round_s=number(content, "round_s", 0.0, LATEST_S, whole=False) if has_round_s else None,
        costs=dict(zip(slots.tolist(), amounts.tolist(), strict=True)),
        unlearned=None
        if unlearned is None
        else tuple(unpack_ints(unlearned, below=capacity, most=capacity, order="distinct").tolist()),
    )


def feedback_of(
    answer: Answer, chosen: IntArray, features: FloatArray, servers: IntArray | None, *, staleness: int = 0
) -> Feedback:
    """The feedback of an answer to an open round.

    Raises:
        LogFileError: If one of the clients was not chosen.
    """
    row_of = {int(slot): row for row, slot in enumerate(chosen)}
    if not all(int(slot) in row_of for slot in answer.client):
        raise LogFileError(f"a client answers round {answer.round} that was not chosen in it")
    rows = np.array([row_of[int(slot)] for slot in answer.client], np.int64)
    return Feedback(
        round=answer.round,
        client=answer.client,
        features=features[rows],
        status=answer.status,
        exchange_time_s=answer.time_s,
        server=None if servers is None else servers[rows],
        loss=answer.measured.get("loss"),
        squared_loss=answer.measured.get("squared_loss"),
        num_samples=answer.measured.get("num_samples"),
        staleness=staleness,
    )
