"""The log of a replica: the logger `ray.serve`, with the access log, as text or JSON.

A file of its own below the session's logs, and standard error, which the driver shows. Lines of the access log go to
the file only, many at a time: one line costs a request a few microseconds.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from runtime._system import settings
from runtime.serve import context

NAME = "ray.serve"
MAX_BYTES = 100 << 20
BACKUPS = 5
MOST_LETTERS = 150
"""Of the names of an application and a deployment in the name of a file, which has 255 bytes at most."""

_READY = "serve_ready"  # attribute of a record that is formatted already
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", _READY}


class _TextFormatter(logging.Formatter):
    def __init__(self, component: str, attributes: list[str]) -> None:
        self._component = component
        extra = "".join(f" %({name})s" for name in attributes)
        super().__init__(f"%(levelname)s %(asctime)s {component}%(serve_request)s{extra} -- %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        ready = getattr(record, _READY, None)
        if ready is not None:
            return str(ready)
        request_id = context.current_request().request_id
        record.serve_request = f" {request_id}" if request_id else ""
        return super().format(record)

    def line(self, message: str, when: str, request_id: str, route: str) -> str:
        return f"INFO {when} {self._component} {request_id} -- {message}"


class _JsonFormatter(logging.Formatter):
    def __init__(self, fields: dict[str, Any], attributes: list[str]) -> None:
        super().__init__()
        self._fields = fields
        self._attributes = attributes

    def format(self, record: logging.LogRecord) -> str:
        ready = getattr(record, _READY, None)
        if ready is not None:
            return str(ready)
        entry = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename if hasattr(record, "filename") else record.module,
            "lineno": record.lineno,
            "process": record.process,
        }
        if record.exc_info:
            entry["exc_text"] = self.formatException(record.exc_info)
        entry |= {name: getattr(record, name, None) for name in self._attributes}
        entry |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        entry |= self._fields
        request = context.current_request()
        if request.route:
            entry["route"] = request.route
        if request.request_id:
            entry["request_id"] = request.request_id
        entry["timestamp_ns"] = int(record.created * 1e9)
        return json.dumps(entry, default=str)

    def line(self, message: str, when: str, request_id: str, route: str) -> str:
        entry = {
            "asctime": when, "levelname": "INFO", "message": message, "filename": "log.py", "lineno": 0,
            "process": os.getpid(), **self._fields, "route": route, "request_id": request_id,
            "timestamp_ns": time.time_ns(),
        }  # fmt: skip
        return json.dumps(entry)


class ReplicaLog:
    """Sets the logger up and writes the access log. One per process.

    Args:
        replica: whose log it is.
        folder: of the log files.
        facts: ids for entries in JSON: job_id, worker_id, node_id.
    """

    def __init__(self, replica: context.ReplicaID, folder: str, facts: Mapping[str, str]) -> None:
        self._replica = replica
        self._folder = folder
        self._facts = dict(facts)
        self._logger = logging.getLogger(NAME)
        self._handlers: list[logging.Handler] = []
        self._file: logging.Handler | None = None
        self._formatter: _TextFormatter | _JsonFormatter | None = None
        self._lines: deque[str] = deque()
        self._second = (0, "")
        self.has_access_log = False
        self.path = ""
        """Of the log file."""

    def configure(self, config: Mapping[str, Any] | None) -> None:
        """Applies a `LoggingConfig` as a dict; None for the default one."""
        config = config or {}
        self.close()
        deployment = self._replica.deployment_id
        attributes = list(config.get("additional_log_standard_attrs") or ())
        encoding = config.get("encoding") or settings.SERVE_LOG_ENCODING.get()
        name = f"{deployment.app_name}_{deployment.name}"
        if str(getattr(encoding, "value", encoding)) == "JSON":
            fields = {
                **self._facts, "deployment": name, "replica": self._replica.unique_id,
                "component_name": "replica", "application": deployment.app_name,
            }  # fmt: skip
            self._formatter = _JsonFormatter(fields, attributes)
        else:
            self._formatter = _TextFormatter(f"{name} {self._replica.unique_id}", attributes)
        folder = config.get("logs_dir") or self._folder
        os.makedirs(folder, exist_ok=True)
        safe = "".join(
            letter if (letter.isascii() and letter.isalnum()) or letter in "-._" else "_" for letter in name
        )
        self.path = os.path.join(folder, f"replica_{safe[:MOST_LETTERS]}_{self._replica.unique_id}.log")
        self._file = logging.handlers.RotatingFileHandler(
            self.path, maxBytes=MAX_BYTES, backupCount=BACKUPS, delay=True
        )
        self._file.setFormatter(self._formatter)
        self._handlers = [self._file]
        if settings.SERVE_LOG_TO_STDERR.get():
            stderr = logging.StreamHandler(sys.stderr)
            stderr.setFormatter(_TextFormatter(f"{name} {self._replica.unique_id}", attributes))
            self._handlers.append(stderr)
        self._logger.setLevel(config.get("log_level") or "INFO")
        self._logger.propagate = False
        for handler in self._handlers:
            self._logger.addHandler(handler)
        self._logger.addFilter(self._write_first)
        self.has_access_log = bool(config.get("enable_access_log", True))

    def access(
        self, method: str, target: str, status: str, seconds: float, request_id: str, route: str
    ) -> bool:
        """Adds a line to the access log. Returns whether `flush` is to be called soon."""
        if not self.has_access_log or not self._logger.isEnabledFor(logging.INFO):
            return False
        if not target.isprintable():
            target = quote(target)  # a path may have line breaks, and forge lines with them
        message = f"{method} {target} {status} {seconds * 1000:.1f}ms"
        if len(self._logger.handlers) != len(self._handlers) or len(self._logger.filters) != 1:
            self._logger.info(message, extra={"serve_access_log": True})  # a program has handlers of its own
            return False
        assert self._formatter is not None
        now = time.time()
        second = int(now)
        if self._second[0] != second:
            self._second = (second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second)))
        when = f"{self._second[1]},{int((now - second) * 1000):03d}"
        self._lines.append(self._formatter.line(message, when, request_id, route))
        return True

    def flush(self) -> None:
        """Writes the lines of the access log. From any thread."""
        lines = []
        while True:
            try:
                lines.append(self._lines.popleft())
            except IndexError:
                break
        if lines and self._file is not None:
            self._file.handle(logging.makeLogRecord({_READY: "\n".join(lines), "levelno": logging.INFO}))

    def _write_first(self, record: logging.LogRecord) -> bool:
        self.flush()  # keeps the order of lines
        return True

    def close(self) -> None:
        """Writes what waits and closes the file."""
        self.flush()
        self._logger.removeFilter(self._write_first)
        self._logger.propagate = True
        for handler in self._handlers:
            self._logger.removeHandler(handler)
            if handler is self._file:
                handler.close()
        self._handlers = []
        self._file = None
