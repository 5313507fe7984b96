"""Where a published data set lies on disk, and how its files are checked and read.

A data set is published in one or more layouts: files beside each other, or one archive that holds them.  A file is
accepted if its MD5 is the published one, or, where it was unpacked or compressed again, if that of its content is.
Only such a file is looked into.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedroster.core.arrays import ImageArray, IntArray
from fedroster.core.errors import DataFileError, MissingDataError
from fedroster.data.dataset import Dataset

Content: TypeAlias = bytes | memoryview
Reader: TypeAlias = Callable[..., tuple[NDArray[np.uint8], NDArray[np.uint8]]]

_GZIP = b"\x1f\x8b"
_SLACK = 2**20  # so that the message can say what is wrong with a file that is somewhat too large


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file as its authors published it.

    Attributes:
        name: File name.
        size: Bytes.
        md5: Digest.
        content_size: Bytes after decompression; 0 for a file that is not compressed.
        content_md5: Digest after decompression; empty for a file that is not compressed.
        urls: Where to download it, in this order.
    """

    name: str
    size: int
    md5: str
    content_size: int = 0
    content_md5: str = ""
    urls: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """Names under which it may lie: as published, or unpacked."""
        return (self.name, self.name.removesuffix(".gz")) if self.content_md5 else (self.name,)


@dataclass(frozen=True, slots=True)
class Layout:
    """One form in which a data set is published.

    Attributes:
        title: What messages call it.
        folders: Sub-folders of the data folder in which it is looked for, "" for the folder itself.
        train: Pieces of the training set in order, each the files that :attr:`read` needs together.
        test: As ``train``.
        read: Makes images, shape (samples, channels, height, width), and labels of one piece's contents.
        archive: The archive that holds all files; None if they lie beside each other.
        archive_folder: Folder of the files within the archive, and below the data folder once unpacked.
    """

    title: str
    folders: tuple[str, ...]
    train: tuple[tuple[PublishedFile, ...], ...]
    test: tuple[tuple[PublishedFile, ...], ...]
    read: Reader
    archive: PublishedFile | None = None
    archive_folder: str = ""

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        """All files that hold samples."""
        return tuple(file for piece in (*self.train, *self.test) for file in piece)

    @property
    def on_disk(self) -> tuple[PublishedFile, ...]:
        """The files that lie on disk: the archive, or all files."""
        return self.files if self.archive is None else (self.archive,)


@dataclass(frozen=True, slots=True)
class Source:
    """A published data set.

    Attributes:
        name: Name on the command line.
        title: Name in messages.
        shape: Channels, height and width of an image.
        num_train: Training samples.
        num_test: Test samples.
        num_classes: Classes.
        layouts: Its forms, in the order in which they are looked for; none if it ships with another package.
        download: The form that is downloaded; None if it cannot be.
        lookalikes: Names of other data sets by the MD5 of those files that are easily taken for this one's.
    """

    name: str
    title: str
    shape: tuple[int, int, int]
    num_train: int
    num_test: int
    num_classes: int
    layouts: tuple[Layout, ...] = ()
    download: Layout | None = None
    lookalikes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Location:
    """A data set that was found: its form, and the path of each file on disk by published name."""

    layout: Layout
    paths: Mapping[str, Path]

    @property
    def folder(self) -> Path:
        """The folder that holds the files."""
        return next(iter(self.paths.values())).parent


@dataclass(frozen=True, slots=True)
class FileCheck:
    """A file that was checked; ``repacked``, if only its content is the published one; its fault, or ""."""

    path: Path
    fault: str = ""
    repacked: bool = False


def locate(source: Source, folder: Path) -> Location | None:
    """Find a data set below a folder: the first of its layouts and sub-folders in which every file exists."""
    for layout, place in _places(source, folder):
        paths = _paths(layout, place)
        if len(paths) == len(layout.on_disk):
            return Location(layout, paths)
    return None


def require(source: Source, folder: Path) -> Location:
    """Find a data set, or say where it was looked for, in a MissingDataError."""
    location = locate(source, folder)
    if location is not None:
        return location
    looked = [f"{source.title} was not found. Looked for:"]
    for layout, place in _places(source, folder):
        found = _paths(layout, place)
        lacking = [file.name for file in layout.on_disk if file.name not in found]
        if not place.is_dir():
            reason = "no such folder"
        elif found:
            reason = f"lacks {', '.join(lacking)}"
        else:
            reason = f"has no {lacking[0]}" + (f" and {len(lacking) - 1} others" if len(lacking) > 1 else "")
        looked.append(f"  {layout.title} in {place}: {reason}")
    looked.append(
        f"Give the folder that holds it (--data-dir, or the environment variable FEDROSTER_DATA), "
        f"or download it: fedroster data fetch {source.name}"
    )
    raise MissingDataError("\n".join(looked))


def _places(source: Source, folder: Path) -> Iterator[tuple[Layout, Path]]:
    for layout in source.layouts:
        for name in layout.folders:
            yield layout, folder / name


def _paths(layout: Layout, place: Path) -> dict[str, Path]:
    paths = {}
    for file in layout.on_disk:
        path = next((place / name for name in file.names() if (place / name).is_file()), None)
        if path is not None:
            paths[file.name] = path
    return paths


def md5(content: Content) -> str:
    """The MD5 of some bytes: the digest that the data sets' authors publish."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def decompress(raw: bytes, *, name: str, limit: int) -> bytes:
    """Undo gzip; what is damaged, truncated, compressed twice or holds more than ``limit`` bytes is refused."""
    try:
        with gzip.open(io.BytesIO(raw)) as file:
            content = file.read(limit + 1)
    except EOFError as error:
        raise DataFileError(f"{name} is truncated: its compressed content ends after {len(raw)} bytes") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DataFileError(f"{name} is damaged: {error}") from error
    if len(content) > limit:
        raise DataFileError(f"{name} holds more than {limit} bytes; expected fewer")
    if content.startswith(_GZIP):
        raise DataFileError(f"{name} is compressed twice: uncompress it once (gzip -d), or take the original file")
    return content


def read_file(path: Path, file: PublishedFile, lookalikes: Mapping[str, str]) -> tuple[bytes, FileCheck]:
    """Read a file, uncompressed, and say whether it is the published one; one that is much too large is not read."""
    raw = _bytes_of(path, max(file.content_size, file.size) + _SLACK)
    published = md5(raw)
    content = raw
    if raw.startswith(_GZIP):
        content = decompress(raw, name=str(path), limit=max(file.content_size, file.size) + _SLACK)
    if published == file.md5:
        return content, FileCheck(path)
    wanted = file.content_md5 or file.md5
    found = published if content is raw else md5(content)
    if found == wanted:
        return content, FileCheck(path, repacked=True)
    return content, FileCheck(path, _difference(path, file, content, found, lookalikes))


def _bytes_of(path: Path, most: int) -> bytes:
    size = path.stat().st_size
    if size > most:
        raise DataFileError(f"{path} holds {size} bytes; expected at most {most}")
    return path.read_bytes()


def _difference(
    where: Path | str, file: PublishedFile, content: Content, found: str, lookalikes: Mapping[str, str]
) -> str:
    size = file.content_size or file.size
    if found in lookalikes:
        return f"{where} belongs to {lookalikes[found]}: give each data set a sub-folder of its own"
    if len(content) < size:
        return f"{where} is truncated: it holds {len(content)} bytes; expected {size}"
    if len(content) > size:
        return f"{where} holds {len(content)} bytes; expected {size}"
    return f"{where} is not the published file: its MD5 is {found}; expected {file.content_md5 or file.md5}"


def read_archive(path: Path, layout: Layout) -> tuple[dict[str, memoryview], tuple[FileCheck, ...]]:
    """Read the files of an archive into memory, and compare digests: the archive's, or else those of its files.

    Returns:
        Content of each file by name, and the check of the archive or of each file.
    """
    assert layout.archive is not None
    limit = 2 * sum(file.size for file in layout.files) + _SLACK
    raw = _bytes_of(path, limit)
    published = md5(raw) == layout.archive.md5
    content = raw
    if raw.startswith(_GZIP):
        content = decompress(raw, name=str(path), limit=limit)
    del raw
    whole = memoryview(content)
    members: dict[str, memoryview] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                folder, _, name = member.name.removeprefix("./").rpartition("/")
                if member.isreg() and folder == layout.archive_folder:
                    members[name] = whole[member.offset_data : member.offset_data + member.size]
    except tarfile.TarError as error:
        raise DataFileError(f"{path} is truncated or no tar archive: {error}") from error
    lacking = [file.name for file in layout.files if file.name not in members]
    if lacking:
        raise DataFileError(f"{path} lacks {layout.archive_folder}/{', '.join(lacking)}")
    if published:
        return members, (FileCheck(path),)
    faults = tuple(
        FileCheck(path, _difference(f"{path}: {file.name}", file, members[file.name], found, {}), repacked=True)
        for file in layout.files
        if (found := md5(members[file.name])) != file.md5
    )
    return members, faults or (FileCheck(path, repacked=True),)


def check(source: Source, location: Location) -> tuple[FileCheck, ...]:
    """Compare the digest of every file of a data set; what cannot be read is a fault, not an error."""
    checks: list[FileCheck] = []
    for file in location.layout.on_disk:
        path = location.paths[file.name]
        try:
            if location.layout.archive is None:
                checks.append(read_file(path, file, source.lookalikes)[1])
            else:
                checks.extend(read_archive(path, location.layout)[1])
        except (DataFileError, OSError) as error:
            checks.append(FileCheck(path, str(error)))
    return tuple(checks)


def require_published(checks: Iterable[FileCheck], advice: str = "") -> None:
    """Raise a DataFileError, with some advice, for the first of some checked files that is not the published one."""
    for found in checks:
        if found.fault:
            raise DataFileError(found.fault + advice)


def read(source: Source, location: Location) -> Dataset:
    """Read a data set into memory, checking every file.

    Raises:
        DataFileError: If a file is truncated, damaged or not the published one.
    """
    layout, members = location.layout, None
    if layout.archive is not None:
        members, checks = read_archive(location.paths[layout.archive.name], layout)
        require_published(checks)

    def opened(file: PublishedFile) -> Content:
        if members is not None:
            return members[file.name]
        content, found = read_file(location.paths[file.name], file, source.lookalikes)
        require_published([found])
        return content

    def split(pieces: tuple[tuple[PublishedFile, ...], ...], num_samples: int) -> tuple[ImageArray, IntArray]:
        x, y = np.empty((num_samples, *source.shape), np.float32), np.empty(num_samples, np.int64)
        start = 0
        for piece in pieces:  # into the final array: no more than one piece is in memory twice
            images, labels = layout.read(*map(opened, piece))
            stop = start + labels.shape[0]
            np.divide(images, np.float32(255.0), out=x[start:stop])
            y[start:stop] = labels
            start = stop
        return x, y

    train, test = split(layout.train, source.num_train), split(layout.test, source.num_test)
    return Dataset(source.name, *train, *test, source.num_classes)
