"""The runtime environment of this process, and the one that what it starts gets."""

from __future__ import annotations

import json
from typing import Any

from runtime._core.environments import canonical, inherit
from runtime.runtime_env import of_task


class Environment:
    """Of a driver or worker.

    Args:
        job_config: JSON of the job's configuration; "runtime_env" in it is the environment of its workers.
        own: of this worker: JSON; "" when it is that of the job.
    """

    def __init__(self, job_config: str, own: str) -> None:
        config = json.loads(job_config) if job_config else {}
        self._job: dict[str, Any] = config.get("runtime_env") or {}
        self._job_text = canonical(self._job)
        self._own = own
        self.fields: dict[str, Any] = json.loads(own) if own else self._job
        self.text = own or self._job_text or "{}"

    def of_child(self, runtime_env: Any) -> str:
        """The environment, on the wire, of a task or actor that this process starts with the option `runtime_env`."""
        if not runtime_env:
            return self._own
        text = canonical(inherit(self.fields, of_task(runtime_env)))
        return "" if text == self._job_text else text
