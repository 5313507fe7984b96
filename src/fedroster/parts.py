"""Parts for plug-ins and for the laboratory: arrays, checks, state and files, streams, parameters, threads.

What the author of a policy needs first is in :mod:`fedroster.types`; errors are in :mod:`fedroster.errors`.
"""

from fedroster.core.arrays import ImageArray, Model, StatusArray
from fedroster.core.checks import check_choice, check_integer, check_number, counted
from fedroster.core.compiled import njit
from fedroster.core.ids import ClientId
from fedroster.core.locks import FolderLock, refuse_links
from fedroster.core.outside import cell, marked, pasteable, plain
from fedroster.core.parallel import for_ranges, num_threads
from fedroster.core.parameters import Count, NotNegative, Parameters, Positive, Share, suggests
from fedroster.core.problem import check_selection
from fedroster.core.protocols import asks, missing_signals, polls, signs, wants_losses
from fedroster.core.sources import code, code_of
from fedroster.core.state import (
    load_arrays,
    pack,
    remove_leftovers,
    save_arrays,
    write_atomically,
    write_bytes_atomically,
    write_text_atomically,
)
from fedroster.core.units import MEGA

__all__ = [
    "MEGA",
    "ClientId",
    "Count",
    "FolderLock",
    "ImageArray",
    "Model",
    "NotNegative",
    "Parameters",
    "Positive",
    "Share",
    "StatusArray",
    "asks",
    "cell",
    "check_choice",
    "check_integer",
    "check_number",
    "check_selection",
    "code",
    "code_of",
    "counted",
    "for_ranges",
    "load_arrays",
    "marked",
    "missing_signals",
    "njit",
    "num_threads",
    "pack",
    "pasteable",
    "plain",
    "polls",
    "refuse_links",
    "remove_leftovers",
    "save_arrays",
    "signs",
    "suggests",
    "wants_losses",
    "write_atomically",
    "write_bytes_atomically",
    "write_text_atomically",
]
