"""What AWS refuses, in the terms of `autoscaler.provider`. Pure: codes and messages in, errors out."""

from __future__ import annotations

import re

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

_THROTTLED = frozenset(
    """RequestLimitExceeded Throttling ThrottlingException ThrottledException TooManyRequestsException
    RequestThrottled RequestThrottledException EC2ThrottledException BandwidthLimitExceeded PriorRequestNotComplete
    SlowDown""".split()
)
_TRANSIENT = frozenset(
    """InternalError InternalFailure InternalServerError ServerInternal ServiceUnavailable ServiceUnavailableException
    Unavailable RequestTimeout RequestTimeoutException ServiceFailure ConcurrentModification
    DependencyViolation DeleteConflict IncorrectInstanceState IncorrectState ResourceInUse""".split()
)
_CAPACITY = frozenset(
    """InsufficientInstanceCapacity InsufficientHostCapacity InsufficientCapacity InsufficientReservedInstanceCapacity
    InsufficientCapacityOnHost InsufficientFreeAddressesInSubnet InsufficientAddressCapacity InsufficientVolumeCapacity
    UnfulfillableCapacity SpotMaxPriceTooLow ReservationCapacityExceeded""".split()
)
_AUTH = frozenset(
    """UnauthorizedOperation AuthFailure AccessDenied AccessDeniedException InvalidClientTokenId ExpiredToken
    ExpiredTokenException RequestExpired SignatureDoesNotMatch UnrecognizedClientException MissingAuthenticationToken
    OptInRequired Blocked IncompleteSignature UnauthorizedException InvalidAccessKeyId NotAuthorized
    AuthFailure.ServiceLinkedRoleCreationNotPermitted""".split()
)
_UNKNOWN_KEYS = frozenset(
    """SignatureDoesNotMatch InvalidClientTokenId UnrecognizedClientException MissingAuthenticationToken
    IncompleteSignature InvalidAccessKeyId""".split()
)
_ENCODED = re.compile(r"\s*Encoded authorization failure message:\s*([A-Za-z0-9_\-]+)\s*")
THROTTLED_S = 5.0
_PENDING_VERIFICATION_S = 60.0
_REGION_PREPARES_S = 30.0


def encoded_authorization(message: str) -> str:
    """The part of a refusal that STS can make readable; "" where there is none."""
    found = _ENCODED.search(message)
    return found[1] if found else ""


def refusal(operation: str, code: str, message: str, status: int = 400, decoded: str = "") -> ProviderError:
    """What an answer of the API means.

    Args:
        operation: as the API calls it, e.g. "RunInstances".
        status: of HTTP.
        decoded: what STS made of the encoded part of the message.
    """
    code = code.removeprefix("Client.").removeprefix("Server.")
    text = _ENCODED.sub(" ", message).strip() or code
    words = f"{operation}: {text} ({code})"
    if code in _THROTTLED:
        return Throttled(f"AWS asks for fewer calls: {words}", THROTTLED_S)
    if code == "PendingVerification":
        return Transient(f"AWS still verifies the account for this region: {words}", _PENDING_VERIFICATION_S)
    if code in _AUTH:
        return Auth(_denied(operation, code, text, decoded))
    if code in _CAPACITY:
        return Capacity(words)
    if code == "Unsupported" and "vailability Zone" in text:  # the zone has no machines of the type at all
        return Capacity(words)
    if code.endswith(("LimitExceeded", "LimitExceededException", "QuotaExceeded")) or code in (
        "MaxSpotInstanceCountExceeded",
        "LimitExceeded",
        "ServiceQuotaExceededException",
    ):
        return Quota(f"{words}: ask AWS for more (Service Quotas), or lower what is wanted")
    if is_unready_profile(code, text):
        return Transient(f"the instance profile is not known everywhere yet: {words}", 2.0)
    if code.endswith(".NotFound") or code in ("NoSuchEntity", "ParameterNotFound", "NoSuchResourceException"):
        return NotFound(words)
    if code in _TRANSIENT or status >= 500:
        return Transient(words, _REGION_PREPARES_S if code == "InsufficientRegionCapacity" else 5.0)
    return Config(words)


def is_unready_profile(code: str, message: str) -> bool:
    """Whether a launch was refused because its instance profile is too young: IAM tells EC2 of it within seconds."""
    return code == "InvalidParameterValue" and "nstance Profile" in message.replace(
        "nstanceProfile", "nstance Profile"
    )


def _denied(operation: str, code: str, text: str, decoded: str) -> str:
    if code in ("ExpiredToken", "ExpiredTokenException", "RequestExpired"):
        return f"{operation}: the credentials have expired, or this machine's clock is wrong: {text} ({code})"
    if code in _UNKNOWN_KEYS or (code == "AuthFailure" and "credentials" in text):
        return (
            f"{operation}: AWS does not accept the credentials: {text} ({code}); they are wrong or of another "
            "partition, the region has to be enabled for the account, or this machine's clock is wrong"
        )
    if code == "OptInRequired":
        return f"{operation}: the account has not subscribed to what is asked for: {text} ({code})"
    allow = decoded or f"allow {operation} to whoever asks"
    return f"{operation}: {text} ({code}); {allow}"
