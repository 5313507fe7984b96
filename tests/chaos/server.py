"""A hostile server that data are fetched from: the published file arrives, or an error of ours says why not."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chaos.rows import Row
from fedroster.core.errors import FedrosterError
from fedroster.data.fetch import download
from fedroster.data.source import PublishedFile

_BODY = bytes(range(256)) * 400
_MD5 = hashlib.md5(_BODY).hexdigest()
_SILENCE_S = 0.5
_END_S = 15.0  # whatever a server does, a download that goes nowhere ends by then
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(_BODY)

Send = Callable[[bytes], None]


def _endless(send: Send, piece: bytes, pause_s: float = 0.0) -> None:
    while True:
        send(piece)
        time.sleep(pause_s)


def _status(line: bytes, *headers: bytes, body: bytes = b"") -> Callable[[Send, str], None]:
    return lambda send, port: send(b"\r\n".join([b"HTTP/1.1 " + line, *headers, b"", body]))


def _moved(where: str) -> Callable[[Send, str], None]:
    return lambda send, port: send(f"HTTP/1.1 302 Found\r\nLocation: {where.format(port=port)}\r\n\r\n".encode())


def _slowly(send: Send, port: str) -> None:
    send(_OK)
    for byte in _BODY:
        send(bytes([byte]))
        time.sleep(0.3 * _SILENCE_S)


def _drip_of_a_header(send: Send, port: str) -> None:
    send(b"HTTP/1.1 200 OK\r\nX: ")
    _endless(send, b"x", 0.3 * _SILENCE_S)


def _stall(send: Send, port: str) -> None:
    send(_OK + _BODY[:1000])
    time.sleep(6 * _SILENCE_S)


_LENGTH = b"Content-Length: %d" % len(_BODY)
BEHAVIOURS: dict[str, tuple[Callable[[Send, str], None], bool]] = {
    # what the server does, and whether the file can arrive
    "the file": (lambda send, port: send(_OK + _BODY), True),
    "the file without a length": (_status(b"200 OK", body=_BODY), True),
    "another file of the same length": (lambda send, port: send(_OK + bytes(len(_BODY))), False),
    "a longer file": (_status(b"200 OK", body=_BODY + b"x" * 10**6), False),
    "an endless file": (lambda send, port: (send(b"HTTP/1.1 200 OK\r\n\r\n"), _endless(send, b"x" * 65536))[0], False),
    "a shorter file": (lambda send, port: send(_OK + _BODY[:-1]), False),
    "a wrong length": (_status(b"200 OK", b"Content-Length: 5", body=_BODY[:5]), False),
    "a length of 5,000 digits": (_status(b"200 OK", b"Content-Length: " + b"9" * 5000, body=_BODY), False),
    "a negative length": (_status(b"200 OK", b"Content-Length: -1", body=_BODY), True),
    "a length that is no number": (_status(b"200 OK", b"Content-Length: many", body=_BODY), True),
    "a range of 5,000 digits": (_status(b"206 Partial", b"Content-Range: bytes " + b"9" * 5000 + b"-", _LENGTH), False),
    "a part that was not asked for": (_status(b"206 Partial", b"Content-Range: bytes 7-", _LENGTH, body=_BODY), False),
    "chunks that lie": (_status(b"200 OK", b"Transfer-Encoding: chunked", body=b"ffffffffffffffff\r\nabc\r\n"), False),
    "chunks that are no numbers": (_status(b"200 OK", b"Transfer-Encoding: chunked", body=b"zz\r\nabc\r\n"), False),
    "chunks without an end": (
        lambda send, port: (
            send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            _endless(send, b"5\r\nabcde\r\n"),
        )[0],
        False,
    ),
    "a drip": (_slowly, False),
    "a drip of a header": (_drip_of_a_header, False),
    "silence in the middle": (_stall, False),
    "silence": (lambda send, port: time.sleep(6 * _SILENCE_S), False),
    "endless 100 Continue": (lambda send, port: _endless(send, b"HTTP/1.1 100 Continue\r\n\r\n"), False),
    "a header of 10 MB": (_status(b"200 OK", b"X: " + b"x" * 10**7, _LENGTH, body=_BODY), False),
    "10^5 headers": (_status(b"200 OK", *[b"X: y"] * 10**5, _LENGTH, body=_BODY), False),
    "endless headers": (lambda send, port: (send(b"HTTP/1.1 200 OK\r\n"), _endless(send, b"X: y\r\n"))[0], False),
    "noise": (lambda send, port: send(b"\x00\xff" * 5000), False),
    "nothing": (lambda send, port: None, False),
    "500": (_status(b"500 no"), False),
    "404 with control characters": (_status(b"404 \x1b[31mred\x1b[0m\x07"), False),
    "status 99999999": (_status(b"99999999 OK", _LENGTH, body=_BODY), False),
    "a redirect to file:///etc/passwd": (_moved("file:///etc/passwd"), False),
    "a redirect to data:": (_moved("data:,x"), False),
    "a redirect to ftp:": (_moved("ftp://127.0.0.1:{port}/x"), False),
    "a redirect to itself": (_moved("http://127.0.0.1:{port}/x"), False),
    "a redirect to http://[::1": (_moved("http://[::1"), False),
    "a redirect to no port": (_moved("http://127.0.0.1:99999/"), False),
    "a redirect without a place": (_status(b"302 Found"), False),
    "a redirect with a line break": (_status(b"302 Found", b"Location: http://127.0.0.1/\x0b\x01 x"), False),
}


@contextlib.contextmanager
def serving(behaviour: Callable[[Send, str], None]) -> Iterator[str]:
    """A server on loopback that answers every connection so."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    over = threading.Event()
    port = str(listener.getsockname()[1])

    def answer(connection: socket.socket) -> None:
        def send(data: bytes) -> None:
            if over.is_set():
                raise OSError
            connection.sendall(data)

        with contextlib.suppress(OSError), connection:
            connection.settimeout(5.0)
            connection.recv(65536)
            behaviour(send, port)

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}/file"
    finally:
        over.set()
        thread.join()
        listener.close()


class NoEnd(BaseException):
    """A download that did not end in time."""


def run(size: float, seed: int) -> list[Row]:
    row = Row("a hostile server for data, each behaviour from nothing and into a part that is there")
    arrived = refused = 0

    def too_late(*_: object) -> None:
        raise NoEnd

    old_handler = signal.signal(signal.SIGALRM, too_late)
    names = list(BEHAVIOURS)
    try:
        for number, name in enumerate(names):
            behaviour, can_arrive = BEHAVIOURS[name]
            for has_part in (False, True) if size >= 0.1 else ((number + seed) % 2 == 0,):
                with tempfile.TemporaryDirectory() as folder, serving(behaviour) as url:
                    target = Path(folder) / "file"
                    if has_part:
                        target.with_name("file.part").write_bytes(_BODY[:5000])
                    file = PublishedFile("file", len(_BODY), _MD5, urls=(url,))
                    row.tries += 1
                    begin = time.perf_counter()
                    message = ""
                    signal.setitimer(signal.ITIMER_REAL, _END_S)
                    try:
                        download(file, target, timeout_s=_SILENCE_S)
                        arrived += 1
                    except FedrosterError as error:
                        refused += 1
                        message = str(error)
                    except NoEnd:
                        row.fault(f"{name}: it did not end within {_END_S:.0f} s")
                    except Exception as error:
                        row.error(error, name)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0.0)
                    row.timed(begin)
                    if target.exists() and target.read_bytes() != _BODY:
                        row.fault(f"{name}: a wrong file lies under the final name")
                    if can_arrive and not has_part and not target.exists():
                        row.fault(f"{name}: refused, {message[:100]}")
                    if any(ord(letter) < 32 and letter != "\n" for letter in message):
                        row.fault(f"{name}: control characters in the message")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old_handler)
    row.note = f"{arrived} arrived, {refused} refused with a reason"
    return [row.done()]
