"""The viewer's server: its page and its answers, for this machine alone."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from latchwork.viewer.answers import Viewer
from latchwork.viewer.tokens import TokenError

ADDRESS = "127.0.0.1"
MOST_BYTES = 1 << 16
"""Of a request's body."""
_MOST_DISCARDED = 1 << 23
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _HTTPError(Exception):
    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status, self.content = status, {"error": message, **more}


class ViewerServer(ThreadingHTTPServer):
    """Serves one viewer on a port of 127.0.0.1; port 0 takes a free one.

    Raises: ValueError for no port, OSError if it is taken.
    """

    daemon_threads = True

    def __init__(self, viewer: Viewer, port: int = 0) -> None:
        if not 0 <= port < 1 << 16:
            raise ValueError(f"port must be in 0 … 65535, got {port}")
        self.viewer, self.files = viewer, page_files()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise OSError(f"cannot listen on port {port}: {error.strerror}") from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """Names by which a request may call this server; another one is a page elsewhere that points its name here."""
        return {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}


def page_files() -> dict[str, tuple[str, bytes]]:
    """Path -> type and content of every file of the page."""
    files = {}
    for file in resources.files("latchwork.viewer").joinpath("page").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            files["/" + file.name] = (f"{kind}; charset=utf-8", file.read_bytes())
    files["/"] = files.pop("/index.html")
    return files


class _Handler(BaseHTTPRequestHandler):
    server: ViewerServer
    server_version, sys_version = "latchwork", ""
    timeout = 30
    """Seconds that a connection may be silent."""

    def do_GET(self) -> None:
        self._respond(self._get)

    def do_HEAD(self) -> None:
        self._respond(self._get)

    def do_POST(self) -> None:
        self._respond(self._post)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: the terminal is not for requests."""

    def _respond(self, find: Any) -> None:
        try:
            self._check_host()
            status, (kind, content) = 200, find(urlsplit(self.path))
        except TokenError as error:
            status, (kind, content) = 400, _json({"error": str(error), **error.to_dict()})
        except (ValueError, RecursionError) as error:
            status, (kind, content) = 400, _json({"error": str(error)})
        except _HTTPError as error:
            status, (kind, content) = error.status, _json(error.content)
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _check_host(self) -> None:
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            raise _HTTPError(403, f"this server answers to {self.server.url} only")
        origin = self.headers.get("Origin")
        if origin is not None and origin.lower().removeprefix("http://") not in self.server.hosts:
            raise _HTTPError(403, "this server answers to its own page only")

    def _get(self, url: Any) -> tuple[str, bytes]:
        viewer = self.server.viewer
        if url.path == "/api/model":
            return _json(viewer.facts())
        if url.path == "/api/example":
            query = parse_qs(url.query)
            sample, length = (_integer(query, name, default) for name, default in (("sample", 0), ("length", 60)))
            return _json(viewer.example(sample, min(length, viewer.most_tokens)))
        if url.path not in self.server.files:
            raise _HTTPError(404, "there is nothing here")
        return self.server.files[url.path]

    def _post(self, url: Any) -> tuple[str, bytes]:
        if url.path != "/api/trace":
            raise _HTTPError(404, "there is nothing here")
        return _json(self.server.viewer.reply(self._body()))

    def _body(self) -> Any:
        if self.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise _HTTPError(415, "a question is sent as application/json")
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            raise _HTTPError(411, "a question says its length in Content-Length")
        if len(length) > 12 or int(length) > MOST_BYTES:
            self.rfile.read(min(int(length[:12]), _MOST_DISCARDED))  # who is still sending does not read the answer
            raise _HTTPError(413, f"a question has at most {MOST_BYTES:,} bytes, got {length[:12]}")
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise ValueError("the question is not JSON") from None


def _json(content: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def _integer(query: dict[str, list[str]], name: str, default: int) -> int:
    text = query.get(name, [str(default)])[-1]
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise ValueError(f"{name} must be a whole number, got {text[:40]!r}")
    return int(text)
