"""Relays gRPC requests of user-defined services to replicas and back."""

from __future__ import annotations

import asyncio
import importlib
import logging
import pickle
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeAlias

import grpc

from runtime.serve._request_id import new_request_id
from runtime.serve._wire.messages import Call, End, Failure, Item, Meta, Result
from runtime.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError
from runtime.serve.grpc_util import RayServegRPCContext, dump_context, load_context

from . import answers, grpc_api
from .measures import Measures
from .options import limit_s
from .routes import NO_ROUTES, RouteTable
from .upstream import Exchange, QueueOf

logger = logging.getLogger(__name__)

LoadFailure: TypeAlias = Callable[[bytes], BaseException]
"""The exception in the body of a `Failure`."""
MAX_DETAILS = 4096
"""Characters of a status text: gRPC limits the size of what ends a response."""


class Services:
    """Collects the services that generated `add_..._to_server` functions register, as a server would."""

    def __init__(self) -> None:
        self.handlers: list[grpc.GenericRpcHandler] = []
        self.names: list[str] = []

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Any) -> None:
        """Called by generated code."""
        for handler in generic_rpc_handlers:
            self.handlers.append(handler)
            self.names.append(handler.service_name())

    def add_registered_method_handlers(self, service_name: str, method_handlers: Any) -> None:
        """Called by generated code, with what it has given to `add_generic_rpc_handlers` as well."""

    def find(self, details: grpc.HandlerCallDetails) -> Any:
        """The handler of a method, or None."""
        for handler in self.handlers:
            if (found := handler.service(details)) is not None:
                return found
        return None


class _AnyServicer:
    """Has every method: generated code only looks them up, no replica is asked by way of them."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def unreachable(*_: object) -> NoReturn:
            raise NotImplementedError(f"{name} is served by replicas.")

        return unreachable


def load_services(paths: list[str]) -> Services:
    """Of the functions at these import paths (`module.function` or `module:function`).

    Raises:
        ModuleNotFoundError: a module cannot be found.
        ValueError: the path leads to nothing that can be called.
    """
    services = Services()
    for path in paths:
        module, _, name = path.replace(":", ".").rpartition(".")
        try:
            function = getattr(importlib.import_module(module), name, None)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"grpc_servicer_functions: {path} cannot be imported on the node of the ingress: {error}. Ship the "
                "generated module with the working directory or py_modules of the runtime environment.",
                name=error.name,
            ) from error
        if not callable(function):
            raise ValueError(
                f"grpc_servicer_functions: {path} is no function; name the generated add_..._to_server."
            )
        function(_AnyServicer(), services)
    return services


class GrpcIngress(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Handles every method of `services`, and the service of the ingress itself. Belongs to one event loop.

    Attributes:
        ongoing: the requests that are being served.
        draining: `Healthz` answers UNAVAILABLE.
    """

    def __init__(
        self,
        services: Services,
        table: RouteTable,
        queue_of: QueueOf,
        load_failure: LoadFailure,
        request_timeout_s: float | None = None,
        measures: Measures | None = None,
    ) -> None:
        self._measures = measures
        self.ongoing = 0
        self.draining = False
        self._services = services
        self._table = table
        self._queue_of = queue_of
        self._load_failure = load_failure
        self._timeout_s = limit_s(request_timeout_s)
        self._handlers: dict[str, Any] = {
            grpc_api.LIST_APPLICATIONS: grpc.unary_unary_rpc_method_handler(
                self._list_applications,
                grpc_api.ListApplicationsRequest.FromString,
                grpc_api.ListApplicationsResponse.SerializeToString,
            ),
            grpc_api.HEALTHZ: grpc.unary_unary_rpc_method_handler(
                self._healthz,
                grpc_api.HealthzRequest.FromString,
                grpc_api.HealthzResponse.SerializeToString,
            ),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The handler of a method, or None for an unknown one."""
        method = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            users = self._services.find(handler_call_details)
            if users is None:
                return None
            handler = self._handlers[method] = self._relayed(method.rpartition("/")[2], users)
        return handler

    # ------------------------------------------------------------ the service of the ingress

    async def _list_applications(self, _request: Any, context: Any) -> Any:
        self._tell_health(context)
        return grpc_api.ListApplicationsResponse(application_names=sorted(self._table.applications))

    async def _healthz(self, _request: Any, context: Any) -> Any:
        return grpc_api.HealthzResponse(message=self._tell_health(context))

    def _tell_health(self, context: Any) -> str:
        message = answers.HEALTHY
        if self.draining:
            message = answers.DRAINING
        elif not self._table.was_filled:
            message = NO_ROUTES
        if message != answers.HEALTHY:
            context.set_code(grpc.StatusCode.UNAVAILABLE)
            context.set_details(message)
        return message

    # ------------------------------------------------------------ methods of users

    def _relayed(self, method: str, users: Any) -> Any:
        streams_in, streams_out = users.request_streaming, users.response_streaming

        async def one(request: Any, context: Any) -> Any:
            return await self._run(method, request, context, streams_in, None)

        async def many(request: Any, context: Any) -> None:
            await self._run(method, request, context, streams_in, context.write)

        kinds = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }
        return kinds[streams_in, streams_out](many if streams_out else one, users.request_deserializer, None)

    async def _run(
        self,
        method: str,
        request: Any,
        context: Any,
        streams_in: bool,
        write: Callable[[Any], Awaitable[None]] | None,
    ) -> Any:
        """Relays a request. Its values go to `write` if it streams, else its value is returned. Ends the request with
        a status if it fails."""
        sent = dict(context.invocation_metadata() or ())
        name = sent.get("application", "")
        target = self._table.application(name)
        if target is None:
            what = f"Application '{name}' not found." if name else "Application metadata not set."
            details = f"{what} Ping {grpc_api.LIST_APPLICATIONS} for available applications."
            return await context.abort(grpc.StatusCode.NOT_FOUND, details)
        app, deployment = target
        request_id = sent.get("request_id") or new_request_id()
        limits = [limit for limit in (self._timeout_s, context.time_remaining()) if limit is not None]
        timeout_s = min(limits, default=None)
        trace = {key: sent[key] for key in ("traceparent", "tracestate") if key in sent}
        meta = Meta(request_id, app, app, sent.get("multiplexed_model_id", ""), timeout_s or 0.0, trace)
        users = RayServegRPCContext(context)
        users.set_trailing_metadata([("request_id", request_id)])
        body = b"" if streams_in else pickle.dumps(((request,), {}), protocol=5)
        call = Call(0, method, meta, body, write is not None, dump_context(users), streams_in)
        relay = _Relay(self._load_failure, context, users)
        self.ongoing += 1
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                relay.exchange = exchange = await self._queue_of(app, deployment).begin(call)
                if streams_in:
                    relay.uploads(request, exchange)
                return await relay.answer(exchange, write)
        except (Exception, asyncio.CancelledError) as error:
            relay.give_up()
            if isinstance(error, asyncio.CancelledError):
                relay.status = grpc.StatusCode.CANCELLED.name
                raise
            await self._abort(error, users, context, timeout_s, relay)
        finally:
            self.ongoing -= 1
            relay.stop()
            if self._measures is not None:
                self._measures.ended((app, method, app, relay.status), time.monotonic() - began, self.ongoing)

    async def _abort(
        self,
        error: Exception,
        users: RayServegRPCContext,
        context: Any,
        timeout_s: float | None,
        relay: _Relay,
    ) -> None:
        code, details = status_of(error, timeout_s)
        if isinstance(error, CallFailed):
            users = error.context or users
            if users.code():
                code, details = users.code(), users.details() or details
        elif code is grpc.StatusCode.INTERNAL:  # what a method raises, its replica logs
            logger.warning("A gRPC request failed.", exc_info=error)
        relay.status = code.name
        await context.abort(code, _shortened(details), tuple(users.trailing_metadata()))


class _Relay:
    """One request on its way."""

    def __init__(self, load_failure: LoadFailure, context: Any, users: RayServegRPCContext) -> None:
        self.exchange: Exchange | None = None
        self.status = grpc.StatusCode.OK.name
        self._load_failure = load_failure
        self._context = context
        self._uploading: asyncio.Task[None] | None = None
        users.apply_to(context)

    async def answer(self, exchange: Exchange, write: Callable[[Any], Awaitable[None]] | None) -> Any:
        """Passes on what the replica answers, see `GrpcIngress._run`.

        Raises:
            CallFailed: the method raised, or the replica has cancelled it.
        """
        while True:
            part = await exchange.receive()
            if isinstance(part, Item) and write is not None:
                await write(part.body)
            elif isinstance(part, Result):
                self._apply(part.context)
                return part.body
            elif isinstance(part, End):
                self._apply(part.context)
                return None
            elif isinstance(part, Failure):
                context = load_context(part.context) if part.context else None
                cancelled = part.kind == "cancelled"  # by a replica that stops; it sends no exception
                raise CallFailed(
                    RequestCancelledError() if cancelled else self._load_failure(part.body), context
                )
            else:
                raise TypeError(f"The replica {exchange.replica} answered a call with {type(part).__name__}.")

    def uploads(self, requests: AsyncIterator[Any], exchange: Exchange) -> None:
        """Sends what the client streams, beside the response."""
        self._uploading = asyncio.create_task(self._upload(requests, exchange))

    async def _upload(self, requests: AsyncIterator[Any], exchange: Exchange) -> None:
        try:
            async for request in requests:
                await exchange.send(pickle.dumps(request, protocol=5), True)
            await exchange.send(b"", False)
        except Exception:  # the request itself fails by that, too
            logger.warning("Messages of a gRPC client could not be sent to a replica.", exc_info=True)
            exchange.cancel()

    def give_up(self) -> None:
        """Nobody waits for the response any more."""
        if self.exchange is not None:
            self.exchange.cancel()

    def stop(self) -> None:
        """Reads nothing more from the client."""
        if self._uploading is not None:
            self._uploading.cancel()

    def _apply(self, context: bytes) -> None:
        if context:
            load_context(context).apply_to(self._context)


class CallFailed(Exception):
    """A method of a deployment raised.

    Attributes:
        cause: what it raised.
        context: with the code that it had set before, if any.
    """

    def __init__(self, cause: BaseException, context: RayServegRPCContext | None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.context = context


def status_of(error: BaseException, timeout_s: float | None) -> tuple[grpc.StatusCode, str]:
    """The status code and text of a failure."""
    cause = error.cause if isinstance(error, CallFailed) else error
    if isinstance(error, TimeoutError):
        after = "" if timeout_s is None else f" after {timeout_s}s"
        return grpc.StatusCode.DEADLINE_EXCEEDED, f"Request timed out{after}."
    if isinstance(cause, BackPressureError):
        return grpc.StatusCode.RESOURCE_EXHAUSTED, cause.message
    if isinstance(cause, DeploymentUnavailableError):
        return grpc.StatusCode.UNAVAILABLE, cause.message
    if isinstance(cause, RequestCancelledError):
        return grpc.StatusCode.CANCELLED, str(cause)
    return grpc.StatusCode.INTERNAL, str(cause)


def _shortened(details: str) -> str:
    notice = "... [truncated]"
    return details if len(details) <= MAX_DETAILS else details[: MAX_DETAILS - len(notice)] + notice
