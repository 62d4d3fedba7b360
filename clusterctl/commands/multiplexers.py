"""Commands that use tmux or screen on a machine, so that what runs there outlives the terminal. Pure."""

from __future__ import annotations

import shlex
from enum import Enum

NO_SUCH_PROGRAM = 127


class Multiplexer(Enum):
    """Programs that keep terminals."""

    TMUX = "tmux"
    SCREEN = "screen"


def join(program: Multiplexer, is_new: bool = False) -> str:
    """Command: joins the session that is there, or begins one. `is_new`: always begins one."""
    if program is Multiplexer.SCREEN:
        act = "exec screen" if is_new else "exec screen -xRR"
    elif is_new:
        act = "exec tmux new-session"
    else:
        act = "tmux has-session 2>/dev/null && exec tmux attach-session; exec tmux new-session"
    return f"{_must_be_there(program)}; {act}"


def begin(program: Multiplexer, name: str, command: str) -> str:
    """Command: starts `command` in a session of its own and returns. It gets the environment of whoever runs this,
    which an older server of tmux would not give it. In tmux what it wrote stays to be looked at."""
    if program is Multiplexer.SCREEN:
        start = f'screen -dmS {shlex.quote(name)} /bin/sh "$script"'
    else:
        # in one call: the option must hold before the command can have ended
        start = (
            f'tmux new-session -d -s {shlex.quote(name)} "exec /bin/sh $script" '
            f"';' set-option -w -t {shlex.quote(name)} remain-on-exit on"
        )
    write = f"printf '%s\\n' 'rm -f \"$0\"' {shlex.quote(command)}"
    begun = f'script=$(mktemp) && {{ export -p; {write}; }} > "$script" && {start}'
    return f'{_must_be_there(program)}; {begun} || {{ rm -f "$script"; exit 1; }}'


def _must_be_there(program: Multiplexer) -> str:
    name = program.value
    words = f"{name} is not installed on this machine: add it to setup_commands"
    return f"command -v {name} >/dev/null || {{ echo {shlex.quote(words)} >&2; exit {NO_SUCH_PROGRAM}; }}"
