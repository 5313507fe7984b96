"""Headless Chromium, driven through its own pipe (the Chrome DevTools Protocol)."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_AT_3_AND_4 = """
import fcntl, os, sys
for place, pipe in enumerate([fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]], start=3):
    os.dup2(pipe, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
LIMIT_S = 120.0  # of everything that a test waits for: a busy machine takes long to start a browser


class Page:
    """A page of a phone's or a desk's width."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._buffer, self._number, self._session = to_browser, from_browser, b"", 0, None

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method, and wait for its result; events in between are passed over."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                if not (piece := os.read(self._from, 2**16)):
                    raise AssertionError(f"Chromium ended before it answered {method}")
                self._buffer += piece
            line, _, self._buffer = self._buffer.partition(b"\0")
            if (reply := json.loads(line)).get("id") == self._number:
                assert "error" not in reply, (method, reply["error"])
                result: dict[str, Any] = reply["result"]
                return result

    def open(self, address: str, *, width: int) -> None:
        """Open a page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 700
        )
        self.call("Page.navigate", url=address)

    def value(self, script: str) -> Any:
        """What a script says; it may be a promise."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Wait until a script says yes."""
        until = time.monotonic() + LIMIT_S
        while not self.value(script):
            assert time.monotonic() < until, (
                f"not within {LIMIT_S:g} s: {script}; {self.value('document.body?.innerText')}"
            )
            time.sleep(0.2)


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A browser whose files are in a folder."""
    assert CHROMIUM is not None, "there is no Chromium; expected chromium on the PATH"
    down, up = os.pipe(), os.pipe()  # it reads from 3 and writes to 4
    command = [
        sys.executable, "-c", _AT_3_AND_4, str(down[0]), str(up[1]), CHROMIUM, "--headless", "--no-sandbox",
        "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={folder}",
        "--remote-debugging-pipe",
    ]  # fmt: skip
    with (folder / "errors").open("wb") as errors:
        browser = subprocess.Popen(command, pass_fds=(down[0], up[1]), stdout=errors, stderr=errors)
    os.close(down[0])
    os.close(up[1])
    try:
        yield Page(down[1], up[0])
    finally:
        os.close(down[1])
        os.close(up[0])
        try:
            browser.wait(10.0)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()
