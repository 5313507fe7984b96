"""Serves the page: read-only, to this machine alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.serving import BaseWSGIServer, make_server
from werkzeug.wrappers import Request, Response

from fedroster.core.errors import FedrosterError, UnknownNameError
from fedroster.record import Log
from fedroster.record.why import why
from fedroster.watch.page import page_of
from fedroster.watch.view import View, view_of

_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names under which the page answers: a foreign site cannot read it by a name of its own that points here."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


class Watch:
    """The page as a WSGI application.

    Args:
        folder: Folder of the log; it may be empty yet.
    """

    def __init__(self, folder: Path) -> None:
        """Watch a folder."""
        self._folder = folder
        self._lock = threading.Lock()
        self._seen: tuple[Any, ...] = ()
        self._log: Log | None = None
        self._view: View | None = None
        self._page = ""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        request = Request(environ)
        try:
            response = self._answer(request)
        except HTTPException as error:
            response = error.get_response(environ)
        response.headers["Content-Security-Policy"] = _POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        if request.host.rpartition(":")[0] not in _HOSTS and request.host not in _HOSTS:
            raise NotFound
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(["GET", "HEAD"])
        with self._lock:
            trouble = self._read()
            if request.path == "/":
                if trouble:
                    return Response(page_of(self._view, self._folder, trouble), mimetype="text/html")
                self._page = self._page or page_of(self._view, self._folder, "")
                return Response(self._page, mimetype="text/html")
            if request.path == "/lines":
                return Response(str(self._view.num_lines if self._view else 0), mimetype="text/plain")
            if request.path == "/why":
                return Response(self._why(request), mimetype="text/plain")
        raise NotFound

    def _read(self) -> str:
        """Read the log again if its files have changed; what is wrong with it, in words."""
        try:
            files = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
            seen = tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)
            if seen != self._seen or self._view is None:
                self._log = Log(self._folder)
                self._view = view_of(self._log)
                self._page, self._seen = "", seen
        except FileNotFoundError:
            return "There is no log yet; this page follows it as soon as a round begins."
        except FedrosterError as error:
            return f"The log cannot be read: {error}"
        return ""

    def _why(self, request: Request) -> str:
        """Why a client was chosen in a round, or was not."""
        client, round = request.args.get("client", ""), request.args.get("round", "")
        if self._log is None or not round.isdecimal() or len(round) > 15:
            raise NotFound
        known = {str(each): each for each in self._log.ids if each is not None}
        try:
            return why(self._log, known.get(client, client), int(round))
        except UnknownNameError as error:
            raise NotFound(str(error)) from error


def serving(folder: Path, port: int) -> BaseWSGIServer:
    """A server of the page on loopback, on a free port for 0; ``serve_forever`` runs it.

    Raises:
        OSError: If the port is taken.
    """
    return make_server("127.0.0.1", port, Watch(folder), threaded=True)
