"""What the Compute API answers, as errors of the provider protocol. Pure.

A call can be refused at once (an HTTP status and a reason), or be accepted and fail later (the operation's error code).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoscaler.provider import (
    Auth,
    Capacity,
    Config,
    NotFound,
    ProviderError,
    Quota,
    Throttled,
    Transient,
)

THROTTLED_S = 20.0
_HICCUP_S = 2.0
_BUSY_S = 5.0


class AlreadyThere(Config):
    """Something of that name exists."""


_RATE = ("rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED")
_BUSY = ("resourceNotReady", "resourceInUseByAnotherResource", "conditionNotMet")
_CAPACITY = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
    "RESOURCE_POOL_EXHAUSTED",
    "STOCKOUT",
    "IP_SPACE_EXHAUSTED",
    "IP_SPACE_EXHAUSTED_WITH_DETAILS",
)
_QUOTA = ("QUOTA_EXCEEDED", "LIMIT_EXCEEDED")
_LATER = (
    "INTERNAL_ERROR",
    "RESOURCE_NOT_READY",
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
    "SERVICE_UNAVAILABLE",
    "TIMEOUT",
)
_FORBIDDEN = ("PERMISSIONS_ERROR", "PERMISSION_DENIED", "FORBIDDEN", "SERVICE_ACCOUNT_ACCESS_DENIED")


def of_answer(
    doing: str, status: int, reasons: tuple[str, ...], message: str, retry_after_s: float = 0.0
) -> ProviderError:
    """The error of a call that was refused.

    Args:
        doing: what was tried, to begin the sentence with.
        status: HTTP's.
        reasons: of the answer's details.
    """
    text = f"{doing}: {message}"
    if status == 429 or any(reason in _RATE for reason in reasons):
        return Throttled(text, retry_after_s or THROTTLED_S)
    if status in (401, 403):
        return _denied(text, message, reasons)
    if status == 404:
        return NotFound(text)
    if status == 409 and "alreadyExists" in reasons:
        return AlreadyThere(text)
    if status in (409, 412) or any(reason in _BUSY for reason in reasons):
        return Transient(text, retry_after_s or _BUSY_S)
    if status >= 500 or status == 408:
        return Transient(text, retry_after_s or _HICCUP_S)
    return Config(text)


def _denied(text: str, message: str, reasons: tuple[str, ...]) -> ProviderError:
    if "quotaExceeded" in reasons or "QUOTA_EXCEEDED" in reasons:
        return Quota(f"{text}. Ask for more under IAM & Admin > Quotas of the project")
    if "accessNotConfigured" in reasons or "has not been used in project" in message:
        return Auth(f"{text}. Run `gcloud services enable compute.googleapis.com`")
    return Auth(
        f"{text}. The credentials need the role Compute Admin (roles/compute.admin), and Service Account User where "
        "machines have a service account"
    )


def of_operation(doing: str, operation: Mapping[str, Any]) -> ProviderError | None:
    """The error of an operation that has ended; None when it succeeded."""
    found = operation.get("error", {}).get("errors", ())
    if not found:
        return None
    codes = {str(error.get("code", "")) for error in found}
    text = f"{doing}: " + "; ".join(
        f"{error.get('code')}: {error.get('message', '')}".rstrip(": ") for error in found
    )
    if codes & set(_CAPACITY):
        return Capacity(text)
    if codes & set(_QUOTA):
        return Quota(text)
    if any(code in _RATE or code == "RESOURCE_OPERATION_RATE_EXCEEDED" for code in codes):
        return Throttled(text, THROTTLED_S)
    if codes & set(_FORBIDDEN):
        return Auth(text)
    if codes & set(_LATER) or int(operation.get("httpErrorStatusCode", 400)) >= 500:
        return Transient(text, _BUSY_S)
    return Config(text)
