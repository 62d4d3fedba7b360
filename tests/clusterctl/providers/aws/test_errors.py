"""What AWS refuses, in our terms."""

from __future__ import annotations

import pytest

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
from clusterctl.providers.aws.errors import encoded_authorization, refusal


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("InsufficientInstanceCapacity", 500, Capacity),
        ("Server.InsufficientInstanceCapacity", 500, Capacity),
        ("SpotMaxPriceTooLow", 400, Capacity),
        ("InsufficientFreeAddressesInSubnet", 400, Capacity),
        ("VcpuLimitExceeded", 400, Quota),
        ("InstanceLimitExceeded", 400, Quota),
        ("MaxSpotInstanceCountExceeded", 400, Quota),
        ("RequestLimitExceeded", 503, Throttled),
        ("Client.RequestLimitExceeded", 503, Throttled),
        ("ThrottlingException", 400, Throttled),
        ("UnauthorizedOperation", 403, Auth),
        ("AuthFailure", 401, Auth),
        ("ExpiredToken", 400, Auth),
        ("OptInRequired", 401, Auth),
        ("InvalidInstanceID.NotFound", 400, NotFound),
        ("NoSuchEntity", 404, NotFound),
        ("InvalidParameterValue", 400, Config),
        ("InvalidAMIID.Malformed", 400, Config),
        ("InternalError", 500, Transient),
        ("Whatever", 503, Transient),
        ("IncorrectInstanceState", 400, Transient),
        ("DependencyViolation", 400, Transient),
        ("PendingVerification", 400, Transient),
    ],
)
def test_codes_have_their_kind(code: str, status: int, kind: type[ProviderError]) -> None:
    error = refusal("RunInstances", code, "words of AWS", status)
    assert type(error) is kind
    assert "words of AWS" in str(error)
    assert "RunInstances" in str(error)


def test_a_type_that_a_zone_does_not_have_is_a_matter_of_the_zone() -> None:
    words = (
        "Your requested instance type (p5.48xlarge) is not supported in your requested Availability Zone (x)."
    )
    assert type(refusal("RunInstances", "Unsupported", words)) is Capacity
    assert type(refusal("RunInstances", "Unsupported", "That is not supported.")) is Config


def test_a_young_instance_profile_is_worth_waiting_for() -> None:
    words = "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
    assert type(refusal("RunInstances", "InvalidParameterValue", words)) is Transient


def test_what_was_refused_is_readable() -> None:
    words = (
        "You are not authorized to perform this operation. Encoded authorization failure message: Abc-_123"
    )
    assert encoded_authorization(words) == "Abc-_123"
    assert encoded_authorization("You are not authorized.") == ""
    plain = str(refusal("RunInstances", "UnauthorizedOperation", words))
    assert "Abc-_123" not in plain
    assert "allow RunInstances" in plain
    decoded = str(refusal("RunInstances", "UnauthorizedOperation", words, 403, "allow iam:PassRole on arn:x"))
    assert decoded.endswith("allow iam:PassRole on arn:x")
