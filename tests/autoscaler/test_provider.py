from __future__ import annotations

import pickle

import pytest

from autoscaler import provider
from autoscaler.provider import LaunchRequest, Machine, MachineState, MachineTags, NodeType, Offer


@pytest.mark.parametrize(
    "error",
    [
        provider.Capacity("none left"),
        provider.Quota("limit of 5 reached"),
        provider.Auth("expired"),
        provider.Config("no such image"),
        provider.NotFound("no m-1"),
        provider.Transient("throttled", 7.5),
        provider.SetupError("pip install", "exit status 1"),
    ],
)
def test_errors_survive_pickling(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_every_provider_error_is_one() -> None:
    for kind in (
        provider.Capacity,
        provider.Quota,
        provider.Auth,
        provider.Config,
        provider.NotFound,
        provider.Transient,
    ):
        assert issubclass(kind, provider.ProviderError)


def test_shell_errors_are_no_provider_errors() -> None:
    for kind in (provider.ShellRefused, provider.ShellTimedOut, provider.ShellAuthFailed):
        assert issubclass(kind, provider.ShellError)
        assert not issubclass(kind, provider.ProviderError)


@pytest.mark.parametrize(("count", "ids"), [(1, ()), (2, ("a",)), (0, ()), (1, ("a", "b"))])
def test_a_request_needs_a_name_per_machine(count: int, ids: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="instance ids"):
        LaunchRequest("t", NodeType("small"), count, Offer(), {}, ids)


def test_tags_of_a_machine() -> None:
    request = LaunchRequest("t", NodeType("small"), 2, Offer(), {MachineTags.CLUSTER_ID: "c"}, ("a", "b"))
    assert request.tags_of(1) == {
        MachineTags.CLUSTER_ID: "c",
        MachineTags.INSTANCE_ID: "b",
        MachineTags.NODE_TYPE: "small",
        MachineTags.TOKEN: "t",
    }


def test_a_machine_knows_its_name_and_role() -> None:
    plain = Machine("m", MachineState.RUNNING, "small", {})
    assert plain.instance_id == ""
    assert not plain.is_head
    head = Machine(
        "m",
        MachineState.RUNNING,
        "head",
        {MachineTags.ROLE: MachineTags.HEAD, MachineTags.INSTANCE_ID: "head"},
    )
    assert head.is_head
    assert head.instance_id == "head"
