"""Calls that get no answer."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from botocore import exceptions as boto

from autoscaler.provider import Config, NotFound, Transient
from clusterctl.providers.aws import clients
from clusterctl.providers.aws.clients import Clients, Place

NEW = "us-easy-1"
"""A region that boto3 does not know."""
UNREACHABLE = boto.EndpointConnectionError(endpoint_url="https://x")
HICCUPS = [
    boto.ReadTimeoutError(endpoint_url="https://x"),
    boto.ConnectTimeoutError(endpoint_url="https://x"),
    boto.ConnectionClosedError(endpoint_url="https://x"),
]
MISSING = boto.ClientError({"Error": {"Code": "InvalidInstanceID.NotFound"}}, "DescribeInstances")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A call in a region, what boto3 raises of it, and which service it is of."""
    monkeypatch.setattr(clients, "_SHARED", {})

    def called(outcome: Exception | None, region: str = NEW, service: str = "ec2") -> None:
        def method() -> dict[str, Any]:
            if outcome:
                raise outcome
            return {}

        one = Clients(Place(region), 0.0)
        host = service if service == "iam" else f"{service}.{region}"
        meta = SimpleNamespace(endpoint_url=f"https://{host}.amazonaws.com")
        one._shared.clients[service] = SimpleNamespace(meta=meta, method=method)
        one.call(service, "method")

    return called


def test_a_region_that_nobody_knows_is_wrong_when_it_is_not_found(call: Callable[..., None]) -> None:
    with pytest.raises(Config, match="no region us-easy-1"):
        call(UNREACHABLE)
    call(None, service="iam")  # which is the same for all regions
    with pytest.raises(Config, match="no region us-easy-1"):
        call(UNREACHABLE)
    with pytest.raises(Transient):
        call(UNREACHABLE, region="us-east-1")


@pytest.mark.parametrize("hiccup", HICCUPS, ids=lambda hiccup: type(hiccup).__name__)
def test_a_hiccup_in_a_region_newer_than_boto3_passes(call: Callable[..., None], hiccup: Exception) -> None:
    with pytest.raises(Transient):
        call(hiccup)


def test_a_region_that_has_answered_is_there(call: Callable[..., None]) -> None:
    call(None)
    with pytest.raises(Transient):
        call(UNREACHABLE)


def test_a_refusal_is_an_answer_too(call: Callable[..., None]) -> None:
    with pytest.raises(NotFound):
        call(MISSING)
    with pytest.raises(Transient):
        call(UNREACHABLE)
