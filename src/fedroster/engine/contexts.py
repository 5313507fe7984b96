"""What the server knows of nodes: the values that they reported, within bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray
from fedroster.core.checks import shown
from fedroster.core.errors import InvalidInputError
from fedroster.core.parameters import Parameters, Positive

_LONGEST_NAME = 128
_LEAST_SHARE = 0.01
_LEAST_BANDWIDTH_BPS, _MOST_BANDWIDTH_BPS = 1e3, 1e12
ASSUMED_BANDWIDTH_BPS = 1e7
"""Bandwidth of a node that declares none, while none was measured."""
_MOST_EXAMPLES = 10**12
_MOST_BUSY_S = 1e7
_MOST_PRICE = 1e12


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What the server knows of a node, within bounds.

    Attributes:
        name: Stable name; participation is counted under it.
        cpu_share: Free share of the node's processors, mu of Huang et al. 2021, in [0.01, 1].
        bandwidth_bps: Bandwidth, bit/s, in [1e3, 1e12]; None when the node declares none.
        num_examples: Training examples, >= 0.
        willing: Whether the node wants to take part now.
        edge: Labels of the edge servers that reach it, separated by commas; empty for none.
        price: What using the node costs, as it declares, in [0, 1e12]; None when it declares none.
        busy_s: Time that the last training took on the node, as it says, seconds, >= 0; None when it says nothing.
        doubt: What it said that makes no sense and keeps it from being chosen; empty for nothing.
    """

    name: str
    cpu_share: float = 1.0
    bandwidth_bps: float | None = None
    num_examples: int = 0
    willing: bool = True
    edge: str = ""
    price: float | None = None
    busy_s: float | None = None
    doubt: str = ""


def _number(
    record: Mapping[str, object],
    key: str,
    least: float,
    most: float,
) -> float | None:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # NaN differs from itself
        return None
    return float(min(max(value, least), most))


def checked_name(value: object) -> str:
    """A name or label from outside; empty when it is no string or integer, too long or not printable."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_NAME:
        return ""
    text = str(value)
    return text if len(text) <= _LONGEST_NAME and text.isprintable() else ""


def read_context(values: Mapping[str, object], *, registered: str = "") -> NodeContext:
    """Read what a node says, by name: numbers outside their range are clipped, those that are none are not given.

    A name that the operator ``registered`` goes before the one that it reports; empty for none.

    Raises:
        InvalidInputError: If the values hold no usable name.
    """
    name = registered or checked_name(values.get("name"))
    if not name:
        raise InvalidInputError(
            f"its name is {shown(values.get('name'))}; expected 1 to {_LONGEST_NAME} printable characters"
        )
    willing = values.get("willing", True)
    return NodeContext(
        name=name,
        cpu_share=_number(values, "cpu-share", _LEAST_SHARE, 1.0) or 1.0,
        bandwidth_bps=_number(values, "bandwidth-bps", _LEAST_BANDWIDTH_BPS, _MOST_BANDWIDTH_BPS),
        num_examples=int(_number(values, "num-examples", 0, _MOST_EXAMPLES) or 0),
        willing=willing is True,
        edge=checked_name(values.get("edge")),
        price=_number(values, "price", 0.0, _MOST_PRICE),
        busy_s=_number(values, "busy-s", 0.0, _MOST_BUSY_S),
        doubt="" if isinstance(willing, bool) else f"'willing' is {shown(willing)}; expected true or false",
    )


def measured_bandwidth(model_bit: float, exchange_time_s: float, busy_s: float) -> float:
    r"""Bandwidth from a transfer that the server timed, :math:`B = M / (\tau - \tau^{busy})`, bit/s, clipped.

    A node that claims to have been busy for longer than its whole exchange gets the upper bound and gains nothing: its
    time is learned from the server's clock all the same.

    Args:
        model_bit: Bits that went to the node and came back, > 0.
        exchange_time_s: The exchange's time at the server, seconds, > 0.
        busy_s: What the node says that it worked, seconds, >= 0.
    """
    transfer_s = max(exchange_time_s - busy_s, 1e-9)
    return min(max(model_bit / transfer_s, _LEAST_BANDWIDTH_BPS), _MOST_BANDWIDTH_BPS)


class Features(Protocol):
    """Turns what is known of nodes into the policy's contexts."""

    def __call__(
        self, nodes: Sequence[NodeContext], /, *, bandwidth_bps: FloatArray, cold: BoolArray, model_bit: float
    ) -> FloatArray:
        """Return contexts, shape (nodes, D), finite and >= 0; :func:`paper_features` says what is given."""
        ...


def paper_features(
    nodes: Sequence[NodeContext], *, bandwidth_bps: FloatArray, cold: BoolArray, model_bit: float
) -> FloatArray:
    r"""Context :math:`[1/\mu, s, M/B]` of every node (Huang et al. 2021, Sec. III).

    Args:
        nodes: What is known of the nodes.
        bandwidth_bps: B, declared, measured or assumed, shape (nodes,), bit/s, > 0.
        cold: s, whether the node did not take part in the last round, shape (nodes,).
        model_bit: M, size of the model, bit.

    Returns:
        Shape (nodes, 3), >= 0.
    """
    share = np.array([node.cpu_share for node in nodes])
    return np.array([1.0 / share, cold, model_bit / bandwidth_bps]).T  # the selector's order, never copied


@dataclass(frozen=True, slots=True)
class ContextOptions(Parameters):
    """When contexts are asked for, how long they count, and what the policy sees of them.

    Attributes:
        fresh_s: Age up to which a context counts, seconds, > 0.  Older ones are asked for before a selection.
        timeout_s: How long answers are waited for, seconds, > 0.  A node that has not answered is unavailable in this
            round.
        features: Makes the policy's contexts.
        trust_names: Whether rules that name clients hold for names that nodes only report, as in a simulation whose
            nodes are all one's own.
    """

    fresh_s: Positive = 300.0
    timeout_s: Positive = 30.0
    features: Features = paper_features
    trust_names: bool = False
