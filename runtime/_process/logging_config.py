"""How the driver and the workers of a job log: `init(logging_config=LoggingConfig(...))`.

Every record carries who wrote it: `job_id`, `worker_id` and `node_id`; in workers also `actor_id`, `actor_name`,
`task_id`, `task_name` and `task_func_name`, as far as there is one.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from runtime._owner import context

from . import core_worker

TEXT_FORMAT = "%(asctime)s\t%(levelname)s %(filename)s:%(lineno)s -- %(message)s"
_STANDARD = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "asctime",
    "message",
    "taskName",
}


@dataclasses.dataclass
class LoggingConfig:
    """The logging of a job.

    Args:
        encoding: "TEXT", or "JSON": one object per line.
        log_level: of the root logger, by name.
        additional_log_standard_attrs: attributes of `logging.LogRecord` to add, such as "name" or "process".

    Raises:
        ValueError: an encoding or attribute that does not exist.
    """

    encoding: str = "TEXT"
    log_level: str = "INFO"
    additional_log_standard_attrs: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if self.encoding not in _FORMATTERS:
            raise ValueError(
                f"Invalid encoding type: {self.encoding}. Valid encoding types are: {list(_FORMATTERS)}"
            )
        for name in self.additional_log_standard_attrs:
            if name not in _STANDARD:
                raise ValueError(
                    f"Unknown python logging standard attribute: {name}. They are: {sorted(_STANDARD)}"
                )

    def to_dict(self) -> dict[str, Any]:
        """The fields, as JSON can hold them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> LoggingConfig:
        """Back from `to_dict`; what is unknown is left out."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in fields.items() if name in known})

    def _apply(self) -> None:
        """Sets up the loggers of this process."""
        handler = logging.StreamHandler()
        handler.setLevel(self.log_level)
        handler.setFormatter(_FORMATTERS[self.encoding](self.additional_log_standard_attrs))
        handler.addFilter(add_context)
        for name in (None, "runtime"):
            logger = logging.getLogger(name)
            logger.setLevel(self.log_level)
            for old in logger.handlers[:]:
                if name is not None or isinstance(old.formatter, _Formatter):
                    logger.removeHandler(old)
            logger.addHandler(handler)
        logging.getLogger("runtime").propagate = False


def add_context(record: logging.LogRecord) -> bool:
    """A logging filter that adds to a record who wrote it. It lets every record pass."""
    record.timestamp_ns = int(record.created * 1e9)
    core = core_worker.current_or_none()
    if core is None:
        return True
    record.job_id = core.job_id.hex()
    record.worker_id = core.address.worker_id.hex()
    record.node_id = core.address.node_id.hex()
    running = context.execution.get()
    if running is None:
        return True
    setup = core.executor.setup if core.executor is not None else None
    shown = {
        "actor_id": running.actor_id.hex(),
        "actor_name": setup.name if setup is not None else "",
        "task_id": running.task_id.hex(),
        "task_name": running.name,
        "task_func_name": running.function_name,
    }
    record.__dict__.update((name, value) for name, value in shown.items() if value)
    return True


class _Formatter(logging.Formatter):
    def __init__(self, standard: list[str]) -> None:
        super().__init__(TEXT_FORMAT)
        self._standard = standard

    def extras(self, record: logging.LogRecord) -> dict[str, Any]:
        """The additional attributes, the context, and what the program itself gave by `extra=`."""
        found = {name: getattr(record, name, None) for name in self._standard}
        found.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        return found


class _Text(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        shown = " ".join(f"{name}={value}" for name, value in self.extras(record).items())
        return f"{super().format(record)} {shown}"


class _Json(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename if hasattr(record, "filename") else record.module,
            "lineno": record.lineno,
            "process": record.process,
        }
        if record.exc_info:
            fields["exc_text"] = self.formatException(record.exc_info)
        return json.dumps(fields | self.extras(record), default=str)


_FORMATTERS: dict[str, Callable[[list[str]], _Formatter]] = {"TEXT": _Text, "JSON": _Json}
