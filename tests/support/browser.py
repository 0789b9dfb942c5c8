"""Chromium without a window, driven over its debugging pipe: pages, scripts in them, input and screenshots."""
import base64
import json
import os
import shutil
import subprocess
import tempfile


def chromium():
    """Returns the program, or None where there is none."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    def __init__(self, width=1600, height=900):
        self.folder = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def take_pipes():
            high = [os.dup(to_read), os.dup(to_write)]
            os.dup2(os.dup(high[0]), 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--no-first-run", "--disable-extensions", "--disable-background-networking", "--force-device-scale-factor=1",
             "--enable-precise-memory-info", "--js-flags=--expose-gc", f"--window-size={width},{height}",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            close_fds=False, preexec_fn=take_pipes, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.call("Target.getTargets")["targetInfos"]
        page = next(each for each in target if each["type"] == "page")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
        except (OSError, RuntimeError):
            pass
        self.process.wait(20)
        os.close(self.to)
        os.close(self.back)
        self.folder.cleanup()

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.back, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **arguments):
        self.number += 1
        request = {"id": self.number, "method": method, "params": arguments}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.events.append(message)

    def wait_for(self, event):
        while not any(each.get("method") == event for each in self.events):
            self.events.append(self.message())

    def run(self, script):
        """Returns the value of an expression in the page, awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def resize(self, width, height, ratio=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio, mobile=False)

    def open(self, path, ready="document.documentElement.dataset.ready || document.querySelector('#trouble:not([hidden])')"):
        self.events = []
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait_for("Page.loadEventFired")
        if ready:
            self.run(f"new Promise(done => {{ const look = () => {ready} ? done() : setTimeout(look, 5); look(); }})")

    def errors(self):
        return [each["params"]["exceptionDetails"] for each in self.events if each.get("method") == "Runtime.exceptionThrown"]

    def frame(self):
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def sight(self, kind):
        """none, protanopia, deuteranopia, tritanopia, achromatopsia"""
        self.call("Emulation.setEmulatedVisionDeficiency", type=kind)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key, code=None, **more):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key,
                      **({"text": key} if len(key) == 1 and kind == "keyDown" else {}), **more)

    def screenshot(self, path, full=False):
        self.frame()
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
