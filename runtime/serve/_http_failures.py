"""What an HTTP client is told of an error that ended its request before the response began. Pure."""

from __future__ import annotations

import math

from runtime.serve.exceptions import BackPressureError, DeploymentUnavailableError

SERVER_ERROR = "Internal Server Error"


def told_of(error: BaseException) -> tuple[int, str, list[tuple[bytes, bytes]]]:
    """Status, text and headers.

    Back pressure has the status that it names, a deployment that can serve nobody is 503, all else, a replica that died
    and an error of the user's code too, is 500.
    """
    if isinstance(error, BackPressureError):
        retry_s = error.retry_after_s
        headers = [] if retry_s is None else [(b"retry-after", b"%d" % max(0, math.ceil(retry_s)))]
        return error.status_code, error.message, headers
    if isinstance(error, DeploymentUnavailableError):
        return 503, error.message, []
    return 500, SERVER_ERROR, []
