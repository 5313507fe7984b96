"""Downloads of published files: on request only, resumable, and never a half file under a final name."""

from __future__ import annotations

import http.client
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

from fedroster.core.errors import ConfigurationError, DownloadError
from fedroster.core.state import write_bytes_atomically
from fedroster.data.source import (
    Layout,
    Location,
    PublishedFile,
    Source,
    check,
    locate,
    md5,
    read_archive,
    read_file,
    require_published,
)

try:
    import fcntl
except ModuleNotFoundError:  # where there is none, two downloads of one file at a time spoil each other's part
    fcntl = None  # type: ignore[assignment]

Progress: TypeAlias = Callable[[int, int], None]
"""Gets the bytes that have arrived and the bytes in all."""

_REMOVE = "; remove it and fetch again"
_CHUNK = 1 << 18
_RESUMES = 5  # of one address in a row, each after some progress
_HEAD_SILENCES = 4.0  # silences that the head of an answer may take in all
_WINDOW_SILENCES, _WINDOW_BYTES = 4.0, 1 << 14  # in this many silences, this many bytes must come
_NETWORK = (OSError, http.client.HTTPException)  # URLError, HTTPError, timeouts and broken connections are among them


class _Refused(Exception):
    """An address answers, yet not with the file that is asked for."""


class _Response(http.client.HTTPResponse):
    """An answer whose head has an end: a server that drips is no more silent than one that works."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        self._socket = sock
        super().__init__(sock, *arguments, **options)

    def begin(self) -> None:
        """Read the head."""
        limit_s = _HEAD_SILENCES * (self._socket.gettimeout() or 30.0)
        timer = threading.Timer(limit_s, self._socket.shutdown, [socket.SHUT_RDWR])
        timer.daemon = True
        timer.start()
        try:
            super().begin()
        finally:
            timer.cancel()


class _Connection(http.client.HTTPConnection):
    response_class = _Response


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _Response


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request)


class _SecureHandler(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, request)


def fetch(source: Source, folder: Path, *, progress: Progress | None = None, timeout_s: float = 30.0) -> Location:
    """Make sure that a data set lies in a folder: download what is missing from its published addresses.

    What lies there already is checked and kept; nothing is overwritten.

    Raises:
        ConfigurationError: If the data set is not one to be downloaded.
        DataFileError: If a file that lies there is not the published one.
        DownloadError: If no address gives the file; what came so far is kept for the next attempt.
    """
    if source.download is None:
        raise ConfigurationError(f"{source.title} is not to be downloaded; expected a data set with an address")
    location = locate(source, folder)
    if location is None:
        try:
            _download_layout(source, source.download, folder, progress, timeout_s)
        except DownloadError as error:
            if error.__cause__ is not None:  # another process downloads it
                raise
            raise DownloadError(f"{error}\n{_by_hand(source, source.download, folder)}") from error
        location = locate(source, folder)
        assert location is not None
    require_published(check(source, location), _REMOVE)
    return location


def _by_hand(source: Source, layout: Layout, folder: Path) -> str:
    """What to do without a network."""
    files = [layout.archive] if layout.archive is not None else layout.on_disk
    return (
        f"Without a network: put {', '.join(file.name for file in files)} from another machine into "
        f"{folder / layout.folders[0]}, or name a folder that holds the data (--data-dir, or the environment variable "
        f"FEDROSTER_DATA); then fedroster data fetch {source.name} checks them"
    )


def _download_layout(source: Source, layout: Layout, folder: Path, progress: Progress | None, timeout_s: float) -> None:
    place = folder / layout.folders[0]
    place.mkdir(parents=True, exist_ok=True)
    wanted = []
    for file in layout.on_disk:
        path = next((place / name for name in file.names() if (place / name).is_file()), None)
        if path is None:
            wanted.append(file)
        else:
            require_published([read_file(path, file, source.lookalikes)[1]], _REMOVE)
    total = sum(file.size for file in wanted)
    before = 0
    for file in wanted:

        def report(done: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, total)

        download(file, place / file.name, progress=report, timeout_s=timeout_s)
        before += file.size
    if layout.archive is not None:
        _unpack(layout, place / layout.archive.name, folder / layout.archive_folder)
        (place / layout.archive.name).unlink()  # downloaded here: one of the user's would have been found before


def _unpack(layout: Layout, archive: Path, folder: Path) -> None:
    members, checks = read_archive(archive, layout)
    require_published(checks, _REMOVE)
    folder.mkdir(exist_ok=True)
    for file in layout.files:
        write_bytes_atomically(folder / file.name, members[file.name])


def download(
    file: PublishedFile,
    target: Path,
    *,
    progress: Callable[[int], None] | None = None,
    timeout_s: float = 30.0,
) -> None:
    """Download one file: into ``<target>.part``, which a later call continues, and renamed once its digest is right.

    The file's addresses are tried in order; a server may be silent for ``timeout_s``.
    """
    part = target.with_name(f"{target.name}.part")
    with _opened_alone(part) as out:
        refusals = _try_addresses(file, out, progress or (lambda done: None), timeout_s)
        kept = out.seek(0, os.SEEK_END)
        if refusals is None and fcntl is not None:
            part.replace(target)  # under the lock: another process would take this file for its own part
    if refusals is None:
        if fcntl is None:
            part.replace(target)
        return
    rest = f"\n{kept} of {file.size} bytes are kept in {part}; the next attempt continues there" if kept else ""
    if not kept:
        part.unlink()
    raise DownloadError("\n".join([f"{file.name} could not be downloaded:", *refusals]) + rest)


def _try_addresses(
    file: PublishedFile, out: IO[bytes], progress: Callable[[int], None], timeout_s: float
) -> list[str] | None:
    # None once the file is complete, else what each address said.
    refusals = []
    for url in file.urls:
        try:
            _complete(file, url, out, progress, timeout_s)
        except _Refused as error:
            refusals.append(f"  {url}: {error}")
            continue
        out.flush()
        os.fsync(out.fileno())
        return None
    return refusals


@contextmanager
def _opened_alone(part: Path) -> Iterator[IO[bytes]]:
    while True:
        with part.open("a+b") as out:
            if fcntl is not None:
                try:
                    fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    raise DownloadError(f"{part} is being downloaded by another process; wait for it") from error
                if not _is_at(part, out):
                    continue  # another process has finished with this file since it was opened here
            yield out
            return


def _is_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _complete(file: PublishedFile, url: str, out: IO[bytes], progress: Callable[[int], None], timeout_s: float) -> None:
    # Continue from the part that exists until the file is whole and right; a stale part costs one start from nothing.
    resumes, stale = 0, out.seek(0, os.SEEK_END) > 0
    while True:
        before = out.seek(0, os.SEEK_END)
        if before < file.size:
            reason = _transfer(file, url, out, progress, timeout_s)
            after = out.seek(0, os.SEEK_END)
            if after < file.size:
                resumes = resumes + 1 if after > before else _RESUMES
                if resumes >= _RESUMES:
                    raise _Refused(reason or f"the connection ended after {after} of {file.size} bytes")
                continue
        out.seek(0)
        found = md5(out.read())
        if found == file.md5:
            return
        out.truncate(0)
        if not stale:
            raise _Refused(f"gives another file: its MD5 is {found}; expected {file.md5}")
        stale = False


def _transfer(file: PublishedFile, url: str, out: IO[bytes], progress: Callable[[int], None], timeout_s: float) -> str:
    # One connection: append what it gives; the reason if it broke.
    there = out.seek(0, os.SEEK_END)
    request = urllib.request.Request(url, headers={"User-Agent": "fedroster", "Accept-Encoding": "identity"})
    if there:
        request.add_header("Range", f"bytes={there}-")
    with _connected(request, timeout_s) as response:
        continued = response.status == 206
        if continued and not _starts_at(response, there):
            raise _Refused(f"gives another part than the one from byte {there}")
        start = there if continued else 0
        length = _whole(response.headers.get("Content-Length", ""))
        if length is not None and start + length != file.size:  # such as a page that says what went wrong
            raise _Refused(f"gives {start + length} bytes; expected {file.size}")
        if not continued:
            out.truncate(0)  # the server starts from the beginning, whatever was asked
        progress(start)
        window, before = time.monotonic(), start
        while True:
            # Only the network's faults are caught: a full disk is another matter.
            try:
                chunk = response.read1(_CHUNK)
            except _NETWORK as error:
                return f"the connection broke: {error or type(error).__name__}"
            if not chunk:
                return ""
            start += len(chunk)
            if start > file.size:
                out.truncate(0)
                raise _Refused(f"gives more than the expected {file.size} bytes")
            out.write(chunk)
            progress(start)
            if time.monotonic() - window > _WINDOW_SILENCES * timeout_s:
                if start - before < _WINDOW_BYTES:
                    raise _Refused(f"gives less than {_WINDOW_BYTES} bytes in {_WINDOW_SILENCES * timeout_s:g} s")
                window, before = time.monotonic(), start


def _connected(request: urllib.request.Request, timeout_s: float) -> http.client.HTTPResponse:
    opener = urllib.request.build_opener(_Handler, _SecureHandler)
    try:
        response: http.client.HTTPResponse = opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        error.close()
        raise _Refused(f"HTTP {error.code} {_printable(error.reason)}") from error
    except urllib.error.URLError as error:
        raise _Refused(_printable(error.reason)) from error
    except (*_NETWORK, ValueError) as error:  # the latter for an address that a server redirects to
        raise _Refused(_printable(error) or type(error).__name__) from error
    return response


def _printable(said: object) -> str:
    # Nothing that a server says may steer a terminal.
    return "".join(letter if letter.isprintable() else "?" for letter in str(said)[:200])


def _whole(digits: str) -> int | None:
    # A number of bytes that a server says; None if it says none.
    return int(digits) if digits.isdecimal() and len(digits) < 20 else None


def _starts_at(response: http.client.HTTPResponse, position: int) -> bool:
    found = re.match(r"bytes ([0-9]{1,19})-", response.headers.get("Content-Range", ""))
    return found is not None and int(found[1]) == position
