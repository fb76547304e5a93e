"""`latchwork view`."""

from __future__ import annotations

import contextlib
import threading
import webbrowser
from dataclasses import dataclass
from pathlib import Path

import tyro

from latchwork.cli.display import say, set_threads
from latchwork.runs.run import Run


@dataclass
class View:
    """Open a page in the browser on which one types tokens and watches the units of a trained run."""

    run_folder: tyro.conf.Positional[Path]
    """The folder of the run."""
    port: int = 0
    """Port of 127.0.0.1 to serve the page on; 0 takes a free one."""
    browser: bool = True
    """Open the page in the default browser."""
    threads: int | None = None
    """Threads to compute with; by default PyTorch's choice."""

    def run(self) -> int:
        from latchwork.viewer.answers import Viewer
        from latchwork.viewer.server import ViewerServer

        set_threads(self.threads)
        run = Run.open(self.run_folder)
        run.check_data()
        with ViewerServer(Viewer(run), self.port) as server:
            print(server.url, flush=True)
            say("Ctrl-C ends it")
            if self.browser:
                # in a thread: a browser in the terminal returns when it is closed
                threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
            with contextlib.suppress(KeyboardInterrupt):
                server.serve_forever()
        return 0
