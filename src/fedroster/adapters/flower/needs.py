"""What a strategy needs of a selection: it is asked, and so is every strategy that it wraps.

Nothing is recognised by its class or its class's name.  A strategy that works with a fixed number of updates says so
by an integer attribute ``num_sampled_clients``, as Flower's differential-privacy wrappers do: their noise is calibrated
for it.  An ``accountant`` says whether it counts on random sampling, which a policy that adapts its choice is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flwr.app import Message

from fedroster.adapters.flower.exchange import log
from fedroster.core.errors import ConfigurationError

_CLIPPING_NORM = "clipping_norm"
"""What Flower's wrappers that clip at the nodes write in their messages."""


@dataclass(frozen=True, slots=True)
class StrategyNeeds:
    """What one strategy needs, with all that it wraps.

    Attributes:
        strategy: Name of what asks for a number of updates; empty when nothing does.
        num_updates: Number of updates that a round must have; 0 for any.
        amplification: Name of a sampling method that its privacy accounting counts on; empty for none.
        weight_key: Metric by which replies are weighed; empty when it does not say.
        least_nodes: Connected nodes that it waits for.
    """

    strategy: str = ""
    num_updates: int = 0
    amplification: str = ""
    weight_key: str = ""
    least_nodes: int = 0

    def check(self, num_used: int) -> None:
        """Refuse what would make a guarantee void, by the number of updates that a full round uses.

        Raises:
            ConfigurationError: If it would.
        """
        if self.amplification:
            raise ConfigurationError(
                f"{self.strategy} accounts for privacy with {self.amplification!r}, which counts on uniform random "
                "sampling; a policy that adapts its choice voids it; expected 'no-amplification'"
            )
        if self.num_updates and num_used != self.num_updates:
            raise ConfigurationError(
                f"{self.strategy} adds noise for num_sampled_clients = {self.num_updates}, and a round here uses "
                f"{num_used} updates; expected the same number"
            )

    def check_messages(self, messages: list[Message]) -> None:
        """Refuse training messages of another strategy than the one that was asked.

        Raises:
            ConfigurationError: If they are of a differential-privacy wrapper, and no needs of one are known, or of
                secure aggregation, whose stages are no rounds.
        """
        for message in messages[:1]:
            records = message.content.config_records
            if any("secaggplus" in name.lower() for name in records):
                raise ConfigurationError(
                    "the messages are of secure aggregation (SecAgg+), each of whose stages must reach the same nodes; "
                    "this grid chooses again for every training message; expected a strategy without it"
                )
            if not self.num_updates and any(_CLIPPING_NORM in record for record in records.values()):
                raise ConfigurationError(
                    f"the messages hold a {_CLIPPING_NORM!r}, as differential-privacy wrappers send it, and the "
                    "strategy that the grid was given asks for no number of updates; expected the one that is started"
                )

    def usable(self, replies: list[Message]) -> list[Message]:
        """The replies of a round; none with fewer updates than the noise is for: each would weigh more than it may."""
        if not self.num_updates:
            return replies
        updates = [reply for reply in replies if reply.has_content()]
        if len(updates) == self.num_updates:
            return updates
        log.warning(
            "%d updates came, but the noise of %s is for %d: this round is not aggregated",
            len(updates),
            self.strategy,
            self.num_updates,
        )
        return []


def _strategies(strategy: object) -> Iterator[object]:
    """A strategy and all that it wraps, under whatever name."""
    waiting, seen = [strategy], set()
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        held = getattr(one, "__dict__", {}).values()
        waiting += [inner for inner in held if hasattr(inner, "aggregate_train") or hasattr(inner, "configure_train")]
        waiting.append(getattr(one, "strategy", None))


def _integer(strategy: object, name: str) -> int:
    value = getattr(strategy, name, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def needs_of(strategy: object) -> StrategyNeeds:
    """Ask a strategy, and all that it wraps, for their needs; None asks for nothing."""
    name, num_updates, amplification, weight_key, least_nodes = "", 0, "", "", 0
    for one in _strategies(strategy):
        fixed = _integer(one, "num_sampled_clients")
        if fixed and not num_updates:
            name, num_updates = type(one).__name__, fixed
        config = getattr(getattr(one, "accountant", None), "config", None)
        method = str(getattr(getattr(config, "sampling_method", None), "value", "no-amplification"))
        if method != "no-amplification" and not amplification:
            name, amplification = name or type(one).__name__, method
        key = getattr(one, "weighted_by_key", "")
        weight_key = weight_key or (key if isinstance(key, str) else "")
        wanted = ("min_available_nodes", "min_train_nodes", "min_evaluate_nodes")
        least_nodes = max(least_nodes, *(_integer(one, attribute) for attribute in wanted))
    return StrategyNeeds(name, num_updates, amplification, weight_key, least_nodes)
