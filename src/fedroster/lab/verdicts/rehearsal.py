"""Two rounds played to find out whether a policy can run in a scenario, before anything long begins."""

from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np

from fedroster.catalogue import make_policy
from fedroster.errors import ConfigurationError, FedrosterError
from fedroster.simulation import simulate
from fedroster.types import AnyEnvironment


def why_not(text: str, environment: AnyEnvironment, *, may_idle: bool = True) -> str:
    """Why a policy cannot run in a scenario; empty if it can.

    A policy may come from another package, so whatever it raises is a reason, and not an error of ours.
    """
    try:
        policy = make_policy(text)
        for played in simulate(policy, environment, rounds=2, seed=0):
            available = int(np.count_nonzero(played.context.available))
            if available and played.selection.is_empty and not policy.fills_cohort and not may_idle:
                return (
                    f"chooses none of the {available} clients that are available in round {played.number} with its "
                    f"default parameters, {policy!r}; name it with other parameters to compare it"
                )
    except FedrosterError as error:
        return str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"raises {error!r} in line {place.lineno} of {Path(place.filename).name}"
    return ""


def rehearse(text: str, scenario: str, environment: AnyEnvironment) -> None:
    """Raise what a policy would raise in its first rounds, whatever it is, with the policy's name.

    Raises:
        UnknownNameError: If there is no such policy or parameter.
        ConfigurationError: If the policy cannot run in the scenario.
    """
    make_policy(text).check(environment.spec)
    if reason := why_not(text, environment):
        raise ConfigurationError(f"policy {text} cannot run in {scenario}: {reason}")
