"""Downloads, from a server on this machine that behaves well or badly."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace

import pytest

from fedroster.core.errors import ConfigurationError, DataFileError, DownloadError
from fedroster.data.fetch import download, fetch
from fedroster.data.load import load_source
from fedroster.data.source import PublishedFile, check
from published import md5, tiny_cifar, tiny_mnist

MNIST = tiny_mnist()
CIFAR = tiny_cifar()
CONTENT = bytes(range(256)) * 4000  # about a megabyte: several pieces
FILE = PublishedFile("file.bin", len(CONTENT), md5(CONTENT))


@dataclass
class Site:
    """What the server holds and how it behaves."""

    address: str
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    break_after: list[int] = field(default_factory=list)  # bytes of each of the next answers, then the line is cut
    status: int = 0
    length: bool = True
    shift: int = 0  # error in the place where a range starts
    requests: list[tuple[str, str]] = field(default_factory=list)


def _handler(site):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_GET(self):
            asked = self.headers.get("Range", "")
            site.requests.append((self.path, asked))
            content = site.files.get(self.path.removeprefix("/"))
            self.close_connection = True
            if content is None or site.status:
                self.send_error(site.status or 404)
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and site.ranges else 0
            if start >= len(content) > 0:
                self.send_error(416)
                return
            self.send_response(206 if asked and site.ranges else 200)
            start = max(start + site.shift, 0) if asked else start
            if asked and site.ranges:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if site.length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + site.break_after.pop(0) if site.break_after else len(content)
            self.wfile.write(content[start:end])

    return Handler


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    servers = []

    def start(**settings):
        site = Site("")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
        server.handle_error = lambda *args: None  # the client hangs up on what it refuses
        site.address = f"http://127.0.0.1:{server.server_address[1]}/"
        for name, value in settings.items():
            setattr(site, name, value)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return site

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


def at(*sites, file=FILE):
    return PublishedFile(file.name, file.size, file.md5, urls=tuple(site.address + file.name for site in sites))


def get(tmp_path, *sites):
    done = []
    download(at(*sites), tmp_path / "file.bin", progress=done.append, timeout_s=60.0)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]
    assert done[-1] == len(CONTENT)
    return done


def refused(tmp_path, *sites, kept=None):
    with pytest.raises(DownloadError) as raised:
        download(at(*sites), tmp_path / "file.bin", timeout_s=60.0)
    assert not (tmp_path / "file.bin").exists()
    part = tmp_path / "file.bin.part"
    assert (part.read_bytes() if part.exists() else None) == kept
    return str(raised.value)


# ----------------------------------------------------------------- one file


@pytest.mark.parametrize("length", [True, False])
def test_whole(tmp_path, serve, length):
    site = serve(files={"file.bin": CONTENT}, length=length)
    done = get(tmp_path, site)
    assert done[0] == 0
    assert done == sorted(done)
    assert len(done) > 3
    assert site.requests == [("/file.bin", "")]


def test_a_part_is_continued(tmp_path, serve):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:300_000])
    site = serve(files={"file.bin": CONTENT})
    assert get(tmp_path, site)[0] == 300_000
    assert site.requests == [("/file.bin", "bytes=300000-")]


def test_a_whole_part_needs_no_network(tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    file = PublishedFile("file.bin", FILE.size, FILE.md5, urls=("http://127.0.0.1:9/file.bin",))
    download(file, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("length", [True, False])
def test_a_broken_line_is_taken_up_again(tmp_path, serve, length):
    site = serve(files={"file.bin": CONTENT}, break_after=[400_000, 0x100, 300_000], length=length)
    get(tmp_path, site)
    assert site.requests[1:] == [("/file.bin", f"bytes={n}-") for n in (400_000, 400_256, 700_256)]


def test_a_line_that_keeps_breaking(tmp_path, serve):
    site = serve(files={"file.bin": CONTENT}, break_after=[10] * 100)
    message = refused(tmp_path, site, kept=CONTENT[:50])
    assert "50 of 1024000 bytes" in message
    assert "the next attempt continues there" in message
    assert len(site.requests) == 5
    site.break_after = []
    assert get(tmp_path, site)[0] == 50


def test_a_line_that_breaks_at_once(tmp_path, serve):
    site = serve(files={"file.bin": CONTENT}, break_after=[0] * 100)
    assert "ended after 0 of 1024000 bytes" in refused(tmp_path, site)
    assert len(site.requests) == 1


def test_a_server_that_ignores_ranges(tmp_path, serve):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:300_000])
    site = serve(files={"file.bin": CONTENT}, ranges=False)
    assert get(tmp_path, site)[0] == 0
    assert site.requests == [("/file.bin", "bytes=300000-")]


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize("shift", [-5, 5, -300_000])
def test_a_server_that_starts_elsewhere(tmp_path, serve, shift, length):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:300_000])
    site = serve(files={"file.bin": CONTENT}, shift=shift, length=length)
    assert "gives another part than the one from byte 300000" in refused(tmp_path, site, kept=CONTENT[:300_000])


@pytest.mark.parametrize("size", [300_000, len(CONTENT), len(CONTENT) + 7])
def test_a_stale_part_costs_one_start_from_nothing(tmp_path, serve, size):
    (tmp_path / "file.bin.part").write_bytes(b"x" * size)
    site = serve(files={"file.bin": CONTENT})
    get(tmp_path, site)
    assert site.requests[-1] == ("/file.bin", "")


@pytest.mark.parametrize(("part", "requests"), [(0, 1), (300_000, 2), (len(CONTENT), 1)])
def test_wrong_bytes(tmp_path, serve, part, requests):
    if part:
        (tmp_path / "file.bin.part").write_bytes(b"x" * part)
    wrong = CONTENT[:-1] + b"\0"
    site = serve(files={"file.bin": wrong})
    assert f"gives another file: its MD5 is {md5(wrong)}; expected {FILE.md5}" in refused(tmp_path, site)
    assert len(site.requests) == requests


@pytest.mark.parametrize(("length", "message"), [(True, "gives 1024003 bytes"), (False, "gives more than")])
def test_too_many_bytes(tmp_path, serve, length, message):
    site = serve(files={"file.bin": CONTENT + b"xyz"}, length=length)
    assert message in refused(tmp_path, site)


def test_a_page_instead_of_the_file_leaves_the_part_alone(tmp_path, serve):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:300_000])
    site = serve(files={"file.bin": b"<html>moved</html>"}, ranges=False)
    assert "gives 18 bytes; expected 1024000" in refused(tmp_path, site, kept=CONTENT[:300_000])


@pytest.mark.parametrize("status", [403, 404, 416, 500, 503])
def test_refusals(tmp_path, serve, status):
    site = serve(files={"file.bin": CONTENT}, status=status)
    message = refused(tmp_path, site)
    assert message.startswith("file.bin could not be downloaded:")
    assert f"{site.address}file.bin: HTTP {status}" in message


def test_the_next_address_continues_where_the_first_broke_off(tmp_path, serve):
    gone = serve()
    wrong = serve(files={"file.bin": CONTENT[::-1]})
    weak = serve(files={"file.bin": CONTENT}, break_after=[1000, 0])
    good = serve(files={"file.bin": CONTENT})
    get(tmp_path, gone, wrong, weak, good)
    assert good.requests == [("/file.bin", "bytes=1000-")]


def test_without_network(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    unknown = Site("http://name.invalid/")
    with socket.socket() as deaf:  # holds the port, so that no other process answers there, and does not listen
        deaf.bind(("127.0.0.1", 0))
        message = refused(tmp_path, Site(f"http://127.0.0.1:{deaf.getsockname()[1]}/"), unknown)
    assert "refused" in message
    assert "http://name.invalid/file.bin: " in message
    assert list(tmp_path.iterdir()) == []


def test_a_silent_server(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        file = at(Site(f"http://127.0.0.1:{silent.getsockname()[1]}/"))
        with pytest.raises(DownloadError, match="timed out"):
            download(file, tmp_path / "file.bin", timeout_s=0.2)


def test_two_downloads_at_a_time(tmp_path, serve):
    pytest.importorskip("fcntl")
    site = serve(files={"file.bin": CONTENT})
    said = []

    def meanwhile(done):
        if not said:
            said.append(None)
            with pytest.raises(DownloadError, match="by another process") as raised:
                download(at(site), tmp_path / "file.bin")
            said[0] = raised.value

    download(at(site), tmp_path / "file.bin", progress=meanwhile)
    assert said[0] is not None
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("lies_at", ["file.bin", "nowhere"])
def test_another_download_ends_while_this_one_begins(tmp_path, serve, monkeypatch, lies_at):
    """Between opening the part and locking it: what was opened is not a part any more."""
    fcntl = pytest.importorskip("fcntl")
    site = serve(files={"file.bin": CONTENT})
    part = tmp_path / "file.bin.part"
    part.write_bytes(CONTENT)
    lock = fcntl.flock

    def other_ends_first(file, how):
        if part.exists() and part.stat().st_size == len(CONTENT):
            part.rename(tmp_path / lies_at)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", other_ends_first)
    download(at(site), tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert not part.exists()


def test_the_final_name_is_given_while_others_are_kept_out(tmp_path, serve, monkeypatch):
    pytest.importorskip("fcntl")
    site = serve(files={"file.bin": CONTENT})
    replace_ = type(tmp_path).replace

    def replaced(path, target):
        with pytest.raises(DownloadError, match="by another process"):
            download(at(site), tmp_path / "file.bin")
        return replace_(path, target)

    monkeypatch.setattr(type(tmp_path), "replace", replaced)
    download(at(site), tmp_path / "file.bin")
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_a_killed_download_is_continued(tmp_path, serve):
    site = serve(files={"file.bin": CONTENT})
    program = f"""
import os, pathlib, signal
from fedroster.data.fetch import download
from fedroster.data.source import PublishedFile
file = PublishedFile("file.bin", {FILE.size}, {FILE.md5!r}, urls=({site.address + "file.bin"!r},))
kill = lambda done: done > 500_000 and os.kill(os.getpid(), signal.SIGKILL)
download(file, pathlib.Path({str(tmp_path / "file.bin")!r}), progress=kill)
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False, timeout=600)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin.part"]
    kept = (tmp_path / "file.bin.part").stat().st_size
    assert 0 < kept < len(CONTENT)
    assert get(tmp_path, site)[0] == kept


def test_a_fault_of_ours_is_no_fault_of_the_network(tmp_path, serve):
    site = serve(files={"file.bin": CONTENT})

    def full(done):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as raised:
        download(at(site), tmp_path / "file.bin", progress=full)
    assert not isinstance(raised.value, DownloadError)
    assert not (tmp_path / "file.bin").exists()


def test_a_folder_that_is_not_there(tmp_path, serve):
    site = serve(files={"file.bin": CONTENT})
    with pytest.raises(FileNotFoundError):
        download(at(site), tmp_path / "none" / "file.bin")


# ----------------------------------------------------------------- whole data sets


def test_fetch_files(tmp_path, serve):
    site = serve(files=MNIST.files)
    source = MNIST.served_at(site.address).source
    told = []
    location = fetch(source, tmp_path / "new", progress=lambda done, total: told.append((done, total)))
    total = sum(len(content) for content in MNIST.files.values())
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {path.name: path.read_bytes() for path in (tmp_path / "new" / "tiny").iterdir()} == MNIST.files
    assert not any(found.fault for found in check(source, location))
    fetch(source, tmp_path / "new")
    assert len(site.requests) == 4  # nothing is downloaded twice


def test_fetch_only_what_is_missing(tmp_path, serve):
    site = serve(files=MNIST.files)
    names = list(MNIST.files)
    MNIST.write(tmp_path / "tiny", names[:2])
    unpacked = names[2].removesuffix(".gz")
    (tmp_path / "tiny" / unpacked).write_bytes(gzip.decompress(MNIST.files[names[2]]))
    fetch(MNIST.served_at(site.address).source, tmp_path)
    assert site.requests == [(f"/{names[3]}", "")]


@pytest.mark.parametrize("whole", [False, True])
def test_fetch_overwrites_nothing(tmp_path, serve, whole):
    site = serve(files=MNIST.files)
    names = list(MNIST.files)
    folder = MNIST.write(tmp_path / "tiny", names if whole else names[:3])
    (folder / names[1]).write_bytes(b"mine")
    with pytest.raises(DataFileError, match=f"{names[1]} .*; remove it and fetch again"):
        fetch(MNIST.served_at(site.address).source, tmp_path)
    assert (folder / names[1]).read_bytes() == b"mine"
    assert site.requests == []


def test_fetch_continues_between_files(tmp_path, serve):
    site = serve(files={name: content for name, content in MNIST.files.items() if "train" in name})
    source = MNIST.served_at(site.address).source
    with pytest.raises(DownloadError, match=r"t10k-images-.* could not be downloaded"):
        fetch(source, tmp_path)
    site.files, site.requests[:] = MNIST.files, []
    fetch(source, tmp_path)
    assert [path for path, _ in site.requests] == ["/t10k-images-idx3-ubyte.gz", "/t10k-labels-idx1-ubyte.gz"]


def test_fetch_unpacks_an_archive(tmp_path, serve):
    site = serve(files=CIFAR.files)
    source = CIFAR.served_at(site.address).source
    location = fetch(source, tmp_path)
    assert location.folder == tmp_path / "cifar-10-batches-bin"
    names = ["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"]
    assert sorted(path.name for path in location.folder.iterdir()) == names
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-batches-bin"]  # the archive has served
    for name in names:
        assert (location.folder / name).read_bytes() == CIFAR.files[name]
    assert [path for path, _ in site.requests] == ["/cifar-10-bin.tar.gz"]


def test_an_archive_of_the_users_stays_and_is_enough(tmp_path, serve):
    site = serve(files=CIFAR.files)
    CIFAR.write(tmp_path, ["cifar-10-bin.tar.gz"])
    location = fetch(CIFAR.served_at(site.address).source, tmp_path)
    assert list(location.paths) == ["cifar-10-bin.tar.gz"]
    assert site.requests == []


def test_load_downloads_only_when_asked(tmp_path, serve):
    site = serve(files=MNIST.files)
    source = MNIST.served_at(site.address).source
    with pytest.raises(FileNotFoundError):
        load_source(source, tmp_path)
    assert site.requests == []
    dataset = load_source(source, tmp_path, download=True)
    assert len(dataset.train_y) == 60
    load_source(source, tmp_path)
    load_source(source, tmp_path, download=True)
    assert len(site.requests) == 4


def test_what_has_no_address(tmp_path):
    with pytest.raises(DownloadError, match="could not be downloaded"):
        fetch(MNIST.source, tmp_path)
    with pytest.raises(ConfigurationError, match="Tiny is not to be downloaded"):
        fetch(replace(MNIST.source, download=None), tmp_path)


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["head", "body"])
def test_a_server_that_drips_is_given_up(tmp_path, monkeypatch, begin):
    monkeypatch.setenv("no_proxy", "*")
    over = threading.Event()

    def drip():
        with listener.accept()[0] as connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(begin)
            while not over.wait(0.02):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        site = Site(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        try:
            with pytest.raises(DownloadError):
                download(at(site), tmp_path / "file.bin", timeout_s=0.1)
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", "could not be downloaded"),
        (b"302 Found\r\nLocation: http://[::1\r\n\r\n", "could not be downloaded"),
        (b"404 \x1b[31mred\r\n\r\n", r"404 \?\[31mred"),
    ],
    ids=["long length", "no address", "control characters"],
)
def test_what_a_hostile_server_says_is_refused_in_words(tmp_path, monkeypatch, answer, why):
    monkeypatch.setenv("no_proxy", "*")

    def reply():
        with listener.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 " + answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(DownloadError, match=why):
            download(at(Site(f"http://127.0.0.1:{listener.getsockname()[1]}/")), tmp_path / "file.bin", timeout_s=1.0)
        thread.join()
