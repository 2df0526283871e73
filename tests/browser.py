"""A headless Chromium, driven by chromedriver over the WebDriver protocol, without further packages."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_STARTED = re.compile(r"started successfully on port (\d+)")
_TIMEOUT = 120  # seconds for an answer: a busy machine starts Chromium slowly
_STARTS = 5
_PAUSE = 0.2  # seconds between two questions
_CLICK = """((label) => {
  const found = [...document.querySelectorAll("button, a")].filter(
    (one) => one.innerText.trim().startsWith(label) && !one.disabled)
  found.at(-1)?.click()
  return found.length
})(arguments[0])"""


@dataclass(frozen=True)
class Browser:
    """A session with one window."""

    session: str  # its URL

    def open(self, url: str) -> None:
        _call("POST", f"{self.session}/url", {"url": url})

    def evaluate(self, expression: str, *arguments: str) -> Any:
        """Return the value of an expression in the page, in which `arguments` has the arguments."""
        return _call("POST", f"{self.session}/execute/sync", {"script": f"return {expression}", "args": arguments})

    def text(self) -> str:
        """Return the text that the page shows."""
        return str(self.evaluate("document.body.innerText"))

    def wait_for(self, text: str) -> str:
        """Wait until the page shows a text, and return all its text."""
        return self._wait(lambda: (shown := self.text()) and (shown if text in shown else None), text)

    def click(self, label: str) -> None:
        """Click the button that is not disabled and whose text begins with a label, when there is one."""
        self._wait(lambda: self.evaluate(_CLICK, label), label)

    def _wait(self, found: Callable[[], Any], what: str) -> Any:
        return wait_until(found, _TIMEOUT, lambda: f"no {what!r}. The page shows: {self.text()}")

    def console(self) -> list[str]:
        """Return what the console has shown since the last call."""
        return [one["message"] for one in _call("POST", f"{self.session}/se/log", {"type": "browser"})]

    def requested(self) -> set[str]:
        """Return the URLs that the browser requested since the last call."""
        entries = _call("POST", f"{self.session}/se/log", {"type": "performance"})
        events = [json.loads(one["message"])["message"] for one in entries]
        return {one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"}

    def screenshot(self, file: Path) -> None:
        """Write what the window shows to a WebP file."""
        wanted = {"cmd": "Page.captureScreenshot", "params": {"format": "webp", "quality": 80}}
        file.write_bytes(base64.b64decode(_call("POST", f"{self.session}/goog/cdp/execute", wanted)["data"]))


def wait_until(found: Callable[[], Any], seconds: float, what_is: Callable[[], str]) -> Any:
    """Call a function until its result is true, and return the result. Fails after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(_PAUSE)
    raise AssertionError(f"after {seconds} s: {what_is()}")


@contextmanager
def browser(width: int, height: int, *, is_dark: bool = False) -> Iterator[Browser]:
    """Yield a browser whose screen has this size in CSS pixels."""
    assert CHROMIUM
    with tempfile.TemporaryDirectory() as profile:
        process, port = _driver()
        try:
            dark = ["--blink-settings=preferredColorScheme=0"] if is_dark else []
            chrome = {
                "binary": CHROMIUM,
                "args": [*_OPTIONS, *dark, f"--user-data-dir={profile}"],
                "mobileEmulation": {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 1}},
            }
            logs = {"browser": "ALL", "performance": "ALL"}
            wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": chrome, "goog:loggingPrefs": logs}}}
            made = _call("POST", f"http://127.0.0.1:{port}/session", wanted)
            session = f"http://127.0.0.1:{port}/session/{made['sessionId']}"
            try:
                yield Browser(session)
            finally:
                _call("DELETE", session)
        finally:
            process.terminate()
            process.wait(_TIMEOUT)


def _driver() -> tuple[subprocess.Popen[str], str]:
    """Start chromedriver on a free port, again if another program has that port for IPv6 and chromedriver ends."""
    assert DRIVER
    for _ in range(_STARTS):
        process = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout
        if port := next((found[1] for line in process.stdout if (found := _STARTED.search(line))), None):
            return process, port
        process.wait(_TIMEOUT)
    raise AssertionError(f"{DRIVER} ended {_STARTS} times before it listened")


def _call(method: str, url: str, document: Any = None) -> Any:
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
        return json.load(answer)["value"]
