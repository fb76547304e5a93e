"""A headless Chromium that tests talk to through its DevTools protocol, over two pipes."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --remote-debugging-pipe --hide-scrollbars"""
_SECONDS = 30
_LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)  # the browser reads commands here
os.dup2(int(sys.argv[2]), 4)  # and answers here
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page in a browser of its own. `problems` holds errors and warnings of its console."""

    def __init__(self, chromium: str, profile: Path, size: tuple[int, int] = (1400, 950)) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self._in, self._out = ours_in, ours_out
        pipes = [fcntl.fcntl(pipe, fcntl.F_DUPFD, 10) for pipe in (theirs_in, theirs_out)]
        os.close(theirs_in)
        os.close(theirs_out)
        options = [*_OPTIONS.split(), f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, *map(str, pipes), chromium, *options, "about:blank"],
            pass_fds=pipes,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for pipe in pipes:
            os.close(pipe)
        self._buffer, self._number, self._session = b"", 0, None
        self.problems: list[str] = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        page = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=_SECONDS)
        os.close(self._in)
        os.close(self._out)

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        result = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true on the page."""
        deadline = time.monotonic() + _SECONDS
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{condition} is not to be seen; the page says: {self.run('document.body.innerText')}"
                )
            time.sleep(0.02)

    def click(self, element: str, x: float = 0.5, y: float = 0.5) -> None:
        """With the mouse on an element (an expression), at a share of its width and height."""
        box = self.run(
            f"(() => {{ const b = ({element}).getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})()"
        )
        where = {"x": box[0] + x * box[2], "y": box[1] + y * box[3]}
        self._call("Input.dispatchMouseEvent", type="mouseMoved", **where)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self) -> bytes:
        """What is to be seen, as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot")["data"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], _SECONDS)[0]:
                raise TimeoutError("the browser says nothing")
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        content = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(content["exceptionDetails"]))
        elif event.get("method") == "Runtime.consoleAPICalled" and content["type"] in ("error", "warning"):
            self.problems.append(str(content["args"]))
        elif event.get("method") == "Log.entryAdded" and content["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{content['entry']['text']} {content['entry'].get('url', '')}")
