"""Short signatures of updates: a random projection to a few numbers, or the update of the output layer's bias."""

from __future__ import annotations

import numpy as np

from fedroster.core.arrays import FloatArray, Model
from fedroster.core.errors import ConfigurationError
from fedroster.core.protocols import Signature
from fedroster.core.streams import Streams


def signatures_of(models: Model, sent: Model, signature: Signature, *, seed: int) -> FloatArray:
    r"""Signatures of some clients' updates, shape (k, s); NaN for one that is not finite.

    .. math:: g_k = G\, (w_k - w), \qquad G \in \{-1, 0, 1\}^{s \times d}

    over all parameters in the order of their names, or of the last array of one dimension without G.  Each column of G
    has one entry that is not 0, of random place and sign by the seed (a count sketch, Charikar et al. 2002).  The
    square of a distance is right in the mean, with a standard deviation of at most :math:`\sqrt{2/s}` of it, as with
    Gaussian entries (Weinberger et al. 2009), which are s times the work; a difference that a few parameters hold may
    double or vanish where these meet.

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
    with np.errstate(over="ignore", invalid="ignore"):
        moves = [(models[name].astype(np.float64) - sent[name]).reshape(count, np.size(sent[name])) for name in names]
        found = np.concatenate(moves, axis=1)
        if signature.of == "update":
            both = 2 * signature.length  # places to which a parameter is added, and from which it is subtracted
            places = Streams(seed).at("signature", 0).integers(both, size=found.shape[1])
            sums = np.array([np.bincount(places, values, both) for values in found]).reshape(count, 2, signature.length)
            found = sums[:, 0] - sums[:, 1]
    found[~np.isfinite(found).all(axis=1)] = np.nan
    return found
