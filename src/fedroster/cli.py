"""The command line: for people, and with ``--json`` for scripts.

Results go to stdout, everything else to stderr.  Exit codes: 0 done, 1 failed, 2 wrong usage,
3 the time that was given is up.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from fedroster import __version__
from fedroster.catalogue import AUTOMATIC, DEFAULT_SCENARIO, Entry, find_scenario, parse_settings, policies, scenarios
from fedroster.core.checks import check_choice
from fedroster.core.errors import ConfigurationError, FedrosterError, InvalidInputError, PausedError, UnknownNameError

if TYPE_CHECKING:
    from fedroster.study.experiment import Conditions, Engine
    from fedroster.study.traces import Description

app = typer.Typer(
    name="fedroster",
    help="Decide which clients take part in each round of federated learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Where there is no terminal, 80 columns would cut the tables.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False)

F = TypeVar("F", bound=Callable[..., Any])

_CITATIONS = {
    "rbcs-f": """@article{huang2021rbcsf,
  author  = {Huang, Tiansheng and Lin, Weiwei and Wu, Wentai and He, Ligang and Li, Keqin and Zomaya, Albert Y.},
  title   = {An Efficiency-Boosting Client Selection Scheme for Federated Learning with Fairness Guarantee},
  journal = {IEEE Transactions on Parallel and Distributed Systems},
  year    = {2021},
  doi     = {10.1109/TPDS.2020.3040887}
}""",
    "cocs": """@misc{qu2021cocs,
  author = {Qu, Zhe and Duan, Rui and Chen, Lixing and Xu, Jie and Lu, Zhuo and Liu, Yao},
  title  = {Context-Aware Online Client Selection for Hierarchical Federated Learning},
  year   = {2021},
  eprint = {2112.00925},
  archivePrefix = {arXiv}
}""",
    "fedcs": """@inproceedings{nishio2019fedcs,
  author    = {Nishio, Takayuki and Yonetani, Ryo},
  title     = {Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge},
  booktitle = {IEEE International Conference on Communications (ICC)},
  year      = {2019},
  doi       = {10.1109/ICC.2019.8761315}
}""",
    "random": """@inproceedings{mcmahan2017communication,
  author    = {McMahan, H. Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth
               and Ag{\\"u}era y Arcas, Blaise},
  title     = {Communication-Efficient Learning of Deep Networks from Decentralized Data},
  booktitle = {International Conference on Artificial Intelligence and Statistics (AISTATS)},
  year      = {2017},
  eprint    = {1602.05629},
  archivePrefix = {arXiv}
}""",
    "oort": """@inproceedings{lai2021oort,
  author    = {Lai, Fan and Zhu, Xiangfeng and Madhyastha, Harsha V. and Chowdhury, Mosharaf},
  title     = {Oort: Efficient Federated Learning via Guided Participant Selection},
  booktitle = {USENIX Symposium on Operating Systems Design and Implementation (OSDI)},
  year      = {2021},
  eprint    = {2010.06081},
  archivePrefix = {arXiv}
}""",
    "power-of-choice": """@misc{cho2020powerofchoice,
  author = {Cho, Yae Jee and Wang, Jianyu and Joshi, Gauri},
  title  = {Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection Strategies},
  year   = {2020},
  eprint = {2010.01243},
  archivePrefix = {arXiv}
}""",
    "tifl": """@inproceedings{chai2020tifl,
  author    = {Chai, Zheng and Ali, Ahsan and Zawad, Syed and Truex, Stacey and Anwar, Ali and Baracaldo, Nathalie
               and Zhou, Yi and Ludwig, Heiko and Yan, Feng and Cheng, Yue},
  title     = {{TiFL}: A Tier-based Federated Learning System},
  booktitle = {International Symposium on High-Performance Parallel and Distributed Computing (HPDC)},
  year      = {2020},
  doi       = {10.1145/3369583.3392686}
}""",
    "e3cs": """@article{huang2022e3cs,
  author  = {Huang, Tiansheng and Lin, Weiwei and Shen, Li and Li, Keqin and Zomaya, Albert Y.},
  title   = {Stochastic Client Selection for Federated Learning With Volatile Clients},
  journal = {IEEE Internet of Things Journal},
  year    = {2022},
  doi     = {10.1109/JIOT.2022.3172113}
}""",
    "cs-ucb": """@article{xia2020csucb,
  author  = {Xia, Wenchao and Quek, Tony Q. S. and Guo, Kun and Wen, Wanli and Yang, Howard H. and Zhu, Hongbo},
  title   = {Multi-Armed Bandit-Based Client Scheduling for Federated Learning},
  journal = {IEEE Transactions on Wireless Communications},
  year    = {2020},
  doi     = {10.1109/TWC.2020.3008091}
}""",
    "round-robin": """@article{yang2020scheduling,
  author  = {Yang, Howard H. and Liu, Zuozhu and Quek, Tony Q. S. and Poor, H. Vincent},
  title   = {Scheduling Policies for Federated Learning in Wireless Networks},
  journal = {IEEE Transactions on Communications},
  year    = {2020},
  eprint  = {1908.06287},
  archivePrefix = {arXiv}
}""",
    "size-weighted": """@inproceedings{li2020convergence,
  author    = {Li, Xiang and Huang, Kaixuan and Yang, Wenhao and Wang, Shusen and Zhang, Zhihua},
  title     = {On the Convergence of {FedAvg} on Non-{IID} Data},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year      = {2020},
  eprint    = {1907.02189},
  archivePrefix = {arXiv}
}""",
}
# Policies that come with another one's paper.
_CITED_AS = {
    **dict.fromkeys(("p3", "dirichlet"), "rbcs-f"),
    **dict.fromkeys(("oracle", "oracle-p", "cucb", "linucb"), "cocs"),
    "fedcs-greedy": "fedcs",
}


def _reporting(command: F) -> F:
    """Turn errors into one clear line and the exit code that fits."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except (ConfigurationError, UnknownNameError, InvalidInputError) as error:
            _fail(error, 2)
        except PausedError as error:
            _fail(error, 3)
        except (FedrosterError, OSError) as error:
            _fail(error, 1)
        except KeyboardInterrupt as error:
            err.print("interrupted; finished runs are kept")
            raise typer.Exit(1) from error

    return wrapped  # type: ignore[return-value]


def _fail(error: Exception, code: int) -> None:
    if os.environ.get("FEDROSTER_DEBUG"):
        raise error
    err.print("error: ", style="bold red", end="")
    err.print(str(error), markup=False, soft_wrap=True)
    raise typer.Exit(code) from error


_MOST_SEEDS = 100_000


def _seeds(text: str) -> list[int]:
    """Read ``0-4``, ``1,3`` or a mixture."""
    seeds: list[int] = []
    for part in text.split(","):  # checked before it is spelt out: a range may be too long for the memory
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or (dash and int(high) < int(low)):
            raise ConfigurationError(f"seeds are {text!r}; expected something like 0-4 or 1,3,5")
        first, last = int(low), int(high if dash else low)
        if len(seeds) + last - first >= _MOST_SEEDS:
            raise ConfigurationError(f"seeds are {text!r}, more than {_MOST_SEEDS:,}; expected fewer")
        seeds.extend(range(first, last + 1))
    if len(set(seeds)) != len(seeds):
        raise ConfigurationError(f"seeds are {text!r}; expected each seed once")
    return seeds


def _command() -> str:
    return shlex.join(["fedroster", *sys.argv[1:]])


@contextmanager
def _progress(what: str, total: int) -> Iterator[Callable[[float], None]]:
    """A progress bar on stderr; yields the function that says how much is done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _print_json(content: object) -> None:
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


SeedsOption = Annotated[str, typer.Option("--seeds", help="Seeds, such as 0-4 or 1,3,5.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Override a parameter of the scenario.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Runs at the same time; one for each core if not given.")
]
EngineOption = Annotated[
    str, typer.Option("--engine", help="Where runs are played: local for processes of this machine, or ray.")
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        "--ray-address", help="With --engine ray: HOST:PORT of a cluster, or auto; one of its own if not given."
    ),
]


DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder of the data sets; FEDROSTER_DATA if not given.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, or auto for a GPU if there is one.")]
MinutesOption = Annotated[
    float | None,
    typer.Option("--minutes", min=0.0, help="Stop after this time and keep what is done; the same command goes on."),
]


def _conditions(device: str, data_dir: Path | None, minutes: float | None) -> Conditions:
    from fedroster.study.experiment import Conditions

    check_choice("device", device, ("cpu", "cuda", "auto"))
    stop_at = math.inf if minutes is None else time.time() + 60.0 * minutes
    return Conditions(stop_at=stop_at, device=cast("Literal['cpu', 'cuda', 'auto']", device), data_dir=data_dir)


def _engine(name: str, ray_address: str | None) -> Engine:
    from fedroster.study.experiment import PROCESSES

    check_choice("engine", name, ("local", "ray"))
    if name == "ray":
        from fedroster.study.ray_engine import RayEngine

        return RayEngine(ray_address)
    if ray_address is not None:
        raise ConfigurationError(
            f"--ray-address is {ray_address!r} and --engine {name!r}; expected --engine ray with it"
        )
    return PROCESSES


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"fedroster {__version__}\n")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Decide which clients take part in each round of federated learning."""


@app.command("list")
@_reporting
def list_(as_json: JsonOption = False) -> None:
    """List policies and scenarios with their parameters."""
    groups = {"policies": policies(), "scenarios": scenarios()}
    if as_json:
        _print_json(
            {
                group: [
                    {
                        "name": name,
                        "summary": entry.summary,
                        "source": entry.source,
                        "version": entry.version,
                        "parameters": entry.parameters(),
                    }
                    for name, entry in entries.items()
                ]
                for group, entries in groups.items()
            }
        )
        return
    for group, entries in groups.items():
        table = Table(title=group, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for column in ("name", "what", "parameters"):
            table.add_column(column, no_wrap=column == "name", overflow="fold")
        for name, entry in entries.items():
            table.add_row(name, entry.summary, _parameters(entry))
        out.print(table)
        out.print()


def _parameters(entry: Entry) -> str:
    def shown(value: Any) -> str:
        if value is None:
            return AUTOMATIC
        return "/".join(f"{part:g}" for part in value) if isinstance(value, tuple) else str(value)

    return ", ".join(f"{name}={shown(value)}" for name, value in entry.parameters().items()) or "-"


@app.command()
@_reporting
def simulate(
    scenario: Annotated[str, typer.Argument(help="Scenario, such as rbcs-f/table-1.")],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME[:P=V,...]",
            help="Policy; give it several times. If not given, random and two or three that suit the scenario.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 500,
    seeds: SeedsOption = "0",
    set_: SetOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    ray_address: RayAddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play rounds without training and print what each policy costs and who takes part."""
    from fedroster.study.experiment import Cell, run_cells
    from fedroster.study.statistics import mean_interval

    settings = parse_settings(set_ or [])
    entry, numbers = find_scenario(scenario), _seeds(seeds)
    chosen = policy or list(entry.policies)
    for text in chosen:
        Cell(scenario, text, 0, rounds, settings).check()
    # The regret's optimal policy is played too, once for each seed, if nobody asked for it.
    extra = [entry.optimal] if entry.optimal and entry.optimal not in chosen else []
    cells = [Cell(scenario, text, seed, rounds, settings) for text in (*chosen, *extra) for seed in numbers]
    summaries: list[dict[str, Any]] = [{} for _ in cells]
    chosen_engine = _engine(engine, ray_address)
    with _progress("simulating", len(cells)) as advance:
        for finished, done in enumerate(run_cells(cells, workers=workers, engine=chosen_engine), start=1):
            summaries[done.index] = done.result.summary()
            advance(finished)
    best = {
        cell.seed: summary["cumulative_utility"]
        for cell, summary in zip(cells, summaries, strict=True)
        if cell.policy == entry.optimal
    }
    results: list[dict[str, Any]] = [
        {
            "scenario": cell.scenario,
            "scenario_version": entry.version,
            "policy": cell.policy,
            "seed": cell.seed,
            "settings": dict(cell.settings),
            **summary,
            **({"regret": best[cell.seed] - summary["cumulative_utility"]} if best else {}),
        }
        for cell, summary in zip(cells, summaries, strict=True)
        if cell.policy in chosen
    ]
    if as_json:
        _print_json(results)
        return
    measures = (*_UTILITY_MEASURES, *_MEASURES[:2]) if best else _MEASURES
    table = Table(title=f"{scenario}, {rounds} rounds, seeds {seeds}", title_justify="left", box=None)
    table.add_column("policy", no_wrap=True)
    for _, heading in measures:
        table.add_column(heading, justify="right", no_wrap=True)
    for text in dict.fromkeys(chosen):
        rows = [result for result in results if result["policy"] == text]
        table.add_row(text, *(_with_interval(mean_interval([row[name] for row in rows])) for name, _ in measures))
    out.print(table)


_MEASURES = (
    ("mean_round_time_s", "round, s"),
    ("mean_cohort_size", "cohort"),
    ("min_participation_rate", "lowest"),
    ("max_participation_rate", "highest"),
    ("jain_index", "Jain"),
    ("final_mean_backlog", "backlog"),
)
_UTILITY_MEASURES = (
    ("cumulative_utility", "utility"),
    ("regret", "regret"),
    ("explore_share", "exploring"),
    ("budget_used", "spent"),
)


def _with_interval(interval: Any) -> str:
    half = interval.high - interval.mean
    return f"{interval.mean:.3g}" if half == 0.0 else f"{interval.mean:.3g} ± {half:.2g}"


@app.command()
@_reporting
def reproduce(
    paper: Annotated[
        str,
        typer.Argument(help="Paper, such as rbcs-f; an unknown name lists them."),
    ],
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            help="Figure, such as 2; give it several times. All if not given; an unknown name lists them. Those with "
            "training need --scale.",
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=10, help="Rounds of each run; the paper's if not given.")] = None,
    seeds: SeedsOption = "0-9",
    scale: Annotated[
        str | None, typer.Option("--scale", help="With the training experiments, in this size: smoke, cpu or full.")
    ] = None,
    training_seeds: Annotated[
        str | None,
        typer.Option("--training-seeds", help="Seeds of runs with training, with --scale."),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", help="Folder; runs/reproduce/PAPER if not given.")] = None,
    data_only: Annotated[bool, typer.Option("--data-only", help="Tables only, no pictures and no page.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard scalars, too.")] = False,
    data_dir: DataDirOption = None,
    device: DeviceOption = "cpu",
    minutes: MinutesOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    ray_address: RayAddressOption = None,
) -> None:
    """Make a paper's figures again, with intervals, and judge its claims."""
    from fedroster.study.reproduce import reproduce as make

    for option, is_given in (("--training-seeds", training_seeds is not None), ("--tensorboard", tensorboard)):
        if is_given and scale is None:
            raise ConfigurationError(
                f"{option} is given, and --scale is not; expected --scale smoke, cpu or full with it"
            )
    target = folder or Path("runs/reproduce") / paper
    with _progress("training" if scale else "simulating", 100) as advance:
        made = make(
            paper,
            figures=figure or [],
            seeds=_seeds(seeds),
            num_rounds=rounds,
            scale=scale,
            training_seeds=None if training_seeds is None else _seeds(training_seeds),
            folder=target,
            command=_command(),
            workers=workers,
            engine=_engine(engine, ray_address),
            conditions=_conditions(device, data_dir, minutes),
            data_only=data_only,
            tensorboard=tensorboard,
            progress=lambda done: advance(100 * done),
        )
    _print_verdicts(made.verdicts)
    for sentence in made.findings:
        out.print(sentence, markup=False)
    err.print(f"written to {made.folder}", markup=False)


def _print_verdicts(verdicts: Sequence[Any]) -> None:
    if not verdicts:
        return
    table = Table(title="Claims", title_justify="left", box=None)
    for column in ("where", "claim", "p (Holm)", "verdict"):
        table.add_column(column, overflow="fold")
    for verdict in verdicts:
        style = "green" if verdict.holds else "red"
        table.add_row(
            verdict.claim.source, verdict.claim.statement, f"{verdict.adjusted_p:.3g}", f"[{style}]{verdict.word}[/]"
        )
    out.print(table)


@app.command()
@_reporting
def compare(
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            metavar="NAME|all",
            help="Scenario, rbcs-f/table-1 if not given. Given several times, or all: a folder for each and a page "
            "above them; policies that cannot run in one of them are left out there.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", metavar="NAME[:P=V,...]", help="Policy; give it several times.")
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            metavar="all|NAME[:P=V,...],...",
            help="Policies, separated by commas. all: every policy of `fedroster list`, plug-ins included, that can "
            "run in the scenario (two rounds are played to find out); the page names the others with the reason. A "
            "rate beta that so many clients cannot have, N beta > m, becomes m / 2N, and V fits it.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="NAME", help="Policy that all does not stand for.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="POLICY",
            help="What the others are tested against; give it several times. If not given, random and floor or, where "
            "floor does not take part, partial-pooling.",
        ),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option("--clients", min=1, max=10_000_000, help="Clients; the cohort grows with them, up to 1,000."),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option("--beta", help="Rate that is owed to every client, for all policies that promise one."),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rounds; if not given 200 with training and the paper's without (500 and 1,000), with traces/devices "
            "a week of half hours.",
        ),
    ] = None,
    seeds: SeedsOption = "0-4",
    task: Annotated[
        str, typer.Option("--task", help="What is trained, such as digits or fashion-mnist; none for no training.")
    ] = "digits",
    partition: Annotated[
        str, typer.Option("--partition", help="Clients' samples: dirichlet:GAMMA_1, labels:NUMBER or iid.")
    ] = "dirichlet:0.5",
    target: Annotated[float, typer.Option("--target", help="Accuracy for the time to accuracy.")] = 0.9,
    set_: SetOption = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder.")] = Path("runs/compare"),
    data_dir: DataDirOption = None,
    device: DeviceOption = "cpu",
    minutes: MinutesOption = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    ray_address: RayAddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train on real data (handwritten digits) under several policies and write a report: the main job."""
    from fedroster.study.compare.line_up import ALL, line_up, scenarios_of, split_policies
    from fedroster.study.compare.overview import compare_all, folder_of
    from fedroster.study.compare.run import compare as run
    from fedroster.task import Task

    wanted = [*split_policies(policies or ""), *(policy or [])]
    numbers, is_trained = _seeds(seeds), task != "none"
    asked = scenario or [DEFAULT_SCENARIO]
    is_one = len(asked) == 1 and asked[0] != ALL
    usual = (list(find_scenario(asked[0]).compared) if is_one else []) or [ALL]
    if policies is not None and not split_policies(policies):
        raise ConfigurationError(f"--policies is {policies!r}; expected all, or names separated by commas")
    if without and ALL not in (wanted or usual):
        raise ConfigurationError(
            f"--without is {', '.join(without)}, and all is not asked for; expected --policies all with it"
        )
    chosen = {
        name: line_up(
            name,
            wanted or usual,
            without=without or [],
            clients=clients,
            rate=beta,
            num_rounds=rounds,
            settings=parse_settings(set_ or []),
            is_trained=is_trained,
            must_run=is_one,
        )
        for name in scenarios_of(asked)
    }
    total = sum(len(line.policies) for line in chosen.values()) * len(numbers)
    with _progress("training" if is_trained else "simulating", total) as advance:
        options: dict[str, Any] = {
            "seeds": numbers,
            "task": Task(task, partition) if is_trained else None,
            "target_accuracy": target,
            "against": against or [],
            "folder": folder,
            "command": _command(),
            "workers": workers,
            "engine": _engine(engine, ray_address),
            "conditions": _conditions(device, data_dir, minutes),
            "progress": advance,
        }
        if is_one:
            ((name, line),) = chosen.items()
            summary = run(
                scenario=name,
                policies=line.policies,
                num_rounds=line.num_rounds,
                settings=line.settings,
                rate=line.rate,
                left_out=line.left_out,
                **options,
            )
        else:
            summary = compare_all(line_ups=chosen, **options)
    if as_json:
        _print_json(summary.to_dicts())
    else:
        for name, line in chosen.items():
            title = f"{name}, {line.num_rounds} rounds, seeds {seeds}"
            place = folder if is_one else folder / folder_of(name)
            _print_summary(place, f"{title}, target {target:.0%}" if is_trained else title)
        left_out = {f"{left}: {reason}": None for line in chosen.values() for left, reason in line.left_out.items()}
        for words in left_out:
            err.print(f"not compared: {words}", markup=False, soft_wrap=True)
    err.print(f"report: {folder / 'report.html'}", markup=False)


def _print_summary(folder: Path, title: str) -> None:
    from fedroster.study.compare.page import summary_table
    from fedroster.study.compare.tables import read_settings
    from fedroster.study.store import read_table

    table = Table(title=title, title_justify="left", box=None)
    columns, rows = summary_table(read_table(folder / "summary.csv"), read_settings(folder), is_brief=True)
    for index, column in enumerate(columns):
        is_name = index == 0
        justify: Literal["left", "right"] = "left" if is_name else "right"
        table.add_column(
            column, no_wrap=not is_name, overflow="fold", justify=justify, min_width=18 if is_name else None
        )
    for row in rows:
        table.add_row(*row)
    out.print(table)


@app.command()
@_reporting
def report(folder: Annotated[Path, typer.Argument(help="Folder that `fedroster compare` wrote.")]) -> None:
    """Make summaries, figures and pages again from a comparison's tables."""
    from fedroster.study.compare.overview import is_of_several, render_all
    from fedroster.study.compare.page import render

    if not folder.is_dir():
        raise InvalidInputError(f"{folder} is not a folder; expected one that `fedroster compare` wrote")
    if is_of_several(folder):
        render_all(folder)
    else:
        render(folder)
    err.print(f"report: {folder / 'report.html'}", markup=False)


@app.command()
def rerun(
    file: Annotated[Path, typer.Argument(help="settings.json of a comparison or a reproduction.")],
    folder: Annotated[Path | None, typer.Option("--out", help="Another folder than the one of the first run.")] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="local or ray; that of the first run if not given.")
    ] = None,
    ray_address: RayAddressOption = None,
) -> None:
    """Run again what wrote a settings file: the same command, with finished runs taken from the folder."""
    arguments = _kept_arguments(file)
    if folder is not None:
        arguments = [*_without(arguments, "--out"), "--out", str(folder)]
    if engine is not None:
        arguments = [*_without(_without(arguments, "--engine"), "--ray-address"), "--engine", engine]
    if ray_address is not None:
        arguments = [*_without(arguments, "--ray-address"), "--ray-address", ray_address]
    sys.argv = ["fedroster", *arguments]
    app()


def _without(arguments: Sequence[str], option: str) -> list[str]:
    """Arguments without an option and its value."""
    kept: list[str] = []
    for place, part in enumerate(arguments):
        is_value = place > 0 and arguments[place - 1] == option
        if not (part == option or is_value or part.startswith(f"{option}=")):
            kept.append(part)
    return kept


@_reporting
def _kept_arguments(file: Path) -> list[str]:
    from fedroster.study.store import read_json

    command = read_json(file).get("command")
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # a quotation without end
        words = []
    if words[:1] != ["fedroster"] or words[1:2] not in (["compare"], ["reproduce"]):
        raise InvalidInputError(f"{file} names no command of fedroster compare or reproduce, but {command!r}")
    return words[1:]


@app.command()
@_reporting
def cite(
    name: Annotated[
        str | None, typer.Argument(help="Paper or policy, such as rbcs-f; all papers if not given.")
    ] = None,
) -> None:
    """Print BibTeX of the papers behind the policies."""
    if name is None:
        sys.stdout.write("\n".join([*_CITATIONS.values(), ""]))
        return
    paper = _CITED_AS.get(name, name)
    if paper in policies() and paper not in _CITATIONS:
        raise InvalidInputError(
            f"policy {name} comes from no paper that is known here; expected one of {', '.join(_CITATIONS)}, "
            "or cite the software: CITATION.cff"
        )
    if paper not in _CITATIONS:
        raise UnknownNameError.of("paper", name, {**_CITATIONS, **_CITED_AS})
    sys.stdout.write(_CITATIONS[paper] + "\n")


data_app = typer.Typer(
    help="The data sets: where they lie, downloads, digests, and pictures of partitions.", no_args_is_help=True
)
app.add_typer(data_app, name="data")


@data_app.command("list")
@_reporting
def data_list(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """List the data sets, their sizes, and where each was found."""
    from fedroster.data.load import DATASETS, data_folder
    from fedroster.data.source import locate

    root = data_folder(data_dir)
    rows: list[dict[str, Any]] = []
    for name, source in DATASETS.items():
        location = locate(source, root)
        rows.append(
            {
                "name": name,
                "train_samples": source.num_train,
                "test_samples": source.num_test,
                "classes": source.num_classes,
                "shape": list(source.shape),
                "layout": location.layout.title if location else None,
                "folder": str(location.folder) if location else None,
                "built_in": not source.layouts,
            }
        )
    if as_json:
        _print_json(rows)
        return
    table = Table(title=f"data sets in {root}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("name", "training", "test", "image", "found"):
        justify: Literal["left", "right"] = "right" if column in ("training", "test") else "left"
        table.add_column(column, no_wrap=column == "name", overflow="fold", justify=justify)
    for row in rows:
        found = f"{row['layout']} in {row['folder']}" if row["folder"] else "no"
        if row["built_in"]:
            found = "ships with scikit-learn"
        samples = (f"{row['train_samples']:,}", f"{row['test_samples']:,}")
        table.add_row(row["name"], *samples, " x ".join(str(size) for size in row["shape"]), Text(found))
    out.print(table)


@data_app.command("fetch")
@_reporting
def data_fetch(
    name: Annotated[str, typer.Argument(help="Data set, such as mnist.")], data_dir: DataDirOption = None
) -> None:
    """Download a data set from its published addresses; the same command continues where it broke off."""
    from fedroster.data.fetch import fetch
    from fedroster.data.load import data_folder, find_dataset

    source, root = find_dataset(name), data_folder(data_dir)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err) as bar:
        task = bar.add_task(source.title, total=None, visible=False)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        location = fetch(source, root, progress=advance)
    err.print(f"{source.title} lies in {location.folder}, and is the published data set", markup=False)


@data_app.command("check")
@_reporting
def data_check(
    name: Annotated[str, typer.Argument(help="Data set, such as mnist.")],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the digest of every file with the published one."""
    from fedroster.core.errors import DataFileError
    from fedroster.data.load import data_folder, find_dataset
    from fedroster.data.source import check, require

    source = find_dataset(name)
    if not source.layouts:
        raise ConfigurationError(f"{source.title} ships with a package; expected a data set that has files")
    checks = check(source, require(source, data_folder(data_dir)))
    if as_json:
        _print_json([{"path": str(one.path), "fault": one.fault or None, "repacked": one.repacked} for one in checks])
    else:
        for one in checks:
            word = "differs" if one.fault else "content as published" if one.repacked else "as published"
            out.print(f"{one.path}: {word}", markup=False, soft_wrap=True)
    faults = [one.fault for one in checks if one.fault]
    if faults:
        raise DataFileError("; ".join(faults))


@data_app.command("partition")
@_reporting
def data_partition(
    name: Annotated[str, typer.Argument(help="Data set, such as mnist.")],
    picture: Annotated[Path | None, typer.Option("--out", help="Picture to write, FILE.png.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="dirichlet, labels or iid.")] = "dirichlet",
    clients: Annotated[int, typer.Option("--clients", min=1, help="Clients.")] = 40,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Samples of each client.")] = 500,
    gamma_1: Annotated[float, typer.Option("--gamma-1", help="Concentration, for dirichlet.")] = 0.5,
    labels: Annotated[int, typer.Option("--labels", min=1, help="Labels of each client, for labels.")] = 2,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed.")] = 0,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Divide a data set among clients as training with this seed does, and show what each client holds."""
    from fedroster.data.load import load_dataset
    from fedroster.data.partition import class_counts
    from fedroster.task import Partition

    check_choice("kind", kind, ("dirichlet", "labels", "iid"))
    text = {"dirichlet": f"dirichlet:{gamma_1}", "labels": f"labels:{labels}", "iid": "iid"}[kind]
    if picture is not None and picture.suffix != ".png":
        raise ConfigurationError(f"--out is {picture}; expected a file that ends in .png")
    plan = Partition.parse(text)
    dataset = load_dataset(name, folder=data_dir)
    rows = plan.divide(dataset, num_clients=clients, samples_per_client=samples, seed=seed)
    counts = class_counts(rows, dataset.train_y, dataset.num_classes)
    if picture is not None:
        from fedroster.study.figures import save_png
        from fedroster.study.partitions import partition_figure

        title = f"{name}, {text}, {clients} clients of {samples:,} samples"
        picture.parent.mkdir(parents=True, exist_ok=True)
        save_png(partition_figure(counts, title=title), picture)
        err.print(f"written to {picture}", markup=False)
    if as_json:
        _print_json(
            {
                "dataset": name,
                "partition": text,
                "clients": clients,
                "samples_per_client": samples,
                "seed": seed,
                "class_counts": counts.tolist(),
            }
        )
        return
    held = (counts > 0).sum(axis=1)
    share = counts.max(axis=1) / samples
    out.print(
        f"{clients} clients of {samples:,} samples: {held.min()} to {held.max()} classes each, "
        f"{share.mean():.0%} of a client's samples are of its largest class"
    )


traces_app = typer.Typer(
    help="Traces of devices: conversion, checks, and what they are like beside the published ones.",
    no_args_is_help=True,
)
data_app.add_typer(traces_app, name="traces")


@traces_app.command("convert")
@_reporting
def traces_convert(
    source: Annotated[Path, typer.Argument(help="Table (.csv, .parquet), or folder with FedScale's pickles.")],
    target: Annotated[Path, typer.Argument(help="FILE.npz for a table, a folder for FedScale's.")],
    period: Annotated[
        float | None,
        typer.Option("--period", metavar="SECONDS", help="Length of a table's trace; its last time if not given."),
    ] = None,
) -> None:
    """Convert traces once to what `--set traces=...` reads; a pickle's code is never run."""
    from fedroster.study.traces import convert, describe

    written = convert(source, target, period_s=period)
    for path in written:
        err.print(f"written to {path}", markup=False)
    _print_traces(describe(target))


@traces_app.command("describe")
@_reporting
def traces_describe(
    path: Annotated[Path, typer.Argument(help=".npz of traces, table (.csv, .parquet), or folder of converted ones.")],
    as_json: JsonOption = False,
) -> None:
    """Check traces, and show their quantiles beside the published ones."""
    from fedroster.environment.population import LEVELS
    from fedroster.study.traces import describe

    found = describe(path)
    if not as_json:
        _print_traces(found)
        return
    rows = [{"what": row.what, "quantiles": row.values, "published": row.published} for row in found.quantiles()]
    _print_json({"path": str(path), **found.counts(), "levels": LEVELS, "measures": rows})


def _print_traces(found: Description) -> None:
    from fedroster.environment.population import LEVELS

    out.print("; ".join(found.sentences()), markup=False, soft_wrap=True)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("share below", no_wrap=True)
    for level in LEVELS:
        table.add_column(f"{level:.0%}", justify="right")
    for row in found.quantiles():
        table.add_row(row.what, *(f"{value:.3g}" for value in row.values))
        table.add_row("  published", *(f"{value:.3g}" for value in row.published), style="dim")
    out.print(table)


def main() -> None:
    """Run the command line."""
    app()
