"""What the lines of a log say: typed values, to and from events, with every value checked.

A line has the types that its class declares, or it is refused; what depends on other lines, such as how many slots
there are, is checked when its event is made.  ``schema()`` gives the JSON Schema of all lines.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from typing import Annotated, Any, Literal, TypeAlias

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
    pack_bits,
    pack_floats,
    pack_ints,
    unpack_bits,
    unpack_floats,
    unpack_ints,
)
from fedroster.folder.events import Asked, Began, Decided, Event, Joined, Left, Noted, NotKeptError, Reach, Set, Told
from fedroster.folder.settings import Count, LinePart, Number, RulesSaid, Seconds, Settings, Size, Word

FORMAT, VERSION = "fedroster-log", 2
FIRST = hashlib.sha256(b"").hexdigest()
"""What the first line holds as the digest of the line before it."""
OPEN = 255
"""Status of a client that has not answered yet."""
_MOST_SERVERS, _MOST_REASONS = 2**20, 1000
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_MEASURED = ("loss", "squared_loss", "num_samples", "signature")

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Scenario(LinePart, kw_only=True, frozen=True):
    """A simulation's scenario, and its parameters that are overridden."""

    name: Word
    settings: dict[str, str] = {}


class StartSaid(LinePart, kw_only=True, frozen=True):
    """A state from which a log goes on, which is kept beside it."""

    kind: Literal["selector", "edge-selector"]
    file: Annotated[str, Meta(pattern=r"^snapshot-[0-9]{12}\.npz$")]
    sha256: Digest


class Content(Struct, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What a line of a log says.

    Attributes:
        line: Its number, from 1.
        before: Digest of the line before it.
    """

    line: Number = 0  # until it is written
    before: Digest = ""


class BegunLine(Content, tag="begun", kw_only=True):
    """A process or a file begins, or lines are missing: which policy decides, under what, from which state.

    Attributes:
        of: What decides: a "selector", an "edge-selector" or a "simulation".
        fedroster: Version of fedroster.
        code: Digest of its code.
        policy: The policy and its parameters, as Python writes them.
        policy_text: The same as commands take it; empty where it is not known.
        settings: What the selector was made with.
        scenario: Of a simulation, its name and the settings that are overridden; None for a federation.
        contexts: Whether the contexts of all clients are kept.
        hashed: Whether ids are hashes.
        round: Last round that was begun.
        start: The state from which the log goes on; None without.
        follows: Whether the lines before lead to that state.
        repaired: Bytes of a torn last line that were cut off.
    """

    format: Literal["fedroster-log"] = "fedroster-log"
    version: Literal[2] = 2
    of: Literal["selector", "edge-selector", "simulation"]
    fedroster: Word
    code: Word
    policy: Annotated[str, Meta(max_length=1_000_000)]
    policy_text: Word = ""
    settings: Settings
    scenario: Scenario | None = None
    num_features: Size | None = None
    draws: Word = "unknown"
    contexts: bool = False
    hashed: bool = False
    round: Count = 0
    start: StartSaid | None = None
    follows: bool = False
    repaired: Count = 0

    @property
    def num_servers(self) -> int:
        """Number of edge servers; 1 without."""
        budgets = self.settings.budgets
        return (self.settings.num_servers or 1) if budgets is None else len(budgets)


class SettingsLine(Content, tag="settings", kw_only=True):
    """Other settings, rules, or parameters of the policy come into force."""

    settings: Settings
    policy: Annotated[str, Meta(max_length=1_000_000)] = ""


class JoinedLine(Content, tag="joined", kw_only=True):
    """Clients join."""

    clients: list[str | int]


class LeftLine(Content, tag="left", kw_only=True):
    """Members leave."""

    clients: list[str | int]
    forgotten: bool = False


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


AnyLine: TypeAlias = BegunLine | SettingsLine | JoinedLine | LeftLine | DecidedLine | ToldLine | UndoneLine | NotedLine


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
    """The line of an event.

    Args:
        event: The event.
        contexts: Whether to keep the contexts of all clients; those of the cohort are always kept.
        key: Secret by which rules that name clients are hashed; None for the rules themselves.
    """
    match event:
        case Set():
            return SettingsLine(settings=hidden(event.settings, key), policy=event.policy)
        case Joined():
            return JoinedLine(clients=[*event.clients])
        case Left():
            return LeftLine(clients=[*event.clients], forgotten=event.forgotten)
        case Decided():
            return _decided(event, contexts=contexts, hides=key is not None)
        case Told():
            return _told(event)
        case Noted():
            return NotedLine(
                name=event.name, clients=[*event.by_slot], values=[*event.by_slot.values()], of_all=event.of_all
            )


def hidden(settings: Settings, key: bytes | None) -> Settings:
    """Settings as a log has them: rules that name clients are hashed where ids are."""
    if key is None or not settings.rules.name_clients:
        return settings
    return replace(settings, rules=RulesSaid(digest=hashed(key, repr(settings.rules.table))))


def _decided(event: Decided, *, contexts: bool, hides: bool) -> DecidedLine:
    asked, chosen = event.asked, event.chosen
    of_cohort = _of_cohort(event)
    beliefs = {"expected_s": event.expected_s, "owed": event.owed}
    if not contexts and not of_cohort:  # else contexts could be told from what all were expected to take
        of_cohort = True
        beliefs = {name: None if values is None else values[chosen] for name, values in beliefs.items()}
    links = None
    if asked.links is not None:
        row, server, price = asked.links.row, asked.links.server, asked.links.price
        links = LinksSaid(row=pack_ints(row), server=pack_ints(server), price=pack_floats(price))
    given: Any = None
    if not asked.given:
        given = "none"
    elif contexts and asked.known:
        given = pack_floats(asked.rows)
    return DecidedLine(
        round=event.round,
        at_s=event.at_s,
        slots=event.capacity,
        places=event.places,
        num_features=int(asked.rows.shape[1]),
        asked=None if asked.of_all else pack_ints(asked.slot),
        available="all" if asked.available.all() else pack_bits(asked.available),
        contexts=given,
        at_most=asked.places,
        busy_too=asked.busy_too,
        not_registered=pack_ints(asked.not_registered),
        of_links=asked.of_links,
        links=links,
        excluded={
            _hidden(reason, hides=hides): pack_ints(slots) for reason, slots in event.excluded.items() if slots.shape[0]
        },
        chosen=pack_ints(chosen),
        rows=None if event.servers is None else pack_ints(event.links),
        servers=None if event.servers is None else pack_ints(event.servers),
        features=pack_floats(event.features),
        believed=None if np.array_equal(event.features, event.believed) else pack_floats(event.believed),
        of_cohort=of_cohort,
        busy=pack_ints(event.busy),
        deadline_s=None if math.isinf(event.deadline_s) else event.deadline_s,
        members=None if asked.members is None else pack_bits(asked.members),
        budget=_packed(asked.budget),
        not_begun=_hidden(event.not_begun, hides=hides),
        weights=_packed(event.weights),
        state=event.state,
        expected_s=_packed(beliefs["expected_s"]),
        owed=_packed(beliefs["owed"]),
    )


def _of_cohort(event: Decided) -> bool:
    """Whether beliefs are those of the cohort alone."""
    known = next((each for each in (event.expected_s, event.owed) if each is not None), None)
    return known is not None and known.shape[0] != event.capacity


def _packed(values: FloatArray | None) -> Floats | None:
    return None if values is None else pack_floats(values)


def _hidden(text: str, *, hides: bool) -> str:
    return _QUOTED.sub("...", text) if hides else text


def _told(event: Told) -> ToldLine:
    feedback = event.feedback
    learned = None
    if not np.array_equal(event.learned_s, feedback.exchange_time_s, equal_nan=True):
        learned = pack_floats(event.learned_s)
    measured: dict[str, Any] = {name: _packed(getattr(feedback, name)) for name in _MEASURED}
    return ToldLine(
        round=event.round,
        at_s=event.at_s,
        clients=pack_ints(feedback.client),
        status=pack_ints(feedback.status.astype(np.int64)),
        time_s=pack_floats(feedback.exchange_time_s),
        learned_s=learned,
        staleness=feedback.staleness,
        round_s=None if event.round_s is None else float(event.round_s),
        costs=[*event.costs.items()],
        unlearned=None if event.unlearned is None else list(event.unlearned),
        **measured,
    )


# -------------------------------------------------------------------- from lines


def event_of(line: AnyLine, members: ClientSlots) -> Event:
    """The event that a line tells of, by the members as they are then.

    Raises:
        LogFileError: If it says what cannot be.
    """
    match line:
        case JoinedLine():
            return Joined(_ids(line.clients))
        case LeftLine():
            return Left(_ids(line.clients), line.forgotten)
        case DecidedLine():
            return _read_decided(line, members)
        case ToldLine():
            return read_told(line, members.capacity)
        case SettingsLine():
            return Set(_read_settings(line.settings), line.policy)
        case NotedLine():
            slots = unpack_ints(line.clients, below=members.capacity, most=members.capacity, order="distinct").tolist()
            if len(line.values) != len(slots):
                raise LogFileError(f"{len(slots)} clients have {len(line.values)} numbers")
            return Noted(line.name, dict(zip(slots, line.values, strict=True)), line.of_all)
        case BegunLine():
            return began_of(line)
        case UndoneLine():
            raise LogFileError(f"line {line.line} takes a line back that was not booked")


def began_of(line: BegunLine) -> Began:
    """The beginning that a line tells of."""
    return Began(
        round=line.round,
        kind=line.of,
        policy=line.policy,
        settings=_read_settings(line.settings),
        num_features=line.num_features,
        draws=line.draws,
        code={},
    )


def _ids(clients: list[str | int]) -> tuple[ClientId, ...]:
    try:
        return tuple(checked_ids(clients))
    except FedrosterError as error:
        raise LogFileError(str(error)) from error


def _read_settings(settings: Settings) -> Settings:
    if settings.rules.digest:
        raise NotKeptError("the rules name clients, and the log has only hashes of names; expected a log without a key")
    return settings


def _read_decided(line: DecidedLine, members: ClientSlots) -> Decided:
    capacity = members.capacity
    if line.slots != capacity:
        raise LogFileError(f"there are {line.slots} slots; expected {capacity} for the clients that joined")
    asked = _read_asked(line, members)
    rows, links = asked.slot.shape[0], asked.links
    chosen = unpack_ints(line.chosen, below=capacity, most=rows, order="distinct")
    taken, servers = chosen, None
    if links is not None:
        if line.rows is None or line.servers is None:
            raise LogFileError(f"the cohort of round {line.round} has no links")
        taken = unpack_ints(line.rows, below=links.row.shape[0], most=rows, order="distinct")
        servers = unpack_ints(line.servers, below=_MOST_SERVERS, most=rows)
        if not np.array_equal(asked.slot[links.row[taken]], chosen) or not np.array_equal(links.server[taken], servers):
            raise LogFileError(f"the cohort of round {line.round} is not that of its links")
    if len(line.excluded) > _MOST_REASONS:
        raise LogFileError(f"{len(line.excluded)} reasons exclude clients; expected at most {_MOST_REASONS}")
    features = _matrix(line.features, chosen.shape[0], line.num_features)
    believers = chosen.shape[0] if line.of_cohort else capacity
    return Decided(
        round=line.round,
        asked=asked,
        capacity=capacity,
        places=line.places,
        excluded={reason: unpack_ints(slots, below=capacity, most=capacity) for reason, slots in line.excluded.items()},
        chosen=chosen,
        links=taken,
        servers=servers,
        features=features,
        believed=features if line.believed is None else _matrix(line.believed, chosen.shape[0], line.num_features),
        busy=unpack_ints(line.busy, below=capacity, most=capacity, order="distinct"),
        deadline_s=math.inf if line.deadline_s is None else line.deadline_s,
        expected_s=None if line.expected_s is None else unpack_floats(line.expected_s, believers),
        owed=None if line.owed is None else unpack_floats(line.owed, believers),
        state=line.state,
        not_begun=line.not_begun,
        weights=None if line.weights is None else unpack_floats(line.weights, chosen.shape[0]),
    )


def _read_asked(line: DecidedLine, members: ClientSlots) -> Asked:
    capacity, length = members.capacity, line.num_features
    slot = members.slots()
    if line.asked is not None:
        most = MOST_NUMBERS if line.of_links else capacity
        slot = unpack_ints(line.asked, below=capacity, most=most, order="any" if line.of_links else "distinct")
    rows = slot.shape[0]
    features = np.zeros((rows, length))
    if isinstance(line.contexts, str):
        features = np.ones((rows, length))
    elif line.contexts is not None:
        features = _matrix(line.contexts, rows, length)
    budget = line.budget
    return Asked(
        slot,
        features,
        np.ones(rows, np.bool_) if isinstance(line.available, str) else unpack_bits(line.available, rows),
        at_s=line.at_s,
        given=line.contexts != "none",
        of_all=line.asked is None,
        of_links=line.of_links,
        known=line.contexts is not None,
        links=None if line.links is None else _read_links(line.links, rows),
        not_registered=unpack_ints(line.not_registered, below=capacity, most=capacity, order="distinct"),
        places=line.at_most,
        busy_too=line.busy_too,
        members=None if line.members is None else unpack_bits(line.members, capacity),
        budget=None if budget is None else unpack_floats(budget, min(length_of(budget), _MOST_SERVERS)),
    )


def _matrix(value: Floats, rows: int, length: int) -> FloatArray:
    if rows * length > MOST_NUMBERS:
        raise LogFileError(f"{rows} contexts of {length} numbers; expected {MOST_NUMBERS} numbers at most")
    return unpack_floats(value, rows * length).reshape(rows, length)


def _read_links(value: LinksSaid, rows: int) -> Reach:
    row = unpack_ints(value.row, below=max(rows, 1), most=MOST_NUMBERS)
    server = unpack_ints(value.server, below=_MOST_SERVERS, most=row.shape[0])
    if server.shape != row.shape:
        raise LogFileError(f"{row.shape[0]} links have {server.shape[0]} servers")
    return Reach(row, server, unpack_floats(value.price, rows))


def read_chosen(line: DecidedLine, capacity: int) -> IntArray:
    """Slots of a cohort."""
    return unpack_ints(line.chosen, below=capacity, most=capacity, order="distinct")


def read_told(line: ToldLine, capacity: int) -> Told:
    """Feedback, whose contexts are those of its round.

    Raises:
        LogFileError: If a value is not what it must be.
    """
    client = unpack_ints(line.clients, below=capacity, most=capacity, order="distinct")
    count = client.shape[0]
    status = unpack_ints(line.status, below=len(Status), most=count).astype(np.uint8)
    if status.shape[0] != count:
        raise LogFileError(f"{count} clients have {status.shape[0]} outcomes")
    slots = unpack_ints([slot for slot, _ in line.costs], below=capacity, most=capacity, order="distinct")
    unlearned: Any = line.unlearned
    if unlearned is not None:
        unlearned = tuple(unpack_ints(unlearned, below=capacity, most=capacity, order="distinct").tolist())
    given = {name: getattr(line, name) for name in _MEASURED[:-1]}
    measured: Any = {name: unpack_floats(values, count) for name, values in given.items() if values is not None}
    if line.signature is not None:
        length = length_of(line.signature) // max(count, 1)
        measured["signature"] = unpack_floats(line.signature, count * length).reshape(count, length)
    time_s = unpack_floats(line.time_s, count)
    learned_s = time_s if line.learned_s is None else unpack_floats(line.learned_s, count)
    for times in (time_s, learned_s):
        if not (np.isnan(times) | (times > 0.0)).all() or np.isinf(times).any():
            raise LogFileError(f"times of round {line.round} are {shown(times)}; expected seconds > 0")
    return Told(
        round=line.round,
        at_s=line.at_s,
        feedback=Feedback(line.round, client, np.zeros((count, 0)), status, time_s, **measured),
        round_s=line.round_s,
        learned_s=learned_s,
        costs=dict(zip(slots.tolist(), (cost for _, cost in line.costs), strict=True)),
        unlearned=unlearned,
    )
