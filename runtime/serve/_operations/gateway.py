"""The process through which the head answers requests of the REST API: a program of the cluster.

`python -m runtime.serve._operations.gateway` reads requests from standard input and writes answers to standard output,
one JSON object a line, in any order:

    {"id": 1, "method": "GET", "path": "/api/serve/applications/", "query": {}, "body": ""}
    {"id": 1, "status": 200, "content_type": "application/json", "text": "{...}"}

It ends when its input does. CLUSTERCTL_ADDRESS says which cluster it is for.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO

import runtime
from runtime.serve._core.published import NAMESPACE
from runtime.serve._operations import rest

THREADS = 8


def main() -> None:
    """See the module."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything prints must not be among the answers
    runtime.init(address="auto", namespace=NAMESPACE, log_to_driver=False)
    lock = threading.Lock()
    with ThreadPoolExecutor(THREADS, "rest") as pool:
        for line in sys.stdin:
            pool.submit(_answer, json.loads(line), output, lock)
    runtime.shutdown()


def _answer(request: dict[str, Any], output: TextIO, lock: threading.Lock) -> None:
    found = rest.answer(request["method"], request["path"], request["query"], request["body"].encode())
    try:
        text = found.text
    except (TypeError, ValueError) as error:  # else the head would wait for this answer until its timeout
        found = rest.Answer(500, f"The answer has no form in JSON: {error}")
        text = found.text
    line = json.dumps(
        {"id": request["id"], "status": found.status, "content_type": found.content_type, "text": text}
    )
    with lock:
        output.write(line + "\n")
        output.flush()


if __name__ == "__main__":
    main()
