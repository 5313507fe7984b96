"""The papers' data sets: where their original files lie, downloading them, and reading them.

A file is looked into only if its MD5 is the published one.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedroster.errors import (
    ConfigurationError,
    DataFileError,
    DownloadError,
    InvalidInputError,
    MissingDataError,
    MissingDependencyError,
    UnknownNameError,
)
from fedroster.parts import ImageArray
from fedroster.types import IntArray, Streams

Told: TypeAlias = Callable[[int, int], None]
"""Gets the bytes of a file that have arrived, and the file's bytes."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images and labels, divided into training and test.

    Images x have the shape (samples, channels, height, width), are in [0, 1] and of single precision; labels y are 0,
    1, ..., shape (samples,).
    """

    name: str
    train_x: ImageArray
    train_y: IntArray
    test_x: ImageArray
    test_y: IntArray
    num_classes: int


_LARGEST = 1 << 26  # bytes; a foreign file is read no further
_SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class PublishedData:
    """A published data set of ten classes.

    Attributes:
        title: Name in messages.
        files: MD5 by name of the files of samples, those for tests last; none if the data set ships with a package.
        num_test_files: How many are for tests.
        read: Makes images, shape (samples, channels, height, width), and labels, shape (samples,), of files' contents.
        folder: Sub-folder of the data folder that holds them.
        addresses: Where the files, or the archive of them, are downloaded from; tried in this order.
        archive: Name and MD5 of the archive that holds the files; None if they are downloaded one by one.
    """

    title: str
    files: Mapping[str, str] = field(default_factory=dict)
    num_test_files: int = 0
    read: Callable[[Sequence[bytes]], tuple[NDArray[np.uint8], NDArray[np.uint8]]] | None = None
    folder: str = ""
    addresses: tuple[str, ...] = ()
    archive: tuple[str, str] | None = None


def read_idx(contents: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a file of images and one of labels, of MNIST's format.

    IDX is: two zero bytes, the type (8 for unsigned bytes), the number of dimensions (3 for images, 1 for labels), each
    dimension as a big-endian 32-bit integer, the values in row-major order.
    """
    images, labels = (
        np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(
            struct.unpack_from(f">{content[3]}I", content, 4)
        )
        for content in contents
    )
    return images[:, None], labels


def read_batches(contents: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read batches of CIFAR-10's binary version: for each image one byte of label, then 3,072 of pixels."""
    records = np.frombuffer(b"".join(contents), np.uint8).reshape(-1, 1 + 3072)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _files(rows: str) -> dict[str, str]:
    """A file and its MD5 a row."""
    return dict(row.split() for row in rows.strip().splitlines())


# Of MNIST's own address it is known that it often refuses; the two mirrors are those of PyTorch and of Google.
DATASETS: dict[str, PublishedData] = {
    "mnist": PublishedData(
        "MNIST",
        _files("""
            train-images-idx3-ubyte.gz f68b3c2dcbeaaa9fbdd348bbdeb94873
            train-labels-idx1-ubyte.gz d53e105ee54ea40749a09fcbcd1e9432
            t10k-images-idx3-ubyte.gz 9fb629c4189551a2d022fa330f9573f3
            t10k-labels-idx1-ubyte.gz ec29112dd5afa0611ce80d1b7f02629c
        """),
        2,
        read_idx,
        "mnist",
        (
            "https://yann.lecun.com/exdb/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    "fashion-mnist": PublishedData(
        "Fashion-MNIST",
        _files("""
            train-images-idx3-ubyte.gz 8d4fb7e6c68d591d4c3dfef9ec88bf0d
            train-labels-idx1-ubyte.gz 25c81989df183df01b3e8a0aad5dffbe
            t10k-images-idx3-ubyte.gz bef4ecab320f06d8554ea6380940ec79
            t10k-labels-idx1-ubyte.gz bb300cfdad3c16e7a12a480ee83cd310
        """),
        2,
        read_idx,
        "fashion-mnist",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
    ),
    "cifar-10": PublishedData(
        "CIFAR-10",
        _files("""
            data_batch_1.bin 5dd7e06a14cb22eb9f671a540d1b7c25
            data_batch_2.bin 5ea93a67294ea407fff1d09f752e9692
            data_batch_3.bin 942cd6a4bcdd0dd3c604fbe906cb4421
            data_batch_4.bin ae636b3ba5c66a11e91e8cb52e771fcb
            data_batch_5.bin 53f37980c15c3d472c316c40844f3f0d
            test_batch.bin   803d5f7f4d78ea53de84dbe85f74fb6d
        """),
        1,
        read_batches,
        "cifar-10-batches-bin",
        ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
        ("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    ),
    "digits": PublishedData("Digits"),
}
"""The data sets by name."""

FOLDER_VARIABLE = "FEDROSTER_DATA"
"""The environment variable that names the data folder."""


def find_dataset(name: str) -> PublishedData:
    """Look a data set up by its key in :data:`DATASETS`; the error for another one names the nearest."""
    if name not in DATASETS:
        raise UnknownNameError.of("data set", name, DATASETS)
    return DATASETS[name]


def data_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """The data folder, which need not exist: the argument, else ``FEDROSTER_DATA``, else the user's cache.

    The user's cache is ``$XDG_CACHE_HOME/fedroster/data``, or ``~/.cache/fedroster/data`` where that variable is not
    set to an absolute path.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    usual = Path(cache if Path(cache).is_absolute() else "~/.cache", "fedroster", "data")
    named = folder or os.environ.get(FOLDER_VARIABLE) or usual
    path = Path(os.path.expanduser(named))  # noqa: PTH111 (Path raises an error where there is no home)
    if path.exists() and not path.is_dir():
        raise InvalidInputError(f"the data folder (--data-dir, {FOLDER_VARIABLE}) is {path}, a file; expected a folder")
    return path


def _missing(source: PublishedData, place: Path) -> list[str]:
    return [name for name in source.files if not (place / name).is_file()]


def _content(path: Path, md5: str) -> bytes:
    """What a file holds, uncompressed, if it is what was published; a foreign one is not read whole."""
    with path.open("rb") as stream:
        content = stream.read(_LARGEST)
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise DataFileError(
            f"{path} is not the published file: the MD5 of its {len(content)} bytes is {found}, expected {md5}; "
            "remove it and fetch again"
        )
    return gzip.decompress(content) if path.suffix == ".gz" else content


def load_digits() -> Dataset:
    """Load the 1,797 handwritten digits of scikit-learn, with a fifth of every class held out for tests."""
    try:
        from sklearn import datasets
    except ModuleNotFoundError as error:
        raise MissingDependencyError.of("scikit-learn", "train") from error
    bunch = datasets.load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[:, None]
    labels = bunch.target.astype(np.int64)
    rng = Streams(0).at("test-split")
    held_out = np.zeros(labels.shape[0], np.bool_)
    for label in range(10):
        rows = rng.permutation(np.flatnonzero(labels == label))
        held_out[rows[: round(0.2 * rows.shape[0])]] = True
    return Dataset("digits", images[~held_out], labels[~held_out], images[held_out], labels[held_out], 10)


def check_dataset(name: str, *, folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of a data set's files; :func:`load_dataset` has the arguments.

    Raises:
        FedrosterError: If there is no such data set, or not all of its files are there.
    """
    source = find_dataset(name)
    place = data_folder(folder) / source.folder
    if missing := _missing(source, place):
        raise MissingDataError(
            f"{source.title} was not found: {place} lacks {', '.join(missing)}. Give the folder that holds "
            f"{source.folder} (--data-dir, or the environment variable {FOLDER_VARIABLE}), or download it: fedroster "
            f"data fetch {name}"
        )
    return place


def load_dataset(name: str, *, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set from its original files; the digest of every file is checked.

    Args:
        name: ``mnist``, ``fashion-mnist``, ``cifar-10`` or ``digits``.
        folder: The data folder; see :func:`data_folder` for None.

    Raises:
        FedrosterError: If there is no such data set, it is not there, or a file is not the published one.
    """
    source, place = find_dataset(name), check_dataset(name, folder=folder)
    if source.read is None:
        return load_digits()
    read = source.read

    def part(files: Sequence[tuple[str, str]]) -> tuple[ImageArray, IntArray]:
        images, labels = read([_content(place / file, md5) for file, md5 in files])
        return np.divide(images, np.float32(255.0)), labels.astype(np.int64)

    files = list(source.files.items())
    first_test = len(source.files) - source.num_test_files
    return Dataset(name, *part(files[:first_test]), *part(files[first_test:]), 10)


def fetch_dataset(name: str, *, folder: str | os.PathLike[str] | None = None, progress: Told | None = None) -> Path:
    """Make sure that a data set lies in a folder: download what is missing from its published addresses.

    What lies there already is checked and kept; nothing is overwritten.  A download that ended early begins again.

    Returns:
        The folder of its files.

    Raises:
        ConfigurationError: If the data set is not one to be downloaded.
        InvalidInputError: If the folder lies in a home that there is not.
        DataFileError: If a file that lies there is not the published one.
        DownloadError: If no address gives the file.
    """
    source, root = find_dataset(name), data_folder(folder)
    if not source.files:
        raise ConfigurationError(f"{source.title} ships with a package; expected a data set that has files")
    if str(root).startswith("~"):
        raise InvalidInputError(f"the data folder (--data-dir, {FOLDER_VARIABLE}) is {root}; expected one that exists")
    place = root / source.folder
    missing = _missing(source, place)
    if source.archive is None:
        for file in missing:
            _retrieve(source, file, source.files[file], place, progress)
    elif missing:
        name, md5 = source.archive
        is_users = (root / name).exists()
        _retrieve(source, name, md5, root, progress, unpack=[f"{place.name}/{file}" for file in source.files])
        if not is_users:
            (root / name).unlink()
    for file, md5 in source.files.items():
        _content(place / file, md5)
    return place


class _Bar:
    """What pooch tells of a download, as our :data:`Told`."""

    def __init__(self, progress: Told) -> None:
        self.total = 0
        self._progress, self._done = progress, 0

    def update(self, number: int) -> None:
        self._done = min(self._done + number, self.total)
        self._progress(self._done, self.total)

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        """Nothing is open."""


def _retrieve(
    source: PublishedData, name: str, md5: str, folder: Path, progress: Told | None, unpack: Sequence[str] = ()
) -> None:
    """Download one file, and unpack these members of it; it gets its name only once its digest is right."""
    try:
        import pooch
        import requests
    except ModuleNotFoundError as error:
        raise MissingDependencyError.of("pooch", "train") from error
    if (folder / name).exists() and pooch.file_hash(folder / name, alg="md5") != md5:  # pooch would replace it
        raise DataFileError(f"{folder / name} is not the published file; remove it and fetch again")
    pooch.get_logger().setLevel("WARNING")  # what it does is told by the progress
    refusals = []
    for address in source.addresses:
        downloader = pooch.HTTPDownloader(
            progressbar=progress is not None and _Bar(progress),
            chunk_size=1 << 18,
            timeout=_SILENCE_S,
            headers={"Accept-Encoding": "identity"},
        )
        try:
            processor = pooch.Untar(unpack, ".") if unpack else None
            pooch.retrieve(address + name, f"md5:{md5}", name, folder, processor=processor, downloader=downloader)
        except (requests.RequestException, ValueError) as error:  # the latter for another file's digest
            said = str(error).rsplit("Caused by ")[-1][:300]
            refusals.append(f"{address}{name}: {said}")
        else:
            return
    raise DownloadError(
        f"{name} could not be downloaded: {'; '.join(refusals)}. Without a network: put it from another machine into "
        f"{folder}, or name a folder that holds the data (--data-dir, or the environment variable {FOLDER_VARIABLE})"
    )
