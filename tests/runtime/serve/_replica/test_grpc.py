"""gRPC requests, as the ingress sends them to a replica."""

import asyncio
import pickle

import pytest

from runtime.serve import context
from runtime.serve._wire import values
from runtime.serve._wire.messages import Call, Chunk, End, Failure, Item, Meta, Result, Window
from runtime.serve.grpc_util import RayServegRPCContext, dump_context, load_context
from tests.runtime.serve._replica.stand_in import serving


class Message:
    """As much of a protobuf message as is needed."""

    def __init__(self, text):
        self.text = text

    def SerializeToString(self):
        return self.text.encode()


class ServicerContext:
    def auth_context(self):
        return {}

    def invocation_metadata(self):
        return [("key", "value")]

    def trailing_metadata(self):
        return []

    def code(self):
        return None

    details = peer_identities = peer_identity_key = code

    def peer(self):
        return "ipv4:1.2.3.4:5"


class Deployment:
    async def plain(self, message):
        return Message(message.text + "!")

    def sync(self, message, grpc_context):
        grpc_context.set_details(
            f"{grpc_context.peer()} {context.current_request().grpc_context is grpc_context}"
        )
        return Message("ok")

    async def stream(self, message):
        for letter in message.text:
            yield Message(letter)

    async def gather(self, messages):
        return Message("+".join([message.text async for message in messages]))

    async def fail(self, message, grpc_context):
        grpc_context.set_details("why")
        raise ValueError("broken")

    async def wrong(self, message):
        return "text"


async def begin(caller, method, text="", stream=False, inputs=False):
    await caller.slot()
    number = caller.number()
    body = b"" if inputs else pickle.dumps(((Message(text),), {}))
    users = dump_context(RayServegRPCContext(ServicerContext()))
    caller.connection.send(Call(number, method, Meta("id", "app"), body, stream, users, inputs))
    return number


def test_one_message_each_way():
    async def main():
        async with serving(Deployment) as (_, caller):
            result = await caller.next(await begin(caller, "plain", "hello"))
            assert isinstance(result, Result)
            assert result.body == b"hello!"
            result = await caller.next(await begin(caller, "sync", "hello"))
            assert load_context(result.context).details() == "ipv4:1.2.3.4:5 True"

    asyncio.run(main())


def test_streams_both_ways():
    async def main():
        async with serving(Deployment) as (_, caller):
            number = await begin(caller, "stream", "abc", stream=True)
            answers = [await caller.next(number) for _ in range(4)]
            assert [answer.body for answer in answers if isinstance(answer, Item)] == [b"a", b"b", b"c"]
            assert isinstance(answers[-1], End)
            number = await begin(caller, "gather", inputs=True)
            for text in ("x", "y"):
                caller.connection.send(Chunk(number, pickle.dumps(Message(text)), True))
            caller.connection.send(Chunk(number, b"", False))
            answer = await caller.next(number)
            while isinstance(answer, Window):
                answer = await caller.next(number)
            assert answer.body == b"x+y"

    asyncio.run(main())


def test_errors_bring_the_context_back():
    async def main():
        async with serving(Deployment) as (_, caller):
            failure = await caller.next(await begin(caller, "fail"))
            assert isinstance(failure, Failure)
            assert load_context(failure.context).details() == "why"
            with pytest.raises(ValueError, match="broken"):
                raise values.load_failure(failure.body)
            failure = await caller.next(await begin(caller, "wrong"))
            assert "protobuf" in str(values.load_failure(failure.body))

    asyncio.run(main())
