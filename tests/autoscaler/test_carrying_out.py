from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

from autoscaler.calls import BlockingCalls
from autoscaler.carrying_out import CarryingOut
from autoscaler.effects import (
    Create,
    Created,
    Drain,
    Drained,
    Effect,
    Outcome,
    Resume,
    Resumed,
    SetUp,
    SetUpEnded,
    Terminate,
    Terminated,
)
from autoscaler.provider import (
    Capabilities,
    LaunchRequest,
    LaunchResult,
    Machine,
    MachineTags,
    NodeType,
    Offer,
    ProviderError,
    Quota,
    SetupError,
    Transient,
)
from autoscaler.simulation import SimulatedProvider
from runtime._clients.control import ControlClient
from runtime._transport.channel import CallError, Channel, Handler, LoopbackChannel
from runtime._wire.messages.base import ErrorKind, Message, Ok
from runtime._wire.messages.control import DrainNode, ResumeNode
from tests.autoscaler.build import SMALL, config, machine

REQUEST = LaunchRequest("token", SMALL, 1, Offer(), {MachineTags.CLUSTER_ID: "cluster"}, ("n",))


class Platform(SimulatedProvider):
    """Refuses with what the test set."""

    refusal: Exception | None = None
    joins = False

    def __init__(self) -> None:
        super().__init__("cluster")
        self.requests: list[LaunchRequest] = []

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, machines_join=self.joins)

    def create(self, request: LaunchRequest) -> LaunchResult:
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        return super().create(request)

    def terminate(self, ids: object) -> dict[str, ProviderError | None]:
        if self.refusal is not None:
            raise self.refusal
        return {"m-1": None}


class Setup:
    """Fails with what the test set, or waits."""

    failure: Exception | None = None

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.may_end.set()

    def run(self, machine: Machine, node_type: NodeType, instance_id: str, log_path: str) -> None:
        self.may_end.wait(60)
        if self.failure is not None:
            raise self.failure

    def join_tokens(self, request: LaunchRequest) -> tuple[str, ...]:
        return tuple(f"token of {name}" for name in request.instance_ids)


class Store:
    """A control store that refuses with what the test set."""

    refusal: CallError | None = None

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def connect(self, handler: Handler) -> Channel:
        ours, _ = LoopbackChannel.pair(handler, self._handle)
        return ours

    def _handle(self, _: Channel, message: Message) -> Message:
        self.messages.append(message)
        if self.refusal is not None:
            raise self.refusal
        return Ok()


class World:
    def __init__(self) -> None:
        self.platform, self.setup, self.store = Platform(), Setup(), Store()
        self.settings = config(SMALL, provider_timeout_s=60.0)

    def outcome(self, effect: Effect) -> Outcome:
        """What came of the effect."""

        async def main() -> Outcome:
            control = ControlClient(self.store.connect)
            await control.start()
            outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
            carrying_out = CarryingOut(
                self.settings, self.platform, self.setup, control, BlockingCalls(), outcomes.put_nowait
            )
            try:
                carrying_out.start(effect)
                outcome = await asyncio.wait_for(outcomes.get(), 60.0)
                assert outcomes.empty()
                return outcome
            finally:
                self.setup.may_end.set()
                await control.close()

        return asyncio.run(main())


def test_a_create_answers_with_machines_or_with_the_error() -> None:
    world = World()
    made = world.outcome(Create(REQUEST))
    assert isinstance(made, Created)
    assert [one.instance_id for one in made.result.machines] == ["n"]
    world.platform.refusal = Quota("no more")
    failed = world.outcome(Create(REQUEST))
    assert failed == Created("token", error=world.platform.refusal)
    world.platform.refusal = KeyError("a bug")
    surprised = world.outcome(Create(REQUEST))
    assert isinstance(surprised, Created)
    assert isinstance(surprised.error, Transient)


def test_machines_that_join_by_themselves_get_their_tokens() -> None:
    world = World()
    world.platform.joins = True
    world.outcome(Create(REQUEST))
    assert [request.join_tokens for request in world.platform.requests] == [("token of n",)]


def test_a_terminate_answers_for_every_machine() -> None:
    world = World()
    ends = Terminate(("m-1", "m-2"))
    assert world.outcome(ends) == Terminated({"m-1": None, "m-2": None})
    error = Transient("it is down")
    world.platform.refusal = error
    assert world.outcome(ends) == Terminated({"m-1": error, "m-2": error})


def test_a_setup_ends_well_with_its_step_or_by_its_deadline() -> None:
    world = World()
    effect = SetUp("n", machine("n"), SMALL, "/logs/n")
    assert world.outcome(effect) == SetUpEnded("n")
    error = SetupError("pip install", "exit status 1")
    world.setup.failure = error
    assert world.outcome(effect) == SetUpEnded("n", error)
    world.settings = replace(world.settings, deadlines=replace(world.settings.deadlines, setting_up_s=0.05))
    world.setup.may_end.clear()
    late = world.outcome(effect)
    assert isinstance(late, SetUpEnded)
    assert late.error is not None
    assert late.error.step == "reach the machine"


def test_a_drain_of_a_node_that_is_gone_is_accepted() -> None:
    world = World()
    effect = Drain("n", b"node", "idle", True)
    assert world.outcome(effect) == Drained("n")
    assert world.store.messages == [DrainNode(b"node", "idle", True)]
    world.store.refusal = CallError(ErrorKind.NOT_FOUND, "no such node")
    assert world.outcome(effect) == Drained("n")
    world.store.refusal = CallError(ErrorKind.INVALID, "it is busy")
    refused = world.outcome(effect)
    assert isinstance(refused, Drained)
    assert "it is busy" in refused.refused


def test_a_call_back_says_why_the_node_was_not_told() -> None:
    world = World()
    effect = Resume("n", b"node", "work waits")
    assert world.outcome(effect) == Resumed("n")
    assert world.store.messages == [ResumeNode(b"node", "work waits")]
    world.store.refusal = CallError(ErrorKind.INVALID, "no")
    failed = world.outcome(effect)
    assert isinstance(failed, Resumed)
    assert "no" in failed.failure
