"""Differential privacy that counts on a least separation between two participations of a user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism

from fedroster.adapters.pfl.dataset import SelectedDataset
from fedroster.core.errors import ConfigurationError


def banded_matrix_mechanism(
    dataset: SelectedDataset,
    *,
    clipping_bound: float,
    num_iterations: int,
    make_privacy_accountant: Callable[[int], Any],
    min_separation: int | None = None,
) -> BandedMatrixFactorizationMechanism:
    """Return banded matrix factorization (Choquette-Choo et al. 2023) with a separation that the dataset guarantees.

    pfl's own constructor takes any ``min_separation`` on trust; one that the cohorts do not keep makes the stated
    privacy false.

    Args:
        dataset: The training data of the simulation.
        clipping_bound: Norm bound for clipping, as for pfl's mechanism.
        num_iterations: How often the mechanism will be applied: the iterations of the algorithm.
        make_privacy_accountant: From the number of compositions to an accountant with ``sampling_probability=1.0``.
        min_separation: Iterations between two participations of a user, >= 2; None for all that is guaranteed.

    Raises:
        ConfigurationError: If the dataset guarantees less, or the accountant counts on random sampling.
    """
    wanted = dataset.least_separation if min_separation is None else min_separation
    dataset.keep_separation(wanted)

    def accountant_of(num_compositions: int) -> Any:
        accountant = make_privacy_accountant(num_compositions)
        if (probability := accountant.sampling_probability) != 1.0:
            raise ConfigurationError(
                f"the accountant has sampling_probability = {probability}, which counts on uniform random sampling; a "
                "policy that adapts its choice voids it; expected 1.0"
            )
        return accountant

    return BandedMatrixFactorizationMechanism(clipping_bound, num_iterations, wanted, accountant_of)
