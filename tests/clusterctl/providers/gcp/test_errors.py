"""What the Compute API answers, as errors of ours."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.provider import Auth, Capacity, Config, NotFound, Quota, Throttled, Transient
from clusterctl.providers.gcp import errors


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "invalid", Config),
        (400, "resourceNotReady", Transient),
        (400, "resourceInUseByAnotherResource", Transient),
        (401, "authError", Auth),
        (403, "forbidden", Auth),
        (403, "accessNotConfigured", Auth),
        (403, "quotaExceeded", Quota),
        (403, "rateLimitExceeded", Throttled),
        (404, "notFound", NotFound),
        (409, "alreadyExists", errors.AlreadyThere),
        (409, "resourceInUse", Transient),
        (412, "conditionNotMet", Transient),
        (429, "whatever", Throttled),
        (500, "backendError", Transient),
        (503, "", Transient),
    ],
)
def test_an_answer(status: int, reason: str, kind: type[Exception]) -> None:
    assert type(errors.of_answer("creating x", status, (reason,), "no")) is kind


def test_an_api_that_is_off_says_how_to_turn_it_on() -> None:
    message = "Compute Engine API has not been used in project 1 before or it is disabled"
    assert "gcloud services enable" in str(errors.of_answer("region r", 403, (), message))


def test_the_platforms_own_pause_is_kept() -> None:
    error = errors.of_answer("x", 429, (), "slow down", 7.0)
    assert isinstance(error, Throttled)
    assert error.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", Capacity),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", Capacity),
        ("IP_SPACE_EXHAUSTED", Capacity),
        ("QUOTA_EXCEEDED", Quota),
        ("RATE_LIMIT_EXCEEDED", Throttled),
        ("PERMISSIONS_ERROR", Auth),
        ("INTERNAL_ERROR", Transient),
        ("RESOURCE_NOT_FOUND", Config),
        ("INVALID_USAGE", Config),
    ],
)
def test_an_operation_that_failed(code: str, kind: type[Exception]) -> None:
    operation: dict[str, Any] = {"error": {"errors": [{"code": code, "message": "so"}]}}
    error = errors.of_operation("creating x", operation)
    assert type(error) is kind
    assert code in str(error)


def test_an_unknown_code_is_judged_by_its_status() -> None:
    operation = {"error": {"errors": [{"code": "NEW"}]}, "httpErrorStatusCode": 503}
    assert isinstance(errors.of_operation("x", operation), Transient)


def test_an_operation_that_succeeded() -> None:
    assert errors.of_operation("x", {"status": "DONE"}) is None
