"""What the lines of a log say: typed values, to and from events, with every value checked.

A line has the types that its class declares, or it is refused; what depends on other lines, such as how many slots
there are, is checked when its event is made.  Some events are lines themselves.  ``schema()`` gives the JSON Schema of
all lines.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import replace

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import FedrosterError, LogFileError
from fedroster.core.ids import ClientId, ClientSlots, checked_ids
from fedroster.core.problem import Feedback, Status
from fedroster.folder.arrays import (
    MOST_NUMBERS,
    Bits,
    Floats,
    Ints,
    Slot,
    length_of,
    packed,
    unpack_bits,
    unpack_floats,
    unpack_ints,
)
from fedroster.folder.events import (
    Asked,
    BegunLine,
    Decided,
    Event,
    Joined,
    Left,
    Noted,
    NotKeptError,
    Reach,
    Set,
    Told,
)
from fedroster.folder.settings import Content, Count, LinePart, Number, RulesSaid, Seconds, Settings, Size, Word

FORMAT, VERSION = "fedroster-log", 2
FIRST = hashlib.sha256(b"").hexdigest()
"""What the first line holds as the digest of the line before it."""
OPEN = 255
"""Status of a client that has not answered yet."""
_MOST_SERVERS, _MOST_REASONS = 2**20, 1000
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")

L = TypeVar("L", bound=Struct)


class LinksSaid(LinePart, kw_only=True, frozen=True):
    """Which edge servers reach the clients that were named, and their prices."""

    row: Ints
    server: Ints
    price: Floats


class DecidedLine(Content, tag="decided", kw_only=True):
    """A cohort is chosen, or a round cannot begin."""

    round: Number
    at_s: Seconds
    slots: Size
    places: Annotated[int, Meta(ge=0, le=2**31)]
    num_features: Annotated[int, Meta(ge=1, le=10_000)]
    asked: Ints | None = None
    available: Literal["all"] | Bits = "all"
    contexts: Literal["none"] | Floats | None = None
    at_most: Size | None = None
    busy_too: bool = True
    not_registered: Ints = []
    of_links: bool = False
    links: LinksSaid | None = None
    excluded: dict[str, Ints] = {}
    chosen: Ints
    rows: Ints | None = None
    servers: Ints | None = None
    features: Floats
    believed: Floats | None = None
    of_cohort: bool = False
    expected_s: Floats | None = None
    owed: Floats | None = None
    busy: Ints = []
    deadline_s: Seconds | None = None
    members: Bits | None = None
    budget: Floats | None = None
    not_begun: str = ""
    weights: Floats | None = None
    state: Word = ""
    by: Word = ""


class ToldLine(Content, tag="told", kw_only=True):
    """Feedback comes in."""

    round: Number
    at_s: Seconds
    clients: Ints
    status: Ints
    time_s: Floats
    learned_s: Floats | None = None
    loss: Floats | None = None
    squared_loss: Floats | None = None
    num_samples: Floats | None = None
    signature: Floats | None = None
    staleness: Count = 0
    round_s: Seconds | None = None
    costs: list[tuple[Slot, Annotated[float, Meta(ge=0.0)]]] = []
    unlearned: list[Slot] | None = None


class UndoneLine(Content, tag="undone", kw_only=True):
    """The line before was not booked."""

    of: Number


class NotedLine(Content, tag="noted", kw_only=True):
    """Numbers of clients that an engine keeps, such as the ids of the nodes of its round."""

    name: Word
    clients: list[Slot]
    values: list[int | float]
    of_all: bool = True


AnyLine: TypeAlias = BegunLine | Set | Joined | Left | DecidedLine | ToldLine | UndoneLine | NotedLine


class _First(Struct):
    """What any version says of itself in its first line."""

    format: str = ""
    version: int = 0


_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[AnyLine] = msgspec.json.Decoder(AnyLine)


def encoded(line: AnyLine) -> bytes:
    """A line as bytes, without its end.

    Raises:
        LogFileError: If its reader would refuse it.
    """
    try:
        text = _encode(line)
        _decoder.decode(text)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError) as error:
        raise LogFileError(f"the log cannot hold it: {shown(error, str)}") from error
    return text


def decoded(text: bytes) -> AnyLine:
    """Read a line.

    Raises:
        LogFileError: If it is none, or is of another version.
    """
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        _check_version(text)
        raise LogFileError(f"{shown(text)} is no line of a log ({shown(error, str)})") from error


def _check_version(text: bytes) -> None:
    try:
        first = msgspec.json.decode(text, type=_First)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return
    if first.format == FORMAT and first.version != VERSION:
        raise LogFileError(
            f"the log is a {FORMAT} of version {shown(first.version)}; this release reads version {VERSION}: read it "
            "with the release that wrote it, or begin another"
        )


def schema() -> dict[str, Any]:
    """The JSON Schema of lines."""
    return msgspec.json.schema(AnyLine)


# -------------------------------------------------------------------- to lines


def hashed(key: bytes, client: ClientId) -> str:
    """An id that only the holder of a key can tell: HMAC-SHA-256, 32 digits."""
    text = f"{'number' if isinstance(client, int) else 'text'}:{client}".encode(errors="surrogatepass")
    return hmac.new(key, text, hashlib.sha256).hexdigest()[:32]


def line_of(event: Set | Joined | Left | Decided | Told | Noted, *, contexts: bool, key: bytes | None) -> AnyLine:
    """The line of an event, with the contexts of all clients or of the cohort; a key hashes rules that name clients."""
    match event:
        case Decided():
            return _decided(event, contexts=contexts, hides=key is not None)
        case Told():
            return _told(event)
        case Noted(name, by_slot, of_all):
            return NotedLine(name=name, clients=[*by_slot], values=[*by_slot.values()], of_all=of_all)
        case Set():
            return replace(event, settings=hidden(event.settings, key))
    return replace(event)


def hidden(settings: Settings, key: bytes | None) -> Settings:
    """Settings as a log has them: rules that name clients are hashed where ids are."""
    if key is None or not settings.rules.name_clients:
        return settings
    return replace(settings, rules=RulesSaid(digest=hashed(key, repr(settings.rules.table))))


def _line(kind: type[L], *sources: object, **said: Any) -> L:
    """A line of what sources have under the names of its fields, the last before the first, and of what is ``said``.

    Arrays are packed.
    """
    values = {
        name: getattr(source, name) for source in sources for name in kind.__struct_fields__ if hasattr(source, name)
    }
    return kind(**{name: packed(value) for name, value in (values | said).items()})


def _decided(event: Decided, *, contexts: bool, hides: bool) -> DecidedLine:
    asked, chosen = event.asked, event.chosen
    beliefs = {"expected_s": event.expected_s, "owed": event.owed}
    of_cohort = any(values is not None and values.shape[0] != event.capacity for values in beliefs.values())
    if not contexts and not of_cohort:  # else contexts could be told from what all were expected to take
        of_cohort = True
        beliefs = {name: None if values is None else values[chosen] for name, values in beliefs.items()}
    given = asked.rows if contexts and asked.known else None
    excluded = {_hidden(reason, hides=hides): slots for reason, slots in event.excluded.items()}
    return _line(
        DecidedLine,
        asked,
        event,
        **beliefs,
        slots=event.capacity,
        num_features=int(asked.rows.shape[1]),
        asked=None if asked.of_all else asked.slot,
        available="all" if asked.available.all() else asked.available,
        contexts=given if asked.given else "none",
        at_most=asked.places,
        links=None if asked.links is None else _line(LinksSaid, asked.links),
        excluded={reason: packed(slots) for reason, slots in excluded.items() if slots.size},
        rows=None if event.servers is None else event.links,
        believed=None if np.array_equal(event.features, event.believed) else event.believed,
        of_cohort=of_cohort,
        deadline_s=None if math.isinf(event.deadline_s) else event.deadline_s,
        not_begun=_hidden(event.not_begun, hides=hides),
    )


def _hidden(text: str, *, hides: bool) -> str:
    return _QUOTED.sub("...", text) if hides else text


def _told(event: Told) -> ToldLine:
    feedback = event.feedback
    is_plain = np.array_equal(event.learned_s, feedback.exchange_time_s, equal_nan=True)
    return _line(
        ToldLine,
        feedback,
        event,
        clients=feedback.client,
        time_s=feedback.exchange_time_s,
        learned_s=None if is_plain else event.learned_s,
        round_s=None if event.round_s is None else float(event.round_s),
        costs=[*event.costs.items()],
    )


# -------------------------------------------------------------------- from lines


def event_of(line: AnyLine, members: ClientSlots) -> Event:
    """The event that a line tells of, by the members as they are then.

    Raises:
        LogFileError: If it says what cannot be.
    """
    match line:
        case Joined() | Left():
            try:
                checked_ids(line.clients)
            except FedrosterError as error:
                raise LogFileError(str(error)) from error
            return line
        case DecidedLine():
            return _read_decided(line, members)
        case ToldLine():
            return read_told(line, members.capacity)
        case NotedLine():
            slots = unpack_ints(line.clients, below=members.capacity, most=members.capacity, order="distinct").tolist()
            if len(line.values) != len(slots):
                raise LogFileError(f"{len(slots)} clients have {len(line.values)} numbers")
            return Noted(line.name, dict(zip(slots, line.values, strict=True)), line.of_all)
        case UndoneLine():
            raise LogFileError(f"line {line.line} takes a line back that was not booked")
    if line.settings.rules.digest:
        raise NotKeptError("the rules name clients, and the log has only hashes of names; expected a log without a key")
    return line


def _slots(value: Ints, capacity: int, *, most: int | None = None) -> IntArray:
    """Distinct slots, as many as there are at most if nothing is said."""
    return unpack_ints(value, below=capacity, most=capacity if most is None else most, order="distinct")


def _floats(value: Floats | None, entries: int) -> FloatArray | None:
    return None if value is None else unpack_floats(value, entries)


def _matrix(value: Floats, rows: int, length: int) -> FloatArray:
    if rows * length > MOST_NUMBERS:
        raise LogFileError(f"{rows} contexts of {length} numbers; expected {MOST_NUMBERS} numbers at most")
    return unpack_floats(value, rows * length).reshape(rows, length)


def _read_decided(line: DecidedLine, members: ClientSlots) -> Decided:
    capacity, length = members.capacity, line.num_features
    if line.slots != capacity:
        raise LogFileError(f"there are {line.slots} slots; expected {capacity} for the clients that joined")
    asked = _read_asked(line, members)
    rows, links = asked.slot.size, asked.links
    taken = chosen = _slots(line.chosen, capacity, most=rows)
    servers = None
    if links is not None:
        if line.rows is None or line.servers is None:
            raise LogFileError(f"the cohort of round {line.round} has no links")
        taken = unpack_ints(line.rows, below=links.row.size, most=rows, order="distinct")
        servers = unpack_ints(line.servers, below=_MOST_SERVERS, most=rows)
        is_theirs = np.array_equal(asked.slot[links.row[taken]], chosen)
        if not is_theirs or not np.array_equal(links.server[taken], servers):
            raise LogFileError(f"the cohort of round {line.round} is not that of its links")
    if len(line.excluded) > _MOST_REASONS:
        raise LogFileError(f"{len(line.excluded)} reasons exclude clients; expected at most {_MOST_REASONS}")
    features = _matrix(line.features, chosen.size, length)
    believers = chosen.size if line.of_cohort else capacity
    return Decided(
        round=line.round,
        asked=asked,
        capacity=capacity,
        places=line.places,
        excluded={why: unpack_ints(slots, below=capacity, most=capacity) for why, slots in line.excluded.items()},
        chosen=chosen,
        links=taken,
        servers=servers,
        features=features,
        believed=features if line.believed is None else _matrix(line.believed, chosen.size, length),
        busy=_slots(line.busy, capacity),
        deadline_s=math.inf if line.deadline_s is None else line.deadline_s,
        expected_s=_floats(line.expected_s, believers),
        owed=_floats(line.owed, believers),
        state=line.state,
        not_begun=line.not_begun,
        weights=_floats(line.weights, chosen.size),
    )


def _read_asked(line: DecidedLine, members: ClientSlots) -> Asked:
    capacity = members.capacity
    length = line.num_features
    budget = line.budget
    slot = members.slots()
    if line.asked is not None:
        most = MOST_NUMBERS if line.of_links else capacity
        slot = unpack_ints(line.asked, below=capacity, most=most, order="any" if line.of_links else "distinct")
    if line.contexts is None or isinstance(line.contexts, str):
        contexts = np.full((slot.size, length), 0.0 if line.contexts is None else 1.0)
    else:
        contexts = _matrix(line.contexts, slot.size, length)
    return Asked(
        slot,
        contexts,
        np.ones(slot.size, np.bool_) if isinstance(line.available, str) else unpack_bits(line.available, slot.size),
        at_s=line.at_s,
        given=line.contexts != "none",
        of_all=line.asked is None,
        of_links=line.of_links,
        known=line.contexts is not None,
        links=None if line.links is None else _read_links(line.links, slot.size),
        not_registered=_slots(line.not_registered, capacity),
        places=line.at_most,
        busy_too=line.busy_too,
        members=None if line.members is None else unpack_bits(line.members, capacity),
        budget=None if budget is None else unpack_floats(budget, min(length_of(budget), _MOST_SERVERS)),
    )


def _read_links(value: LinksSaid, rows: int) -> Reach:
    row = unpack_ints(value.row, below=max(rows, 1), most=MOST_NUMBERS)
    server = unpack_ints(value.server, below=_MOST_SERVERS, most=row.size)
    if server.shape != row.shape:
        raise LogFileError(f"{row.size} links have {server.size} servers")
    return Reach(row, server, unpack_floats(value.price, rows))


def read_told(line: ToldLine, capacity: int) -> Told:
    """Feedback, whose contexts are those of its round.

    Raises:
        LogFileError: If a value is not what it must be.
    """
    client = _slots(line.clients, capacity)
    count = client.size
    status = unpack_ints(line.status, below=len(Status), most=count).astype(np.uint8)
    if status.size != count:
        raise LogFileError(f"{count} clients have {status.size} outcomes")
    signature = line.signature
    feedback = Feedback(
        line.round,
        client,
        features=np.zeros((count, 0)),
        status=status,
        exchange_time_s=unpack_floats(line.time_s, count),
        loss=_floats(line.loss, count),
        squared_loss=_floats(line.squared_loss, count),
        num_samples=_floats(line.num_samples, count),
        signature=None if signature is None else _matrix(signature, count, length_of(signature) // max(count, 1)),
        staleness=line.staleness,
    )
    learned_s = feedback.exchange_time_s if line.learned_s is None else unpack_floats(line.learned_s, count)
    for times in (feedback.exchange_time_s, learned_s):
        if not (np.isnan(times) | (times > 0.0)).all() or np.isinf(times).any():
            raise LogFileError(f"times of round {line.round} are {shown(times)}; expected seconds > 0")
    charged = _slots([slot for slot, _ in line.costs], capacity).tolist()
    return Told(
        line.round,
        line.at_s,
        feedback,
        line.round_s,
        learned_s,
        costs=dict(zip(charged, (cost for _, cost in line.costs), strict=True)),
        unlearned=None if line.unlearned is None else tuple(_slots(line.unlearned, capacity).tolist()),
    )
