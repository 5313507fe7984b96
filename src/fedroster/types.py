"""What the author of a policy or of a network imports: the values of a round, the interfaces, the array types.

How they are used: docs/how-to/write-a-policy.md.
"""

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.because import Because, Limit
from fedroster.core.problem import Feedback, Outcome, Poll, ProblemSpec, RoundContext, Selection, Status
from fedroster.core.protocols import (
    AnyEnvironment,
    AnyPolicy,
    Environment,
    ExpectsTimes,
    NoState,
    Owes,
    Policy,
    Rescales,
    Signature,
    Stateless,
    Weighs,
)
from fedroster.core.state import kept, per_client
from fedroster.core.streams import Streams

__all__ = [
    "AnyEnvironment",
    "AnyPolicy",
    "Because",
    "BoolArray",
    "Environment",
    "ExpectsTimes",
    "Feedback",
    "FloatArray",
    "IntArray",
    "Limit",
    "NoState",
    "Outcome",
    "Owes",
    "Policy",
    "Poll",
    "ProblemSpec",
    "Rescales",
    "RoundContext",
    "Selection",
    "Signature",
    "Stateless",
    "Status",
    "Streams",
    "Weighs",
    "kept",
    "per_client",
]
