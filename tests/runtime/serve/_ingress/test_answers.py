from __future__ import annotations

import pytest

from runtime.serve import exceptions
from runtime.serve._ingress import answers
from runtime.serve._ingress.options import grpc_options, http_options, limit_s


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (exceptions.BackPressureError(1, 2), 503),
        (exceptions.BackPressureError(1, 2, 429), 429),
        (exceptions.DeploymentUnavailableError("d"), 503),
        (exceptions.ReplicaUnavailableError("r"), 500),
        (ConnectionError("lost"), 500),
        (TypeError("a bug"), 500),
    ],
)
def test_the_status_of_an_error(error: Exception, status: int) -> None:
    answer = answers.for_error(error)
    assert answer.status == status
    assert answer.body == (b"Internal Server Error" if status == 500 else str(error).encode())
    assert (b"content-length", b"%d" % len(answer.body)) in answer.headers


@pytest.mark.parametrize(("delay_s", "sent"), [(0, b"0"), (0.1, b"1"), (2, b"2"), (-1, b"0"), (None, None)])
def test_retry_after(delay_s: float | None, sent: bytes | None) -> None:
    answer = answers.for_error(exceptions.BackPressureError(1, 2, retry_after_s=delay_s))
    assert dict(answer.headers).get(b"retry-after") == sent


def test_options() -> None:
    assert http_options({}).port == 8000
    assert http_options({"port": 1, "location": "EveryNode"}).port == 1  # the controller's
    assert grpc_options({}).grpc_servicer_functions == []
    with pytest.raises(ValueError, match="http_options: Expected `str"):
        http_options({"root_path": 1})
    with pytest.raises(ValueError, match="both ssl_keyfile and ssl_certfile"):
        http_options({"ssl_keyfile": "key"})
    with pytest.raises(ValueError, match="grpc_options: Expected `array`"):
        grpc_options({"grpc_servicer_functions": "f"})


@pytest.mark.parametrize(("given", "limit"), [(None, None), (0, None), (-1, None), (0.5, 0.5)])
def test_limits(given: float | None, limit: float | None) -> None:
    assert limit_s(given) == limit
