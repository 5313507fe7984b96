"""Which policies are compared, and where: what ``--scenario all``, ``--policy all`` and ``--clients`` mean."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from fedroster import catalogue
from fedroster.catalogue import (
    Entry,
    find_policy,
    find_scenario,
    make_policy,
    make_scenario,
    policy_text,
    policy_texts,
    scenario_text,
)
from fedroster.errors import ConfigurationError, FedrosterError, InfeasibleError, UnknownNameError
from fedroster.lab.compare.contrasts import focus_of
from fedroster.lab.compare.tables import Settings, named
from fedroster.lab.task import Task
from fedroster.lab.trials.trial import DEFAULT_RATE
from fedroster.parts import check_integer, check_number
from fedroster.simulation import promises, simulate
from fedroster.types import AnyEnvironment, AnyPolicy, ProblemSpec, Streams

ALL = "all"
"""Stands for every scenario of the catalogue, or for every policy of it that can run in the scenario."""

MOST_CHOSEN = 1000
"""With more clients the cohort grows with them up to this size."""


def split_policies(text: str) -> list[str]:
    """Read policies that are separated by commas, as their parameters are, too.

    A part with ``=`` and no ``:`` is a parameter of the policy before it: no policy's name has an ``=``.
    """
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        elif part:
            found.append(part)
    return found


def scenarios_of(wanted: Sequence[str]) -> tuple[str, ...]:
    """Read which scenarios are meant; UnknownNameError for one that is not there, ConfigurationError for one twice."""
    found = [name for text in wanted for name in (catalogue.scenarios() if text == ALL else (text,))]
    for name in found:
        find_scenario(name)
    if len(set(found)) < len(found):
        raise ConfigurationError(f"scenarios are {found}; expected each once")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a comparison in any scenario; each field is an argument of :func:`fedroster.compare`."""

    policies: Sequence[str | AnyPolicy] = ()
    seeds: int | Sequence[int] = 5
    rounds: int | None = None
    task: Task | None = None
    target_accuracy: float = 0.9
    focus: str | AnyPolicy = ""
    clients: int | None = None
    beta: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    def check(self) -> None:
        """Check what does not depend on the scenario: ConfigurationError for a bad value, or what is said twice."""
        if self.rounds is not None:
            check_integer("rounds", self.rounds, least=1)
        if self.beta is not None:
            check_number("beta", self.beta, above=0.0, most=1.0)
        if self.clients is not None:
            check_integer("clients", self.clients, least=1)
            if "num_clients" in self.settings:
                given = self.settings["num_clients"]
                raise ConfigurationError(f"--clients is {self.clients} and --set num_clients={given}; expected one")

    @property
    def in_focus(self) -> str:
        """The policy that the pages are about, as the catalogue writes it; empty if it is not said."""
        with suppress(UnknownNameError):  # then it does not take part
            return policy_text(self.focus)
        return str(self.focus)


def line_up(scenario: str, asked: Asked, *, must_run: bool = True) -> Settings:
    r"""Decide what is compared in a scenario.

    What is not said is chosen: the rounds are those of the scenario's entry; with a number of clients the cohort grows
    with them, up to :data:`MOST_CHOSEN`; and policies with a guaranteed rate that :math:`N \beta \le m` rules out have

    .. math:: \beta = \frac{m}{2N}, \qquad V = \frac{m \beta T}{6 \bar\tau},

    half of the largest rate that could be promised, and a penalty in proportion to what a cohort of neglected clients
    would be owed in the end: for the network of Huang et al. 2021 and its 500 rounds this is about their V = 20.
    :math:`\bar\tau` is the mean expected time of the clients that are available in the first round.  Parameters
    that are given stay as they are.

    If no policies are asked for, they are those of the scenario's entry, or all.  Where each ``must_run``, it is an
    error if one that is named cannot run in the scenario, or the one in focus does not take part; else they are left
    out, as those of ``all`` are.

    Raises:
        UnknownNameError: If there is no such scenario, policy or parameter.
        ConfigurationError: If a value is out of its range, or must_run is not met.
    """
    asked.check()
    scenario, entry = scenario_text(scenario), find_scenario(scenario)
    task, seeds = asked.task, asked.seeds
    in_focus = [] if isinstance(asked.focus, str) else [asked.focus]
    wanted = policy_texts([*asked.policies, *in_focus], besides=ALL)[: len(asked.policies)]
    wanted = wanted or list((must_run and entry.compared) or (ALL,))
    overridden = _settings_in(entry, asked.clients, asked.settings)
    rounds = asked.rounds or (entry.untrained_rounds if task is None else entry.rounds)
    environment = make_scenario(scenario, overridden)
    spec = environment.spec
    fits = spec.num_clients * DEFAULT_RATE <= spec.cohort_size
    rate = asked.beta or (DEFAULT_RATE if fits else spec.cohort_size / (2.0 * spec.num_clients))
    own = {"beta": f"{rate:.6g}"}
    if not fits and (penalty := _penalty(environment, rate, rounds)) is not None:
        own = {"V": f"{penalty:g}"} | own
    found: list[str] = []
    left_out: dict[str, str] = {}
    for text in (name for part in wanted for name in (catalogue.policies() if part == ALL else (part,))):
        fitted = _fitted(text, spec, own, is_given=asked.beta is not None)
        is_named = text in wanted
        if is_named:
            make_policy(fitted)  # raises what is wrong in every scenario
        if is_named and must_run:
            rehearse(fitted, scenario, environment)
        elif reason := _why_not(fitted, environment, may_idle=False):
            left_out[text] = reason
            continue
        found.append(fitted)
    # "all" and a name again is no mistake: the name may come with other parameters.
    found = list(dict.fromkeys(found))
    if must_run:
        _check_focus(found, asked.in_focus)
    if task is not None and task.free_places:  # a round is one choice then: as many updates, and rates of m choices
        rounds, rate = rounds * spec.cohort_size, rate / spec.cohort_size
    return Settings(
        scenario=scenario,
        settings=overridden,
        policies=found,
        seeds=list(range(seeds)) if isinstance(seeds, int) else list(seeds),
        rounds=rounds,
        omniscient=[text for text in found if make_policy(text).omniscient],
        focus=focus_of(found, asked.in_focus) if found else "",
        optimal=entry.optimal,
        yardstick=entry.yardstick,
        command=asked.command,
        rate=rate,
        task=None if task is None else asdict(task),
        target_accuracy=asked.target_accuracy,
        left_out=left_out,
    )


def line_ups(scenarios: Sequence[str], asked: Asked) -> list[Settings]:
    """Decide what is compared in each scenario of :func:`scenarios_of`.

    The policy in focus must take part in one.  A policy that is named and cannot run is an error where one scenario is
    named; else it is left out there.
    """
    strict = len(scenarios) == 1 and scenarios[0] != ALL
    plans = [line_up(scenario, asked, must_run=strict) for scenario in scenarios_of(scenarios)]
    _check_focus((text for plan in plans for text in plan.policies), asked.in_focus)
    return plans


def _check_focus(policies: Iterable[str], focus: str) -> None:
    """Refuse a policy in focus that does not take part."""
    known = list(dict.fromkeys(policies))
    if focus and not named(known, focus):
        raise ConfigurationError(f"--focus is {focus!r}, which does not take part; expected one of {', '.join(known)}")


def _settings_in(entry: Entry, clients: int | None, settings: Mapping[str, str]) -> dict[str, str]:
    """Parameters of a scenario that are overridden, by its entry or by what is asked for."""
    found = {**entry.settings, **settings}
    if clients is None:
        return found
    found["num_clients"] = str(clients)
    usual = entry.parameters()
    if {"num_clients", "cohort_size"} <= usual.keys() and "cohort_size" not in settings:
        size = round(clients * usual["cohort_size"] / usual["num_clients"])
        found["cohort_size"] = str(min(max(size, 1), MOST_CHOSEN))
    return found


def _fitted(text: str, spec: ProblemSpec, own: Mapping[str, str], *, is_given: bool) -> str:
    """A policy with the scenario's beta and V, where its text does not give them and it refuses its own beta here."""
    entry, (name, _, given) = find_policy(text), text.partition(":")
    known = {part.partition("=")[0].strip() for part in given.split(",")}
    more = [f"{key}={value}" for key, value in own.items() if key in entry.parameters() and key not in known]
    is_promised = "beta" in entry.parameters() and "beta" not in known and promises(entry.make)
    if not is_promised or not (is_given or _refuses(text, spec)):
        return text
    return f"{name}:{','.join([*filter(None, (given,)), *more])}"


def _refuses(text: str, spec: ProblemSpec) -> bool:
    """Whether a policy promises what is impossible here; one whose beta is something else does not."""
    try:
        make_policy(text).check(spec)
    except Exception as error:  # for another reason, and of another package: it is said where the policy is tried
        return isinstance(error, InfeasibleError)
    return False


def _penalty(environment: AnyEnvironment, rate: float, num_rounds: int) -> float | None:
    """V for queues that grow by ``rate`` a round; None where no client can say how long an exchange takes."""
    streams = Streams(0)
    state = environment.init(rng=streams.at("environment-init"))
    context, outcome = environment.observe(state, 1, rng=streams.at("environment", 1))
    time_s = outcome.expected_time_s[context.available]
    mean_s = float(time_s.mean()) if time_s.shape[0] else 0.0
    if not 0.0 < mean_s < np.inf:
        return None
    return float(f"{environment.spec.cohort_size * rate * num_rounds / (6.0 * mean_s):.2g}")


def _why_not(text: str, environment: AnyEnvironment, *, may_idle: bool = True) -> str:
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
    """Raise what a policy would raise in its first rounds, whatever it is, as ConfigurationError with its name."""
    make_policy(text).check(environment.spec)
    if reason := _why_not(text, environment):
        raise ConfigurationError(f"policy {text} cannot run in {scenario}: {reason}")
