"""Judges what a command does with what strangers made: files, sockets, programs, screens, pages, tables and pictures.

It knows nothing of fedroster.  Python's audit events say what is opened, moved, connected to or started, a picture of
the whole home says what changed under it, a port that nothing should ask says what compiled code does, and every file
that was written is read by its own kind's parser.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import socket
import stat
import sys
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

Fault = Callable[[str], None]
FORGED = "INFO round 9 begun"
LONGEST = 400_000  # characters that a command may say of hostile names
_NUMBER = r"[+-]?(\d+(\.\d+)?(e[+-]?\d+)?|inf)"
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {  # where an event has its paths, and the folder that they are relative to
    "os.remove": (0, 1, 1), "os.rmdir": (0, 1, 1), "os.mkdir": (0, 1, 2), "os.chmod": (0, 1, 2),
    "os.truncate": (0, 1, 9),
    "os.symlink": (1, 2, 2), "os.rename": (0, 2, 2), "os.link": (0, 2, 2),
}  # fmt: skip
_REACHES = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "urllib.Request")
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.startfile")
_watching: list[Callable[[str, tuple[Any, ...]], None]] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    for hear in _watching:
        hear(event, arguments)


sys.addaudithook(_hear)


def hidden_in(text: str, keep: str = "\n") -> list[str]:
    """Signs that a reader does not see, or that a terminal obeys."""
    return sorted({each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {*keep})


class Port:
    """A port of this machine that nothing should connect to."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.number: int = self._socket.getsockname()[1]

    def was_asked(self) -> bool:
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


def seen(home: Path) -> dict[str, tuple[int, str]]:
    """Everything below a folder: its kind and rights, and what it holds or leads to."""
    found = {}
    for folder, names, files in os.walk(home):
        for path in (os.path.join(folder, name) for name in [*names, *files]):  # noqa: PTH118
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                found[path] = (mode, str(Path(path).readlink()))
            elif stat.S_ISREG(mode):
                content = Path(path).read_bytes()
                found[path] = (mode, hashlib.blake2b(content).hexdigest())
            else:
                found[path] = (mode, "")
    return found


@contextmanager
def watched(home: Path, mine: Path | None, port: Port, fault: Fault) -> Iterator[list[Path]]:
    """Nothing but ``mine``, a file or a folder below ``home``, is changed; nothing is connected to or started.

    The list that it yields holds in the end what was written.
    """
    allowed = [
        Path(sys.prefix),
        Path("/dev/null"),
        Path(os.environ["XDG_CACHE_HOME"]),
        *([] if mine is None else [mine]),
    ]

    def is_allowed(path: Any, beside: int = -1) -> bool:
        if isinstance(path, int):
            return True
        root = "." if beside < 0 else str(Path(f"/proc/self/fd/{beside}").readlink())
        whole = Path(os.path.realpath(os.path.join(root, os.fsdecode(path))))  # noqa: PTH118
        name = whole.name  # a temporary file stands beside the one that it becomes, compiled Python beside its source
        if "__pycache__" in whole.parts:
            return True
        near = name.startswith(".") and name.endswith(".tmp") and mine is not None and whole.parent == mine.parent
        return near or any(place in (whole, *whole.parents) for place in allowed)

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _REACHES or (event == "socket.__new__" and arguments[1] != socket.AF_UNIX):
            fault(f"reaches out, {event} {arguments[1:]}")
        elif event in _STARTS:
            fault(f"starts a program, {event} {arguments[:2]}")
        elif event == "open" and arguments[0] is not None and (arguments[2] or 0) & _WRITES:
            if not is_allowed(arguments[0]):
                fault(f"opens {str(arguments[0])[-80:]!r} to write")
        elif event in _CHANGES:
            first, last, place = _CHANGES[event]
            beside = arguments[place] if place < len(arguments) else -1
            for path in arguments[first:last]:
                if isinstance(path, str | bytes | os.PathLike) and not is_allowed(path, beside):
                    fault(f"{event} of {os.fsdecode(path)[-80:]!r}")

    before, written = seen(home), list[Path]()
    _watching.append(hear)
    try:
        yield written
    finally:
        _watching.remove(hear)
    written += sorted({Path(path) for path, _ in seen(home).items() ^ before.items()})
    for path in written:
        if mine is None or mine not in (path, *path.parents):
            fault(f"{str(path)[-80:]!r} is not as it was")
    if port.was_asked():
        fault("connects to a port of this machine")


def judge_said(said: str, fault: Fault) -> None:
    """What stands on a screen: nothing that steers it, no forged line, and no flood."""
    if found := hidden_in(said):
        fault(f"shows {found}")
    if re.search(rf"^\s*{FORGED}", said, re.MULTILINE):
        fault("a line is forged")
    if len(said) > LONGEST:
        fault(f"says {len(said):,} characters")


# -------------------------------------------------------------------- files


class _Page(HTMLParser):
    """A page's tags, as a browser takes them."""

    def __init__(self, fault: Fault, *, whole: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.fault, self.whole, self.policy, self.kind = fault, whole, "", ""
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("iframe", "object", "embed", "base", "form", "link", "applet", "frame") or (
            tag == "script" and not self.whole
        ):
            self.fault(f"has a tag {tag}")
        for name, value in given.items():
            if name.startswith("on"):
                self.fault(f"{tag} has {name}")
            if hidden_in(value):
                self.fault(f"{tag}.{name} hides {hidden_in(value)}")
            if name in ("href", "src", "xlink:href", "action", "formaction", "data", "srcset", "poster", "background"):
                self.link(tag, value, is_file="download" in given)
            if name == "style" and re.search(r"url\(|expression|@import", value):
                self.fault(f"{tag}.style is {value[:40]!r}")
        if tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            self.fault("goes elsewhere by itself")
        if tag == "meta" and given.get("http-equiv", "").lower() == "content-security-policy":
            self.policy = given["content"]
        self.kind = given.get("type", "code") if tag == "script" else tag if tag == "style" else ""
        self.text = []

    def link(self, tag: str, value: str, *, is_file: bool) -> None:
        """A link stays on the page, or goes to what lies in its folder; what is saved is a table."""
        plain = re.sub(r"[\s\x00-\x1f]", "", value)
        leaves = ".." in plain.split("/") or re.search(r"%2e%2e|%2f|%5c|\\", plain, re.IGNORECASE)
        if plain.startswith("#") or (is_file and plain.startswith("data:text/csv;charset=utf-8,")):
            return
        is_own = plain.startswith("./") or re.fullmatch(r"[\w-]+\.svg", plain)
        if leaves or not is_own:
            self.fault(f"{tag} leads to {value[:60]!r}")

    def handle_data(self, data: str) -> None:
        if self.kind:
            self.text.append(data)
        elif hidden_in(data, "\n\t"):
            self.fault(f"its text hides {hidden_in(data)}")

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            script = "".join(self.text)
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            if self.kind == "application/json":
                json.loads(script)
            elif f"'sha256-{digest}'" not in self.policy:
                self.fault(f"runs a script that its policy does not name: {script[:40]!r}")
        self.kind = ""


def judge_file(file: Path, fault: Fault) -> None:
    """A file that a command wrote, by its own kind's parser."""

    def at(words: str) -> None:
        fault(f"{file.name[:40]} {words}")

    if file.is_symlink() or not file.is_file():
        return
    raw = file.read_bytes()
    if len(raw) > 30_000_000:
        at(f"has {len(raw):,} bytes")
    if file.suffix == ".html":
        page = _Page(at, whole=True)
        page.feed(raw.decode())
        if not page.policy.startswith("default-src 'none'"):
            at("has no policy")
    elif file.suffix == ".md":
        for preset in ("commonmark", "gfm-like"):  # the second knows tables, and links without any brackets
            reader = MarkdownIt(preset, {"html": True, "linkify": False})
            reader.validateLink = lambda _: True  # others show what this one would not
            _Page(at, whole=False).feed(reader.render(raw.decode()))
        if hidden_in(raw.decode()):
            at(f"hides {hidden_in(raw.decode())}")
    elif file.suffix == ".svg":
        for tag in ElementTree.fromstring(raw).iter():
            if tag.tag.rpartition("}")[2] in ("script", "foreignObject", "image", "a"):
                at(f"has a tag {tag.tag}")
            for name, value in tag.attrib.items():
                links_out = name.rpartition("}")[2] == "href" and not value.startswith("#")
                if links_out or name.startswith("on") or hidden_in(value):
                    at(f"has {name}={value[:40]!r}")
            if hidden_in(tag.text or ""):
                at(f"hides {hidden_in(tag.text or '')}")
    elif file.suffix == ".csv":
        for row in csv.reader(io.StringIO(raw.decode(), newline="")):
            for cell in row:
                if re.match(r"\s*[=+\-@\t\r\n]", cell) and not re.fullmatch(_NUMBER, cell):
                    at(f"has the formula {cell[:40]!r}")
