"""A headless Chromium, driven through its pipe: no package and no port is needed for that.

python tests/report/browser.py report.html picture.png [height]    # takes a picture
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
#: JavaScript that waits until what was changed is drawn, and events of it have been heard
DRAWN = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
_PATIENCE = 60.0  #: seconds until a browser that says nothing is given up


def path() -> str | None:
    """Where a browser is: $CHROMIUM, or one of the usual names."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab; messages go as JSON that ends with a zero byte (the DevTools protocol)."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, back
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []  #: exceptions, and what was logged as an error
        self.asked: list[str] = []  #: addresses that the page wanted
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Ask for something and wait for the answer; events on the way are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, file: Path, width: int = 1200, height: int = 900) -> None:
        """Load a file at this size of window and wait until it is drawn."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.errors, self.asked = [], []
        self.call("Page.navigate", url=file.resolve().as_uri())
        end = time.monotonic() + _PATIENCE
        while not self.run("document.readyState === 'complete' && !!document.querySelector('svg')"):
            assert time.monotonic() < end, f"no chart after {_PATIENCE} s; errors: {self.errors}"
            time.sleep(0.02)
        self.run(DRAWN)

    def run(self, script: str) -> Any:
        """The value of a piece of JavaScript."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def hover(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def touch(self, x: float, y: float) -> None:
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])

    def press(self, key: str) -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def prefer(self, scheme: str) -> None:
        """Look like a system with "light" or "dark" colours."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, whole: bool = True) -> bytes:
        """The page as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._back, 1 << 20)
            assert read, "the browser has ended"
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        elif event == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(str(params["entry"]))
        elif event == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])


@contextlib.contextmanager
def browser(program: str) -> Iterator[Page]:
    """A browser with an empty profile, for as long as the block lasts."""
    read_theirs, to = os.pipe()
    back, write_theirs = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]
        # the protocol is spoken on descriptors 3 and 4: above them first, so that none is lost
        pipes = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (read_theirs, write_theirs)]
        put = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
        put += "os.execv(sys.argv[3], sys.argv[3:])"
        child = subprocess.Popen(
            [sys.executable, "-c", put, *map(str, pipes), program, *options],
            pass_fds=pipes,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for each in (read_theirs, write_theirs, *pipes):
            os.close(each)
        try:
            yield Page(to, back)
        finally:
            os.close(to)
            os.close(back)
            child.terminate()
            child.wait(timeout=20)


def _main() -> None:
    file, picture, *height = sys.argv[1:]
    program = path()
    assert program is not None, f"no browser; there is none of {', '.join(NAMES)}"
    with browser(program) as page:
        page.prefer("light")
        page.open(Path(file), height=int(*height or [1600]))
        Path(picture).write_bytes(page.picture(whole=False))


if __name__ == "__main__":
    _main()
