"""`clusterctl stack`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterctl import output

from .options import Json


def stack(
    pids: Annotated[
        list[int] | None, typer.Argument(metavar="[PID]...", help="Only these processes.")
    ] = None,
    json: Json = False,
) -> None:
    """Prints the Python stack of each thread of every engine process on this machine.

    For programs that seem to hang. Nothing is stopped. A program that handles SIGUSR2 itself receives that signal
    instead.

    \b
      clusterctl stack
      clusterctl stack 4711
    """
    from clusterctl.errors import NotFound
    from runtime._system.stacks import collect

    found = collect(pids or None)
    if not found:
        which = f"with the process id {', '.join(map(str, pids))}" if pids else "of yours"
        raise NotFound(
            f"no process {which} on this machine can be asked for its stacks",
            "Run it on the machine where the program runs, as the user who started it.",
        )
    if json:
        import msgspec

        output.as_json([msgspec.structs.asdict(stacks) for stacks in found])
        return
    for stacks in found:
        output.say(f"=== {stacks.role} {stacks.pid}: {stacks.command}")
        output.say(stacks.text.rstrip() or "(it does not answer: it is stopped, or busy in the kernel)")
        output.say()
