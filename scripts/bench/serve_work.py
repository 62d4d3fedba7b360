"""What the applications of serve.py answer, whoever serves them, and which requests are sent."""

from __future__ import annotations

import hashlib
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

from serve_client import request

CHUNKS = 200
PAUSE_S, STEP_PAUSE_S = 0.02, 0.1
"""What the requests of "who" and of "steps" take."""
BATCH, BATCH_WAIT_S = 32, 0.01
BIG_BYTES = 10 * 2**20
STREAM_TEXT = "".join(f"token {number}\n" for number in range(CHUNKS))
NOOP = request("GET", "/")
DOUBLE = request("GET", "/?x=4")
ITEM = request("POST", "/items/7", b'{"name": "seven", "values": [1.5, 2, 3.5]}')
ITEM_ANSWER = b'{"id":7,"name":"seven","sum":7.0}'


def body_facts(body: bytes) -> str:
    """What the answer to a large body is."""
    return f"{len(body)} {zlib.crc32(body[::4099])}"


def digest(body: bytes) -> str:
    """The answer to a body that is looked at as a whole."""
    return hashlib.sha256(body).hexdigest()


def big() -> bytes:
    """A large answer."""
    return os.urandom(4096) * (BIG_BYTES // 4096)


def digits(path: Path) -> tuple[list[list[int]], list[str], Any]:
    """Rows, their digits as the model alone predicts them, and the model, which is also left in a file."""
    from sklearn.datasets import load_digits
    from sklearn.ensemble import RandomForestClassifier

    images, labels = load_digits(return_X_y=True)
    model = RandomForestClassifier(100, random_state=0, n_jobs=1).fit(images[:1000], labels[:1000])
    path.write_bytes(pickle.dumps(model))
    rows = [[int(value) for value in row] for row in images[1000:1512]]
    return rows, [str(label) for label in model.predict(images[1000:1512])], model
