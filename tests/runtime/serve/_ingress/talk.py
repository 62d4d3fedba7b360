"""A gRPC service as `protoc` would generate it, with messages that protobuf ships."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import StringValue

FUNCTION = f"{__name__}.add_TalkServicer_to_server"
KINDS = {
    "Say": grpc.unary_unary_rpc_method_handler,
    "Count": grpc.unary_stream_rpc_method_handler,
    "Join": grpc.stream_unary_rpc_method_handler,
    "Chat": grpc.stream_stream_rpc_method_handler,
}


def add_TalkServicer_to_server(servicer: Any, server: Any) -> None:
    handlers = {
        name: kind(
            getattr(servicer, name),
            request_deserializer=StringValue.FromString,
            response_serializer=StringValue.SerializeToString,
        )
        for name, kind in KINDS.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("talk.Talk", handlers),))
    server.add_registered_method_handlers("talk.Talk", handlers)


class TalkStub:
    def __init__(self, channel: Any) -> None:
        kinds = {
            "Say": channel.unary_unary,
            "Count": channel.unary_stream,
            "Join": channel.stream_unary,
            "Chat": channel.stream_stream,
        }
        for name, kind in kinds.items():
            method = kind(f"/talk.Talk/{name}", StringValue.SerializeToString, StringValue.FromString)
            setattr(self, name, method)


def say(text: str) -> StringValue:
    return StringValue(value=text)
