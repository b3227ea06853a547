"""A real browser for tests: Debian's chromium driven through chromedriver, only by the W3C WebDriver protocol."""

import json
import os
import shutil
import subprocess
import time
import urllib.request

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
KEYS = {
    "Enter": "\ue007", "Escape": "\ue00c", "Left": "\ue012", "Up": "\ue013", "Right": "\ue014", "Down": "\ue015",
    "Home": "\ue011", "End": "\ue010", "Tab": "\ue004", "Space": " ",
}  # fmt: skip
FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--disable-domain-reliability", "--metrics-recording-only", "--no-proxy-server",
    "--disable-dev-shm-usage", "--mute-audio",
    "--no-zygote", "--in-process-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
needs_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
PATIENCE = 600  # seconds: a busy machine is slow, and a browser that hangs is found nevertheless
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # proxies do not lead to this machine


def _humbly():
    """What to start a browser with so that it keeps the priority it is given: as root it would raise its own."""
    command = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]
    if not shutil.which(command[0]) or subprocess.run([*command, "true"], capture_output=True).returncode:
        return []
    return command


class Browser:
    """One window; `log` returns the errors and warnings of the page, `requests` the addresses that it requested."""

    def __init__(self, folder):
        environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
        self._output = (folder / "driver.log").open("w+")
        call, streams = [*_humbly(), str(DRIVER), "--port=0"], {"stdout": subprocess.PIPE, "stderr": self._output}
        self._driver = subprocess.Popen(call, env=environment, **streams, text=True)
        self._root = f"http://127.0.0.1:{self._port()}"
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"]}
        logs, times = {"browser": "ALL", "performance": "ALL"}, dict.fromkeys(("script", "pageLoad"), 1000 * PATIENCE)
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs, "timeouts": times}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._root += f"/session/{made['sessionId']}"

    def _port(self):
        for line in self._driver.stdout or ():
            if "started successfully on port" in line:
                return int(line.rstrip(".\n").split()[-1])
        raise RuntimeError("chromedriver did not start")

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
        try:
            with _DIRECT.open(request, timeout=PATIENCE) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(PATIENCE)
            (self._driver.stdout or self._output).close()
            self._output.close()

    def open(self, page, fragment="", ready="document.documentElement.dataset.ready"):
        """Opens a file or an address again, waits until `ready`; returns the milliseconds since its begin, if known."""
        self._ask("POST", "/url", {"url": "about:blank"})
        self._ask("POST", "/url", {"url": (page if isinstance(page, str) else page.as_uri()) + fragment})
        return int(self.until(f"return {ready}"))

    def run(self, script, *arguments):
        """What a script returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def texts(self, selector):
        """The texts of all elements of a selector."""
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)

    def until(self, script, *arguments):
        """What a script returns as soon as that is true."""
        end = time.monotonic() + PATIENCE
        while not (value := self.run(script, *arguments)):
            if time.monotonic() > end:
                raise AssertionError(f"never true: {script}")
            time.sleep(0.02)
        return value

    def press(self, *keys):
        """Presses keys one after the other; a name of `KEYS` or a letter."""
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def point(self, selector, *, click=False, index=0):
        """Moves the mouse to the middle of an element, and clicks."""
        found = self._ask("POST", "/elements", {"using": "css selector", "value": selector})[index]
        actions = [{"type": "pointerMove", "origin": found, "x": 0, "y": 0, "duration": 0}]
        if click:
            actions += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        mouse = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}
        self._ask("POST", "/actions", {"actions": [mouse]})

    def size(self, width, height):
        """Sets the size of the page, narrower than a window could be, too."""
        shape = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.command("Emulation.setDeviceMetricsOverride", **shape)

    def media(self, **features):
        """Sets features of media queries, such as prefers_color_scheme="dark"."""
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.command("Emulation.setEmulatedMedia", features=named)

    def command(self, name, **parameters):
        """A command of chromium's own protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": name, "params": parameters})

    def log(self):
        """What has been written to the console since the last time."""
        return [line["message"] for line in self._ask("POST", "/se/log", {"type": "browser"})]

    def requests(self):
        """The addresses, not of files, that pages have requested since the last call."""
        lines = self._ask("POST", "/se/log", {"type": "performance"})
        events = [json.loads(line["message"])["message"] for line in lines]
        sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        urls = [event["request"]["url"] for event in sent]  # the browser's own first page begins with chrome:
        return [url for url in urls if not url.startswith(("file:", "data:", "about:", "blob:", "chrome"))]
