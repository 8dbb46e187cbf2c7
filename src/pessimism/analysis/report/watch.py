"""`pessimism report --watch`: the page on localhost, following runs that are training.

The page asks for `/state` every few seconds, and gets its new parts when there are some. Nothing else is served,
and only to this machine.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

from pessimism import records
from pessimism.analysis.report.content import document
from pessimism.analysis.report.document import Document, Section
from pessimism.analysis.report.html import page, parts
from pessimism.analysis.report.progress import progress
from pessimism.analysis.report.runs import checked
from pessimism.analysis.report.study import read_study
from pessimism.errors import UserError

HOST, PORT = "127.0.0.1", 8080
LOOK_EVERY = 2.0  # seconds between looks at the directories
PATIENCE = 4  # times as long as a page takes to make is waited before the next: the runs need the processor
AT_LEAST_EVERY = 30.0  # seconds: time left and ages change without new lines
WATCHED = {
    records.CONFIG,
    records.METRICS,
    records.TIMING,
    records.EVALUATIONS,
    records.OUTPUT,
    records.DONE,
    records.SUITE,
}
LARGE = {records.CHECKPOINTS, records.REPLAY, records.TENSORBOARD}  # directories that hold none of them


class Watcher:
    """Keeps the newest state of the page."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = checked(directories)
        self.seen: dict[Path, tuple[int, int]] = {}
        self.version, self.html, self.state = "", "", b"{}"
        self.made = 0.0
        self.lock = threading.Lock()
        self.refresh()

    def refresh(self) -> None:
        """Make the page again if a file has changed, or after a while."""
        now = signature(self.directories)
        if now == self.seen and time.monotonic() - self.made < AT_LEAST_EVERY:
            return
        report = self._document()
        found = parts(report)
        version = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]
        html = page(report, script=_script(version))
        with self.lock:
            self.seen, self.made, self.version, self.html = now, time.monotonic(), version, html
            self.state = json.dumps({"version": version, **found}).encode()

    def _document(self) -> Document:
        """Return the report, or what keeps it from being made: runs may disappear while they are read."""
        try:
            study = read_study([place for place in self.directories if place.is_dir()])
            report = document(study)
            now = Section("Progress", progress(study)) if study.runs else None
        except Exception as error:  # whatever it is, the next look may succeed
            return Document("Report of runs", f"The runs cannot be read at the moment: {error}", [])
        sections = [*([now] if now else []), *report.sections]
        return Document(report.title, report.lead, sections, report.series)

    def snapshot(self) -> tuple[str, str, bytes]:
        """Return version, page and state."""
        with self.lock:
            return self.version, self.html, self.state


def signature(directories: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Return size and time of every file that the page depends on."""
    found = {}
    for directory in directories:
        for place, inside, files in os.walk(directory):
            inside[:] = [name for name in inside if name not in LARGE]
            for path in (Path(place, name) for name in WATCHED.intersection(files)):
                try:
                    stat = path.stat()
                except OSError:
                    continue  # it has just gone
                found[path] = (stat.st_size, stat.st_mtime_ns)
    return found


def handler(watcher: Watcher, port: Callable[[], int]) -> type[BaseHTTPRequestHandler]:
    """Return what answers requests."""

    class Handler(BaseHTTPRequestHandler):
        """Serves the page and its state."""

        def do_GET(self) -> None:
            """Answer."""
            # A page elsewhere may have its name point here: its requests carry that name.
            if self.headers.get("Host") not in {f"{name}:{port()}" for name in (HOST, "localhost")}:
                self._send(HTTPStatus.FORBIDDEN, "text/plain", b"only for this machine\n")
                return
            version, html, state = watcher.snapshot()
            path, _, known = self.path.partition("?version=")
            if path == "/":
                self._send(HTTPStatus.OK, "text/html; charset=utf-8", html.encode())
            elif path == "/state":
                unchanged = json.dumps({"version": version}).encode()
                self._send(HTTPStatus.OK, "application/json", unchanged if known == version else state)
            else:
                self._send(HTTPStatus.NOT_FOUND, "text/plain", b"nothing here\n")

        def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *values: Any) -> None:  # noqa: ANN401
            """Print nothing."""

    return Handler


def serve(directories: Sequence[Path], port: int, tell: Callable[[str], None]) -> None:
    """Serve the page until interrupted."""
    watcher = Watcher(directories)
    server = _server(watcher, port)
    stop = threading.Event()
    thread = threading.Thread(target=_look, args=(watcher, stop), daemon=True)
    thread.start()
    tell(f"http://{HOST}:{server.server_port}/ (for this machine only; Ctrl-C ends)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        stop.set()
        server.server_close()


def _server(watcher: Watcher, port: int) -> ThreadingHTTPServer:
    found: list[ThreadingHTTPServer] = []
    answers = handler(watcher, lambda: found[0].server_port)
    try:
        found.append(ThreadingHTTPServer((HOST, port), answers))
    except OSError as error:
        raise UserError(
            f"port {port} cannot be used: {error.strerror}; give another --port, or 0 for any"
        ) from None
    found[0].daemon_threads = True
    return found[0]


def _look(watcher: Watcher, stop: threading.Event) -> None:
    pause = LOOK_EVERY
    while not stop.wait(pause):
        started = time.monotonic()
        watcher.refresh()
        pause = max(LOOK_EVERY, PATIENCE * (time.monotonic() - started))


def _script(version: str) -> str:
    text = resources.files(__package__).joinpath("watch.js").read_text(encoding="utf-8")
    return text.replace("$VERSION", version)
