"""``fedroster data``: data sets on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedroster.cli.command import app, command
from fedroster.cli.options import DataDirOption, JsonOption, complete
from fedroster.cli.terminal import WIDE, interrupted, out, print_json, print_table, progress, remark
from fedroster.core.errors import ConfigurationError, DataFileError

group = typer.Typer(
    help="The data sets: where they are, downloads, digests, and pictures of partitions.", no_args_is_help=True
)
app.add_typer(group, name="data")

NameArgument = Annotated[str, typer.Argument(help="Data set, such as mnist.", autocompletion=complete("DATASETS"))]


@command("list", group=group)
def list_(*, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
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
        print_json(rows)
        return
    shown = [
        (
            row["name"],
            f"{row['train_samples']:,}",
            f"{row['test_samples']:,}",
            " x ".join(map(str, row["shape"])),
            _found(row),
        )
        for row in rows
    ]
    columns = ("name", "training", "test", "image", "found")
    print_table(columns, shown, title=f"data sets in {root}", right=columns[1:3], whole=["name"], padding=WIDE)


def _found(row: dict[str, Any]) -> str:
    if row["built_in"]:
        return "ships with scikit-learn"
    return f"{row['layout']} in {row['folder']}" if row["folder"] else "no"


@command(group=group)
def fetch(name: NameArgument, *, data_dir: DataDirOption = None) -> None:
    """Download a data set from its published addresses; after an interruption the same command continues."""
    from fedroster.data.fetch import fetch
    from fedroster.data.load import data_folder, find_dataset

    source, root = find_dataset(name), data_folder(data_dir)
    with (
        interrupted(lambda: "the part that arrived is kept; run the same command to continue"),
        progress(source.title, of_bytes=True) as advance,
    ):
        location = fetch(source, root, progress=advance)
    remark(f"{source.title} lies in {location.folder}, and is the published data set")


@command(group=group)
def check(name: NameArgument, *, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Compare the digest of every file with the published one."""
    from fedroster.data.load import data_folder, find_dataset
    from fedroster.data.source import check, require

    source = find_dataset(name)
    if not source.layouts:
        raise ConfigurationError(f"{source.title} ships with a package; expected a data set that has files")
    checks = check(source, require(source, data_folder(data_dir)))
    if as_json:
        print_json([{"path": str(one.path), "fault": one.fault or None, "repacked": one.repacked} for one in checks])
    else:
        for one in checks:
            word = "differs" if one.fault else "content as published" if one.repacked else "as published"
            out().print(f"{one.path}: {word}", markup=False, soft_wrap=True)
    faults = [one.fault for one in checks if one.fault]
    if faults:
        raise DataFileError("; ".join(faults))


@command(group=group)
def partition(
    name: NameArgument,
    *,
    picture: Annotated[Path | None, typer.Option("--out", help="Picture to write, FILE.png.")] = None,
    kind: Annotated[str, typer.Option(help="dirichlet, labels or iid.")] = "dirichlet",
    clients: Annotated[int, typer.Option(min=1, help="Clients.")] = 40,
    samples: Annotated[int, typer.Option(min=1, help="Samples of each client.")] = 500,
    gamma_1: Annotated[float, typer.Option(help="Concentration, for dirichlet.")] = 0.5,
    labels: Annotated[int, typer.Option(min=1, help="Labels of each client, for labels.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed.")] = 0,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Divide a data set among clients as training with this seed does, and show what each client holds."""
    from fedroster.core.checks import check_choice
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
        from fedroster.study.partitions import partitions_figure

        title = f"{name}, {text}, {clients} clients of {samples:,} samples"
        picture.parent.mkdir(parents=True, exist_ok=True)
        save_png(partitions_figure({title: counts}), picture)
        remark(f"written to {picture}")
    if as_json:
        facts = {"dataset": name, "partition": text, "clients": clients, "samples_per_client": samples, "seed": seed}
        print_json(facts | {"class_counts": counts.tolist()})
        return
    held = (counts > 0).sum(axis=1)
    share = counts.max(axis=1) / samples
    out().print(
        f"{clients} clients of {samples:,} samples: {held.min()} to {held.max()} classes each, "
        f"{share.mean():.0%} of a client's samples are of its largest class"
    )
