"""The server by which a cloud tells a machine about itself, as far as notices need it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, urlsplit

_PREEMPTED = "/computeMetadata/v1/instance/preempted"
_ACTION = "/latest/meta-data/spot/instance-action"
_TOKEN = "/latest/api/token"


class MetadataServer:
    """A context manager. Answers as Google's and as Amazon's server do.

    Attributes:
        server: HOST:PORT.
        asked: the paths that were asked for.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._changed = threading.Condition()
        self._is_given = False
        self._is_closed = False
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="metadata")
        self._thread.start()
        self.server = f"127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def give_notice(self) -> None:
        """The machine is taken back soon."""
        with self._changed:
            self._is_given = True
            self._changed.notify_all()

    @contextlib.contextmanager
    def _state(self, query: dict[str, list[str]]) -> Iterator[bool]:
        """Whether notice was given; waits for a change where that is asked for, as long as is asked for."""
        with self._changed:
            if query.get("wait_for_change") == ["true"] and query["last_etag"] == [self._etag()]:
                known = self._etag()
                limit_s = float(query["timeout_sec"][0])
                self._changed.wait_for(lambda: self._is_closed or self._etag() != known, limit_s)
            yield self._is_given

    def _etag(self) -> str:
        return "e2" if self._is_given else "e1"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        bed = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                bed.asked.append(self.path)
                is_right = self.path == _TOKEN and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
                self._say(200 if is_right else 400, "a-token")

            def do_GET(self) -> None:
                target = urlsplit(self.path)
                bed.asked.append(target.path)
                with bed._state(parse_qs(target.query)) as is_given:
                    if target.path == _PREEMPTED:
                        is_right = self.headers["Metadata-Flavor"] == "Google"
                        self._say(200 if is_right else 403, "TRUE" if is_given else "FALSE")
                    elif self.headers["X-aws-ec2-metadata-token"] != "a-token":
                        self._say(401, "Unauthorized")
                    elif target.path == _ACTION and is_given:
                        self._say(200, '{"action": "terminate", "time": "2026-11-26T08:22:00Z"}')
                    else:
                        self._say(404, "Not Found")

            def _say(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("ETag", bed._etag())
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
