"""The data sets of the papers by name: what was published where, and loading them."""

from __future__ import annotations

import os
from pathlib import Path

from fedroster.core.errors import InvalidInputError, UnknownNameError
from fedroster.data.cifar import read_binary_batch, read_python_batch
from fedroster.data.dataset import Dataset
from fedroster.data.digits import load_digits
from fedroster.data.fetch import Progress, fetch
from fedroster.data.idx import read_idx_pair
from fedroster.data.source import Layout, PublishedFile, Source, locate, read, require

# Of MNIST's own address it is known that it often refuses; the two mirrors are those of PyTorch and of Google.
_MNIST_ADDRESSES = (
    "https://yann.lecun.com/exdb/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_FASHION_MNIST_ADDRESSES = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
)
_CIFAR_10_ADDRESSES = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")


def _idx_files(rows: str, addresses: tuple[str, ...]) -> tuple[PublishedFile, ...]:
    """Files of name, size, MD5 and MD5 of the content; training images, training labels, test images, test labels."""
    files = []
    for row in rows.strip().splitlines():
        name, size, md5, content_md5 = row.split()
        samples = 60_000 if name.startswith("train") else 10_000
        content_size = 16 + samples * 28 * 28 if "images" in name else 8 + samples
        urls = tuple(url + name for url in addresses)
        files.append(PublishedFile(name, int(size), md5, content_size, content_md5, urls))
    return tuple(files)


# Digests of the compressed files: the published ones.  Of their content: computed from files with those digests.
_MNIST = _idx_files(
    """
    train-images-idx3-ubyte.gz 9912422 f68b3c2dcbeaaa9fbdd348bbdeb94873 6bbc9ace898e44ae57da46a324031adb
    train-labels-idx1-ubyte.gz   28881 d53e105ee54ea40749a09fcbcd1e9432 a25bea736e30d166cdddb491f175f624
    t10k-images-idx3-ubyte.gz  1648877 9fb629c4189551a2d022fa330f9573f3 2646ac647ad5339dbf082846283269ea
    t10k-labels-idx1-ubyte.gz     4542 ec29112dd5afa0611ce80d1b7f02629c 27ae3e4e09519cfbb04c329615203637
    """,
    _MNIST_ADDRESSES,
)
_FASHION_MNIST = _idx_files(
    """
    train-images-idx3-ubyte.gz 26421880 8d4fb7e6c68d591d4c3dfef9ec88bf0d f4a8712d7a061bf5bd6d2ca38dc4d50a
    train-labels-idx1-ubyte.gz    29515 25c81989df183df01b3e8a0aad5dffbe 9018921c3c673c538a1fc5bad174d6f9
    t10k-images-idx3-ubyte.gz   4422102 bef4ecab320f06d8554ea6380940ec79 8181f5470baa50b63fa0f6fddb340f0a
    t10k-labels-idx1-ubyte.gz      5148 bb300cfdad3c16e7a12a480ee83cd310 15d484375f8d13e6eb1aabb0c3f46965
    """,
    _FASHION_MNIST_ADDRESSES,
)


def _idx_source(
    name: str, title: str, files: tuple[PublishedFile, ...], folder: str, other: str, others: tuple[PublishedFile, ...]
) -> Source:
    train_x, train_y, test_x, test_y = files
    layout = Layout("IDX files", (name, folder, ""), ((train_x, train_y),), ((test_x, test_y),), read_idx_pair)
    return Source(
        name=name,
        title=title,
        shape=(1, 28, 28),
        num_train=60_000,
        num_test=10_000,
        num_classes=10,
        layouts=(layout,),
        download=layout,
        lookalikes={digest: other for file in others for digest in (file.md5, file.content_md5)},
    )


_BINARY_BATCHES = tuple(
    PublishedFile(name, 30_730_000, md5)
    for name, md5 in (
        ("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
        ("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
        ("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
        ("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
        ("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
        ("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
    )
)
_PYTHON_BATCHES = tuple(
    PublishedFile(name, size, md5)
    for name, size, md5 in (
        ("data_batch_1", 31_035_704, "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", 31_035_320, "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", 31_035_999, "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", 31_035_696, "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", 31_035_623, "482c414d41f54cd18b22e5b47cb7c3cb"),
        ("test_batch", 31_035_526, "40351d587109b95175f43aff81a1287e"),
    )
)


def _cifar_layouts() -> tuple[Layout, ...]:
    layouts = []
    for title, batches, read_batch, archive, folder in (
        (
            "binary batches",
            _BINARY_BATCHES,
            read_binary_batch,
            PublishedFile(
                "cifar-10-binary.tar.gz",
                170_052_171,
                "c32a1d4ab5d03f1284b67883e8d87530",
                urls=tuple(url + "cifar-10-binary.tar.gz" for url in _CIFAR_10_ADDRESSES),
            ),
            "cifar-10-batches-bin",
        ),
        (
            "Python batches",
            _PYTHON_BATCHES,
            read_python_batch,
            PublishedFile("cifar-10-python.tar.gz", 170_498_071, "c58f30108f718f92721af3b95e74349a"),
            "cifar-10-batches-py",
        ),
    ):
        train, test = tuple((batch,) for batch in batches[:-1]), ((batches[-1],),)
        places = (folder, f"cifar10/{folder}", f"cifar-10/{folder}", "cifar10", "cifar-10", "")
        layouts.append(Layout(title, places, train, test, read_batch))
        packed = ("", "cifar10", "cifar-10")
        layouts.append(Layout(f"archive of {title}", packed, train, test, read_batch, archive, folder))
    # Files first: an archive takes longer to read.
    return tuple(sorted(layouts, key=lambda layout: layout.archive is not None))


_CIFAR_10_LAYOUTS = _cifar_layouts()

DATASETS: dict[str, Source] = {
    "mnist": _idx_source("mnist", "MNIST", _MNIST, "MNIST/raw", "Fashion-MNIST", _FASHION_MNIST),
    "fashion-mnist": _idx_source("fashion-mnist", "Fashion-MNIST", _FASHION_MNIST, "FashionMNIST/raw", "MNIST", _MNIST),
    "cifar-10": Source(
        name="cifar-10",
        title="CIFAR-10",
        shape=(3, 32, 32),
        num_train=50_000,
        num_test=10_000,
        num_classes=10,
        layouts=_CIFAR_10_LAYOUTS,
        download=next(layout for layout in _CIFAR_10_LAYOUTS if layout.archive is not None),
    ),
    "digits": Source(name="digits", title="Digits", shape=(1, 8, 8), num_train=1438, num_test=359, num_classes=10),
}
"""The data sets by name."""

FOLDER_VARIABLE = "FEDROSTER_DATA"
"""The environment variable that names the data folder."""


def find_dataset(name: str) -> Source:
    """Look a data set up by its key in :data:`DATASETS`; the error for another one names the nearest."""
    if name not in DATASETS:
        raise UnknownNameError.of("data set", name, DATASETS)
    return DATASETS[name]


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The data folder, which need not exist: the argument, else ``FEDROSTER_DATA``, else the user's cache.

    The user's cache is ``$XDG_CACHE_HOME/fedroster/data``, or ``~/.cache/fedroster/data`` where that variable is not
    set to an absolute path.
    """
    named = os.environ.get(FOLDER_VARIABLE, "")
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if folder is not None:
        what, path = "the data folder", Path(folder)
    elif named:
        what, path = FOLDER_VARIABLE, Path(named)
    else:
        base = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
        what, path = "the data folder", base / "fedroster" / "data"
    path = path.expanduser()
    if path.exists() and not path.is_dir():
        raise InvalidInputError(f"{what} is {path}, a file; expected a folder")
    return path


def load_dataset(
    name: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Load a data set from its original files; the digest of every file is checked.

    Args:
        name: ``mnist``, ``fashion-mnist``, ``cifar-10`` or ``digits``.
        folder: The data folder, or the one of the files themselves; see :func:`data_folder` for None.
        download: Whether to download it if it is not there.
        progress: Is told the bytes that are downloaded, and the bytes in all.

    Raises:
        FedrosterError: If there is no such data set, it is not there, could not be downloaded, or a file is damaged or
            not the published one; says where it was looked for.
    """
    return load_source(find_dataset(name), data_folder(folder), download=download, progress=progress)


def load_source(source: Source, folder: Path, *, download: bool = False, progress: Progress | None = None) -> Dataset:
    """Like :func:`load_dataset`, for a data set that may not be in :data:`DATASETS`."""
    if not source.layouts:
        return load_digits()
    if download and locate(source, folder) is None:
        fetch(source, folder, progress=progress)
    return read(source, require(source, folder))
