"""Who takes part in a comparison, and where: what ``--scenario all``, ``--policies all`` and ``--clients`` mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedroster.catalogue import find_scenario, make_policy, make_scenario, policies, scenarios
from fedroster.core.checks import check_integer, check_number
from fedroster.core.errors import ConfigurationError, FedrosterError
from fedroster.core.protocols import AnyEnvironment
from fedroster.core.streams import Streams
from fedroster.simulation import simulate
from fedroster.study.trial import DEFAULT_RATE

ALL = "all"
"""Stands for every scenario of the catalogue, or for every policy of it that can run in the scenario."""

MOST_CHOSEN = 1000
"""With more clients the cohort grows with them up to this size."""


@dataclass(frozen=True, slots=True)
class LineUp:
    """Who is compared, and how.

    Attributes:
        policies: Policies as text, with the parameters that the scenario forces on them.
        left_out: Why a policy that was asked for, by its name or by ``all``, is not among them.
        settings: Parameters of the scenario that are overridden, as text.
        num_rounds: T.
        rate: beta at which participation is measured.
    """

    policies: tuple[str, ...]
    left_out: Mapping[str, str]
    settings: Mapping[str, str]
    num_rounds: int
    rate: float


def split_policies(text: str) -> list[str]:
    """Read policies that are separated by commas, as their parameters are, too.

    A part with ``=`` and no ``:`` is a parameter of the policy before it: no policy's name has an ``=``.

    Args:
        text: Such as ``all``, or ``random,rbcs-f:V=5,beta=0.1,oort``.
    """
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        elif part:
            found.append(part)
    return found


def scenarios_of(wanted: Sequence[str]) -> tuple[str, ...]:
    """Read which scenarios are meant.

    Args:
        wanted: Names; :data:`ALL` among them for the whole catalogue.

    Raises:
        UnknownNameError: If there is no such scenario or version.
        ConfigurationError: If one comes twice.
    """
    found = [name for text in wanted for name in (scenarios() if text == ALL else (text,))]
    for name in found:
        find_scenario(name)
    if len(set(found)) < len(found):
        raise ConfigurationError(f"scenarios are {found}; expected each once")
    return tuple(found)


def line_up(
    scenario: str,
    wanted: Sequence[str],
    *,
    without: Sequence[str] = (),
    clients: int | None = None,
    rate: float | None = None,
    num_rounds: int | None = None,
    settings: Mapping[str, str] | None = None,
    is_trained: bool = True,
    must_run: bool = True,
) -> LineUp:
    r"""Decide who is compared.

    What is not said is chosen for the scenario: the rounds; with ``clients`` a cohort that grows with them, up to
    :data:`MOST_CHOSEN`; and for policies with a guaranteed rate that :math:`N \beta \le m` rules out

    .. math:: \beta = \frac{m}{2N}, \qquad V = \frac{m \beta T}{6 \bar\tau},

    half of what could be promised, and a penalty in proportion to what a cohort of neglected clients would be owed in
    the end: for paper A's network and its 500 rounds this is about its V = 20.  :math:`\bar\tau` is the mean expected
    time of the clients that are available in the first round.  Parameters that are given stay as they are.

    Args:
        scenario: Name of a scenario.
        wanted: Policies as text; :data:`ALL` among them for the whole catalogue.
        without: Names that ``all`` does not stand for.
        clients: N; None for the scenario's.
        rate: beta, in (0, 1]; None to choose it.
        num_rounds: T; None to choose it.
        settings: Parameters of the scenario that are overridden, as text.
        is_trained: Whether a model is trained; without, runs may be longer.
        must_run: Whether policies that are named stay where they cannot run, which raises an error later; else they
            are left out with the reason, as those of ``all`` are.

    Raises:
        UnknownNameError: If there is no such scenario, policy or parameter.
        ConfigurationError: If a value is out of its range, or something is said twice.
    """
    entry = find_scenario(scenario)
    chosen = {**entry.settings, **(settings or {})}
    if clients is not None:
        chosen |= _of_size(scenario, clients, settings or {})
    if num_rounds is not None:
        check_integer("rounds", num_rounds, least=1)
    usual = entry.num_rounds if is_trained else entry.untrained_rounds
    rounds = usual if num_rounds is None else num_rounds
    environment = make_scenario(scenario, chosen)
    spec = environment.spec
    if rate is not None:
        check_number("beta", rate, above=0.0, most=1.0)
    fits = spec.num_clients * DEFAULT_RATE <= spec.cohort_size
    measured = rate if rate is not None else DEFAULT_RATE if fits else spec.cohort_size / (2.0 * spec.num_clients)
    penalty = None if fits else _penalty(environment, measured, rounds)

    found: list[str] = []
    left_out: dict[str, str] = {}
    for name in without:
        if name not in policies():
            make_policy(name)  # raises, and names the nearest
    for text in wanted:
        if text != ALL:
            fitted = _fitted(text, spec.num_clients, spec.cohort_size, rate, measured, penalty)
            if not must_run:
                make_policy(fitted)  # raises what is wrong in every scenario
                if reason := _why_not(fitted, environment):
                    left_out[text] = reason
                    continue
            found.append(fitted)
            continue
        for name in policies():
            if name in without:
                left_out[name] = "left out by --without"
                continue
            fitted = _fitted(name, spec.num_clients, spec.cohort_size, rate, measured, penalty)
            reason = _why_not(fitted, environment)
            if reason:
                left_out[name] = reason
            else:
                found.append(fitted)
    # "all" and a name again is no mistake: the name may come with other parameters.
    return LineUp(tuple(dict.fromkeys(found)), left_out, chosen, rounds, measured)


def _of_size(scenario: str, clients: int, settings: Mapping[str, str]) -> dict[str, str]:
    check_integer("clients", clients, least=1)
    if "num_clients" in settings:
        raise ConfigurationError(
            f"--clients is {clients} and --set num_clients={settings['num_clients']}; expected one of them"
        )
    found = {"num_clients": str(clients)}
    usual = find_scenario(scenario).parameters()
    if "cohort_size" in usual and "cohort_size" not in settings:
        size = round(clients * usual["cohort_size"] / usual["num_clients"])
        found["cohort_size"] = str(min(max(size, 1), MOST_CHOSEN))
    return found


def _penalty(environment: AnyEnvironment, rate: float, num_rounds: int) -> float | None:
    """V for queues that grow by ``rate`` a round; None where nobody can be asked how long an exchange takes."""
    streams = Streams(0)
    state = environment.init(rng=streams.at("environment-init"))
    context, outcome = environment.observe(state, 1, rng=streams.at("environment", 1))
    time_s = outcome.expected_time_s[context.available]
    mean_s = float(time_s.mean()) if time_s.shape[0] else 0.0
    if not 0.0 < mean_s < np.inf:
        return None
    return float(f"{environment.spec.cohort_size * rate * num_rounds / (6.0 * mean_s):.2g}")


def _fitted(
    text: str, num_clients: int, cohort_size: int, rate: float | None, measured: float, penalty: float | None
) -> str:
    """A policy with the beta and V that the size of the federation forces on it, where the text does not give them."""
    name, _, given = text.partition(":")
    entry = policies().get(name.strip())
    if entry is None:
        return text  # checked later, with the nearest name
    known = entry.parameters()
    own = {part.partition("=")[0].strip() for part in given.split(",") if part}
    if "beta" not in known or "beta" in own:
        return text
    if rate is None and num_clients * known["beta"] <= cohort_size:
        return text
    parts = [given] if given else []
    if "V" in known and "V" not in own and penalty is not None:
        parts.append(f"V={penalty:g}")
    return f"{name}:{','.join([*parts, f'beta={measured:.6g}'])}"


def _why_not(text: str, environment: AnyEnvironment) -> str:
    """Why a policy cannot run in a scenario; empty if it can.  It plays two rounds to find out."""
    try:
        policy = make_policy(text)
        for played in simulate(policy, environment, num_rounds=2, seed=0):
            available = int(np.count_nonzero(played.context.available))
            if available and played.selection.is_empty and not policy.fills_cohort:
                return (
                    f"chooses none of the {available} clients that are available in round {played.number} with its own "
                    f"parameters, {policy!r}; name it with others to have it compared"
                )
    except FedrosterError as error:
        return str(error)
    return ""
