from __future__ import annotations

import re
import uuid

from runtime.serve._request_id import new_request_id


def test_request_ids_are_random_uuids() -> None:
    ids = {new_request_id() for _ in range(1000)}
    assert len(ids) == 1000
    for text in ids:
        assert uuid.UUID(text).version == 4
        assert uuid.UUID(text).variant == uuid.RFC_4122
        assert re.fullmatch(r"[0-9a-f-]{36}", text)
