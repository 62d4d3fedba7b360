"""A process at the other end of channels: reads what to do from its standard input, answers on its standard output."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from typing import Any, Self

from runtime._extension.channels import ChannelAddress, ChannelError, Place, create, open_reader


class Peer:
    """A child process that runs one of the functions below. A context manager, which kills it."""

    def __init__(self, function: str, *args: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime._extension.channels.peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        pickle.dump((function, args), self.process.stdin)
        self.process.stdin.flush()

    def hear(self) -> Any:
        """What it says next."""
        assert self.process.stdout is not None
        return pickle.load(self.process.stdout)

    def kill(self) -> None:
        """Ends it without notice."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


def say(what: Any) -> None:
    pickle.dump(what, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def echo(address: ChannelAddress, place: Place) -> None:
    """Sends back what it reads, says how the channel ended, and waits to be killed."""
    reader = open_reader(address, "peer", timeout_s=30, place=place)
    writer = create("back", ["test"], 4, writer="peer", place=place)
    say(writer.address)
    try:
        while True:
            writer.put(reader.take(None), None)
    except ChannelError as error:
        writer.close()
        reader.close()
        say(error)
        time.sleep(600)  # a process that ends takes along what it has not sent to other nodes


def idle(address: ChannelAddress, place: Place) -> None:
    """Opens its end and does nothing."""
    reader = open_reader(address, "peer", timeout_s=30, place=place)
    say("open")
    time.sleep(600)
    reader.close()


def take_some(address: ChannelAddress, place: Place, count: int) -> None:
    """Reads some values, says them, and waits to be killed."""
    reader = open_reader(address, "peer", timeout_s=30, place=place)
    say([reader.take(None) for _ in range(count)])
    time.sleep(600)


def fail_at_once(address: ChannelAddress, place: Place) -> None:
    """Fails its end, and says what it gets then."""
    reader = open_reader(address, "peer", timeout_s=30, place=place)
    reader.fail(ZeroDivisionError("of the peer"))
    try:
        reader.take(None)
    except ChannelError as error:
        say(error)
        time.sleep(600)


def write_some(values: list[Any], place: Place, closes: bool) -> None:
    """Writes values, and then closes the channel or waits to be killed."""
    writer = create("from a peer", ["test", "other"], 8, writer="peer", place=place)
    for value in values:
        writer.put(value, 30)
    say(writer.address)
    if closes:
        writer.close()
    time.sleep(600)


if __name__ == "__main__":
    function, args = pickle.load(sys.stdin.buffer)
    globals()[function](*args)
