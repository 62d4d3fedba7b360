"""What an actor of a compiled graph runs: its schedule, again and again, on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runtime import exceptions
from runtime._extension.actors import bound_method, task_error
from runtime._extension.channels import (
    ChannelAddress,
    ChannelClosedError,
    ChannelError,
    Reader,
    Writer,
    create,
    open_reader,
)
from runtime.dag.compile import INPUT, WHOLE, Call, Step, Use, uses_in
from runtime.dag.input_node import DAGInputData

log = logging.getLogger("runtime")
OPEN_TIMEOUT_S = 60.0


class Failed:
    """A result that is an error. Calls that use it give it as their own."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return Failed, (self.error,)


_turn = threading.Lock()  # of this process's actor: the loops of several graphs do not call it at once
_loops: dict[str, Loop] = {}


class Loop:
    """One actor's part of one compiled graph.

    Args:
        actor: the instance.
        name: its id in hex.
        steps: its schedule.
        readers: the readers of each channel that it writes.
        capacity, slot_bytes: of these channels.
    """

    def __init__(
        self,
        actor: Any,
        name: str,
        steps: Sequence[Step],
        readers: Mapping[int, Sequence[str]],
        capacity: int,
        slot_bytes: int,
    ) -> None:
        self._name = name
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self.writers: dict[int, Writer] = {
            step.call.index: create(
                f"the result of {step.call.method}",
                readers[step.call.index],
                capacity,
                writer=name,
                slot_bytes=slot_bytes,
            )
            for step in steps
            if step.puts
        }
        self._readers: dict[int, Reader] = {}
        self._work = [
            (step, self._function(actor, step.call), self.writers.get(step.call.index)) for step in steps
        ]

    def _function(self, actor: Any, call: Call) -> Callable[[dict[int, Any]], Any]:
        """The call, as a function of the values that are there."""
        method = call.function or bound_method(actor, call.method)
        args, kwargs = call.args, call.kwargs
        used = list(dict.fromkeys(use.producer for use in uses_in((args, dict(kwargs)))))
        whole = [arg.producer for arg in args if isinstance(arg, Use) and arg.part is None]
        is_plain = len(whole) == len(args) and not kwargs

        def run(values: dict[int, Any]) -> Any:
            for producer in used:
                if values[producer].__class__ is Failed:
                    return values[producer]
            try:
                if is_plain:
                    result = method(*map(values.__getitem__, whole))
                else:
                    result = method(*[filled(arg, values) for arg in args], **filled(dict(kwargs), values))
                return self._awaited(result) if isinstance(result, types.CoroutineType) else result
            except Exception as error:
                return Failed(task_error(error, call.method, actor, self._name))

        return run

    def _awaited(self, coroutine: Any) -> Any:
        if self._event_loop is None:
            return asyncio.run(coroutine)
        return asyncio.run_coroutine_threadsafe(coroutine, self._event_loop).result()

    def start(self, addresses: Mapping[int, ChannelAddress]) -> None:
        """Opens what it reads, and begins."""
        try:
            self._event_loop = asyncio.get_running_loop()
        except RuntimeError:
            pass  # not an async actor
        try:
            for producer, address in addresses.items():
                self._readers[producer] = open_reader(address, self._name, timeout_s=OPEN_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self.run, name="compiled graph", daemon=True).start()

    def run(self) -> None:
        """The thread's work: until the input ends, or the graph fails."""
        try:
            while True:
                self._execute()
        except ChannelClosedError:
            pass  # torn down: everything before it was done
        except ChannelError as error:
            self._fail(error)
        except BaseException as error:
            log.exception("the loop of a compiled graph")
            self._fail(error)
        finally:
            self.close()

    def _execute(self) -> None:
        values: dict[int, Any] = {}
        for step, function, writer in self._work:
            for producer in step.takes:
                # No limit: the next execution comes when it comes, and whatever ends the graph ends the wait.
                values[producer] = taken(self._readers[producer], None)
            with _turn:
                result = function(values)
            if writer is not None:
                try:
                    writer.put(result, None)
                except ChannelError:
                    raise
                except Exception as error:  # it cannot be pickled
                    writer.put(Failed(task_error(error, step.call.method, None, self._name)), None)
            values[step.call.index] = result
            for producer in step.drops:
                values.pop(producer, None)

    def _fail(self, error: BaseException) -> None:
        ends: list[Writer | Reader] = [*self.writers.values(), *self._readers.values()]
        for end in ends:
            end.fail(error)

    def close(self) -> None:
        """Closes every end."""
        for writer in self.writers.values():
            writer.close()
        for reader in self._readers.values():
            reader.close()


def taken(reader: Reader, deadline: float | None) -> Any:
    """The next value of a channel, at the latest at a monotonic time; one that cannot be unpickled here is an error of
    its own."""
    try:
        return reader.take_until(deadline)
    except ChannelError:
        raise
    except exceptions.RayError as error:
        return Failed(error)


def filled(value: Any, values: Mapping[int, Any]) -> Any:
    """A value with what is there in place of each `Use`."""
    if isinstance(value, Use):
        return part_of(values[value.producer], value)
    if isinstance(value, list | tuple | set | frozenset):
        if not any(True for _ in uses_in(value)):
            return value
        parts = [filled(part, values) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: filled(part, values) for key, part in value.items()}
    return value


def part_of(value: Any, use: Use) -> Any:
    """What a use stands for."""
    if use.part is None:
        return value
    if use.producer != INPUT:
        return value[use.part]
    args, kwargs = value
    if use.part == WHOLE:
        return args[0] if len(args) == 1 and not kwargs else DAGInputData(*args, **kwargs)
    return args[use.part] if isinstance(use.part, int) else kwargs[use.part]


# ---------------------------------------------------------------- what the driver calls in the actor's process


def prepare(actor: Any, key: str, *facts: Any) -> dict[int, ChannelAddress]:
    """Makes the channels that an actor writes. Returns their addresses by producer."""
    loop = _loops[key] = Loop(actor, *facts)
    return {producer: writer.address for producer, writer in loop.writers.items()}


def start(_actor: Any, key: str, addresses: Mapping[int, ChannelAddress]) -> None:
    """Begins to run, with the channels that the actor reads."""
    _loops.pop(key).start(addresses)


def discard(_actor: Any, key: str) -> None:
    """Gives up what `prepare` made, since the graph could not be compiled."""
    loop = _loops.pop(key, None)
    if loop is not None:
        loop.close()
