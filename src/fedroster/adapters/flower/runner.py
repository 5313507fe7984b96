"""Plays a round: sends its messages, takes replies until it ends, and keeps an eye on its stragglers afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from flwr.app import Message

from fedroster.adapters.flower.context import RECORD
from fedroster.adapters.flower.exchange import Arrival, Exchange, Flight, log
from fedroster.adapters.flower.nodes import NodeBook
from fedroster.adapters.flower.replies import ReplyCheck, is_dropout
from fedroster.core.problem import Status
from fedroster.engine.choose import Node
from fedroster.engine.losses import Losses, LossReader
from fedroster.engine.outcomes import Outcomes
from fedroster.engine.rules import Ending, RoundRules


@dataclass(slots=True, eq=False)
class PlayedRound:
    """A round whose messages are out.

    Attributes:
        number: Its number.
        nodes: The nodes that were sent a message, by id.
        model_bit: Size of the model, bit.
        outcomes: How their exchanges ended.
        usable: Replies in which nothing is wrong by itself; when the round is over, those that count, fastest first.
        errors: Replies with an error.
        is_over: Whether it has ended: what comes now is late.
        round_s: Time from sending to the last reply that counts, or to the deadline, seconds.
    """

    number: int
    nodes: Mapping[int, Node]
    model_bit: float
    outcomes: Outcomes = field(default_factory=Outcomes)
    usable: list[Arrival] = field(default_factory=list)
    errors: list[Arrival] = field(default_factory=list)
    is_over: bool = False
    round_s: float = 0.0

    def name_of(self, arrival: Arrival) -> str:
        """Name of the node that answered."""
        return self.nodes[arrival.flight.node_id].name


@dataclass(frozen=True, slots=True)
class _Straggler:
    """A node whose reply is awaited after its round.

    Attributes:
        round: Its round.
        flight: Its message.
        until_s: When it counts as dropped.
    """

    round: PlayedRound
    flight: Flight
    until_s: float


class RoundRunner:
    """Plays rounds, one after the other."""

    def __init__(
        self,
        exchange: Exchange,
        book: NodeBook,
        rules: RoundRules,
        check: ReplyCheck,
        losses: LossReader | None,
        tell: Callable[[int, Outcomes, float], None],
    ) -> None:
        """Start without rounds.

        Args:
            exchange: Carries messages and replies.
            book: Learns contexts and bandwidths from replies.
            rules: When rounds end.
            check: Says what is wrong with replies.
            losses: Reads losses; None when the policy wants none.
            tell: Takes what became of stragglers, with the number of their round and how long that took, seconds.
        """
        self._exchange = exchange
        self._book = book
        self._rules = rules
        self._check = check
        self._losses = losses
        self._tell = tell
        self._stragglers: dict[str, _Straggler] = {}
        self._warm: set[int] = set()

    @property
    def busy_ids(self) -> set[int]:
        """Nodes whose late replies are awaited."""
        return {straggler.flight.node_id for straggler in self._stragglers.values()}

    @property
    def busy_names(self) -> set[str]:
        """Their names, which they keep when they register again."""
        return {each.round.nodes[each.flight.node_id].name for each in self._stragglers.values()}

    def play(
        self,
        number: int,
        nodes: Sequence[Node],
        messages: Sequence[Message],
        *,
        model_bit: float,
        timeout_s: float | None = None,
    ) -> PlayedRound:
        """Play a round.

        Args:
            number: Its number.
            nodes: The nodes that get a message.
            messages: Their messages.
            model_bit: Size of the model, bit.
            timeout_s: The strategy's own limit, seconds; None for none.
        """
        rules = self._rules.of(number)
        round_ = PlayedRound(number, {node.node_id: node for node in nodes}, model_bit)
        flights, refused = self._exchange.send(messages, partial(self._take, round_))
        for node_id in refused:
            round_.outcomes.failed(round_.nodes[node_id].name, "its message could not be sent", Status.DROPPED)
        clock = self._exchange.clock
        ending = rules.ending(len(flights), clock.now(), timeout_s)
        left = self._exchange.wait(flights, ending.until_s, lambda: ending.is_over(len(round_.usable), clock.now()))
        round_.is_over = True
        self._judge(round_, ending)
        for flight in left:
            round_.outcomes.status[round_.nodes[flight.node_id].name] = None
            self._stragglers[flight.message_id] = _Straggler(round_, flight, ending.given_up_s)
        is_complete = round_.usable and not left
        round_.round_s = round_.usable[-1].time_s if is_complete else clock.now() - ending.sent_s
        return round_

    def give_up_old(self) -> None:
        """Give up on stragglers that take too long."""
        now_s = self._exchange.clock.now()
        for message_id, straggler in list(self._stragglers.items()):
            if now_s >= straggler.until_s:
                del self._stragglers[message_id]
                self._exchange.forget([straggler.flight])
                name = straggler.round.nodes[straggler.flight.node_id].name
                log.warning("%s has not answered in round %d and is given up", name, straggler.round.number)
                self._tell(straggler.round.number, Outcomes({name: Status.DROPPED}), straggler.round.round_s)

    def _take(self, round_: PlayedRound, arrival: Arrival) -> None:
        """Take a reply to a training message."""
        name, reply = round_.name_of(arrival), arrival.reply
        if round_.is_over:
            self._take_late(round_, arrival)
        elif reply.has_error():
            round_.errors.append(arrival)
            round_.outcomes.failed(name, str(reply.error.reason), _ending_of(reply))
        else:
            self._read_context(round_, arrival)
            wrong = self._check.wrong(arrival.flight.message, reply)
            if wrong is None:
                round_.usable.append(arrival)
                self._answered(round_.outcomes, name, arrival)
            else:
                self._refuse(round_, name, wrong)

    def _take_late(self, round_: PlayedRound, arrival: Arrival) -> None:
        if self._stragglers.pop(arrival.flight.message_id, None) is None:
            return
        name, reply = round_.name_of(arrival), arrival.reply
        late = Outcomes({name: Status.LATE})
        if reply.has_error():
            late.failed(name, str(reply.error.reason), _ending_of(reply))
        else:
            wrong = self._check.wrong(arrival.flight.message, reply)
            if wrong is None:
                self._answered(late, name, arrival)
                self._book.note(arrival.flight.node_id, reply.content, self._exchange.clock.now())
            else:
                late.failed(name, wrong)
        what = late.reasons.get(name) or f"its update came after {arrival.time_s:.1f} s and is not used"
        log.info("%s in round %d, which is over: %s", name, round_.number, what)
        self._tell(round_.number, late, round_.round_s)

    def _answered(self, outcomes: Outcomes, name: str, arrival: Arrival) -> None:
        outcomes.answered(name, arrival.time_s, self._losses_of(arrival))
        node_id = arrival.flight.node_id
        if self._book.rules is None and node_id not in self._warm:  # no query has started its process before
            outcomes.unlearned.add(name)
        self._warm.add(node_id)

    def _judge(self, round_: PlayedRound, ending: Ending) -> None:
        """Say which of the usable replies count."""
        arrivals = sorted(round_.usable, key=lambda arrival: arrival.time_s)
        status = round_.outcomes.status
        round_.usable = []
        wrong = self._check.odd({round_.name_of(arrival): arrival.reply for arrival in arrivals})
        for name, reason in wrong.items():
            self._refuse(round_, name, reason)
        arrivals = [arrival for arrival in arrivals if round_.name_of(arrival) not in wrong]
        for arrival, counts in zip(arrivals, ending.counts([each.time_s for each in arrivals]), strict=True):
            status[round_.name_of(arrival)] = Status.COMPLETED if counts else Status.LATE
            if counts:
                round_.usable.append(arrival)

    def _refuse(self, round_: PlayedRound, name: str, reason: str) -> None:
        round_.outcomes.failed(name, reason)
        log.warning("the reply of %s in round %d is refused: %s", name, round_.number, round_.outcomes.reasons[name])

    def _read_context(self, round_: PlayedRound, arrival: Arrival) -> None:
        node, content = round_.nodes[arrival.flight.node_id], arrival.reply.content
        if self._book.note(node.node_id, content, self._exchange.clock.now()) is node:
            self._book.time_transfer(node, round_.model_bit, arrival.time_s)
        if RECORD in content:
            del content[RECORD]  # the strategy gets what it would get without us

    def _losses_of(self, arrival: Arrival) -> Losses:
        if self._losses is None:
            return Losses()
        records = list(arrival.reply.content.metric_records.values())
        return self._losses.read({key: value for record in records[::-1] for key, value in record.items()})


def _ending_of(reply: Message) -> Status:
    return Status.DROPPED if is_dropout(reply) else Status.FAILED
