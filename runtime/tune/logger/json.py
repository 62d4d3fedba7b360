"""Results as lines of JSON."""

from __future__ import annotations

import json
import os
from typing import Any

from runtime import cloudpickle
from runtime.tune._api.callback import LoggerCallback
from runtime.tune.logger.flat import as_json


class JsonLoggerCallback(LoggerCallback):
    """Writes `result.json`, a line for each result, `params.json` and `params.pkl`."""

    def log_trial_start(self, trial: Any) -> None:
        folder = trial.local_path
        with open(os.path.join(folder, "params.json"), "w", encoding="utf-8") as file:
            file.write(json.dumps(json.loads(as_json(trial.config)), indent=2, sort_keys=True))
        with open(os.path.join(folder, "params.pkl"), "wb") as binary:
            cloudpickle.dump(trial.config, binary)

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        with open(os.path.join(trial.local_path, "result.json"), "a", encoding="utf-8") as file:
            file.write(as_json(result) + "\n")
