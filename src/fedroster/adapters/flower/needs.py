"""What a strategy needs of a selection: it is asked, and so is every strategy that it wraps.

A strategy that works with a fixed number of updates, for which its noise is calibrated, says so by an integer attribute
``num_sampled_clients``, as Flower's differential-privacy wrappers do.  An ``accountant`` says whether it counts on
random sampling, which a policy that adapts its choice is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from flwr.app import Message
from flwr.serverapp.strategy import DifferentialPrivacyClientSideAdaptiveClipping

from fedroster.core.errors import ConfigurationError
from fedroster.core.protocols import AnyPolicy, refuse_weights

T = TypeVar("T")
_SECURE_AGGREGATION = "secaggplus_configs"
"""Record of the messages of SecAgg+ (Flower has the name in a module that is not public)."""
_NORM_BIT = "norm_bit"
"""Metric of Flower's wrapper that adapts its clipping at the nodes (likewise)."""
_OF_A_STRATEGY = ("aggregate_train", "configure_train", "aggregate_fit")
_NO_AVERAGE = {
    "Bulyan", "FedMedian", "FedTrimmedAvg", "FedXgbBagging", "FedXgbCyclic", "Krum", "MultiKrum", "QFedAvg",
}  # fmt: skip
"""Flower's strategies that do not average replies by their weights."""
_STEPS = {"FedAvgM", "FedOpt"}
"""Flower's strategies, with those derived, that take a step of their own along the average."""


@dataclass(slots=True)
class StrategyNeeds:
    """What one strategy needs, with all that it wraps; empty or 0 for nothing.

    ``strategy`` names what wants ``num_updates`` in a round, or whose privacy accounting counts on a sampling method,
    ``amplification``.  Replies are weighed by the metric ``weight_key``, and ``metrics`` are further ones that it
    cannot do without.  ``kinds`` are the names of its classes.
    """

    strategy: str = ""
    num_updates: int = 0
    amplification: str = ""
    weight_key: str = ""
    metrics: frozenset[str] = frozenset()
    kinds: frozenset[str] = field(default=frozenset(), compare=False)

    def check(self, num_used: int, sent: Message | None = None) -> None:
        """Refuse what would make a guarantee void, by the updates that a full round uses, and by a message of it."""
        if sent is not None and _SECURE_AGGREGATION in sent.content.config_records:
            raise ConfigurationError(
                "the messages are of secure aggregation (SecAgg+), each of whose stages must reach the same nodes; "
                "this grid chooses again for every training message; expected a strategy without it"
            )
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

    def check_options(self, policy: AnyPolicy, *, has_memory: bool, is_in_places: bool) -> None:
        """Refuse weights of a policy, an update memory and free places where the strategy's step has no place for them.

        Raises:
            ConfigurationError: If it has none.
        """
        if self.num_updates:
            refuse_weights(policy, f"{self.strategy} adds noise for updates that count alike")
        if not self.weight_key:
            refuse_weights(policy, "the strategy has no weighted_by_key, the metric by which it averages")
        if has_memory and self.num_updates:
            raise ConfigurationError(
                f"{self.strategy} bounds what an update does in its own round, and a remembered one counts in all "
                "later rounds: its guarantee would be void; expected no differential privacy, or no memory"
            )
        if has_memory and (kinds := self.kinds & _NO_AVERAGE):
            raise ConfigurationError(
                f"{min(kinds)} does not average replies, and an update memory rewrites them for an average; "
                "expected a strategy that averages, such as FedAvg or FedAdam, or no memory"
            )
        if is_in_places and (more := self.kinds & (_NO_AVERAGE | _STEPS) or {self.strategy} - {""}):
            raise ConfigurationError(
                f"{min(more)} does more than average the replies of a round, and in free places each answer changes "
                "the model; expected a strategy that only averages, such as FedAvg or FedProx"
            )


def _strategies(strategy: object) -> Iterator[object]:
    """A strategy and all that it wraps, under whatever name."""
    waiting = [strategy]
    seen = set()
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        held = getattr(one, "__dict__", {}).values()
        waiting += [inner for inner in held if any(hasattr(inner, name) for name in _OF_A_STRATEGY)]
        waiting.append(getattr(one, "strategy", None))


def _of(strategy: object, name: str, kind: type[T]) -> T:
    """An attribute of a strategy; nothing if that is of another kind."""
    value = getattr(strategy, name, None)
    return value if type(value) is kind else kind()


def needs_of(strategy: object) -> StrategyNeeds:
    """Ask a strategy, and all that it wraps, for their needs; None asks for nothing."""
    needs = StrategyNeeds()
    for one in _strategies(strategy):
        fixed = _of(one, "num_sampled_clients", int)
        if fixed and not needs.num_updates:
            needs.strategy = type(one).__name__
            needs.num_updates = fixed
        config = getattr(getattr(one, "accountant", None), "config", None)
        method = str(getattr(getattr(config, "sampling_method", None), "value", "no-amplification"))
        if method != "no-amplification" and not needs.amplification:
            needs.strategy = needs.strategy or type(one).__name__
            needs.amplification = method
        needs.weight_key = needs.weight_key or _of(one, "weighted_by_key", str)
        needs.metrics |= {_of(one, "train_loss_key", str)} - {""}
        needs.metrics |= {_NORM_BIT} if isinstance(one, DifferentialPrivacyClientSideAdaptiveClipping) else set()
        needs.kinds |= {each.__name__ for each in type(one).__mro__}
    return needs
