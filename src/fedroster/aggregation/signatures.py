"""Short signatures of updates: a Gaussian projection to a few numbers, or the update of the output layer's bias."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedroster.core.arrays import FloatArray, Model
from fedroster.core.errors import ConfigurationError
from fedroster.core.protocols import Signature
from fedroster.core.streams import Streams

_BLOCK = 4096  # parameters of which the projection is made at once


@lru_cache(maxsize=16)
def _projection(seed: int, length: int, block: int) -> FloatArray:
    drawn: FloatArray = Streams(seed).at("signature", block).standard_normal((_BLOCK, length))
    drawn /= length**0.5
    return drawn


def signatures_of(models: Model, sent: Model, signature: Signature, *, seed: int) -> FloatArray:
    r"""Signatures of some clients' updates, shape (k, s); NaN for one that is not finite.

    .. math:: g_k = G\, (w_k - w), \qquad G_{ij} \sim N(0, 1/s)

    over all parameters in the order of their names, or of the last array of one dimension without G.  G follows from
    the seed, 4,096 columns at a time, of which 16 times as many are kept.  A distance is right up to a factor of
    standard deviation :math:`1/\sqrt{2 s}` (Johnson and Lindenstrauss 1984): 9 % for 64 numbers.

    Args:
        models: The clients' models, shape (k, ...) by name.
        sent: The model w that they were sent, shape (...) by name.
        signature: Of what, and its length s.
        seed: Seed of the run.

    Raises:
        ConfigurationError: If there is no bias of s numbers.
    """
    names = sorted(sent)
    if signature.of == "bias":
        names = [name for name, value in sent.items() if np.ndim(value) == 1][-1:]
        if not names or sent[names[0]].shape[0] != signature.length:
            raise ConfigurationError(
                f"the model has arrays { {name: np.shape(value) for name, value in sent.items()} }; "
                f"expected {signature.length} classes in the last of one dimension"
            )
    count = models[names[0]].shape[0]
    found = np.zeros((count, signature.length))
    with np.errstate(over="ignore", invalid="ignore"):
        moves = [(models[name].astype(np.float64) - sent[name]).reshape(count, np.size(sent[name])) for name in names]
        move = np.concatenate(moves, axis=1)
        if signature.of == "bias":
            found = move
        else:
            for block in range(-(-move.shape[1] // _BLOCK)):
                part = move[:, block * _BLOCK : (block + 1) * _BLOCK]
                found += part @ _projection(seed, signature.length, block)[: part.shape[1]]
    found[~np.isfinite(found).all(axis=1)] = np.nan
    return found
