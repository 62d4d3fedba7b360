"""Follows log files of a node. What is asked for is always the bytes from an offset on, so that a lost connection
loses nothing and repeats nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autoscaler.provider import ProviderError, ShellError
from clusterctl import output
from clusterctl.errors import CliError, NotFound

if TYPE_CHECKING:
    from autoscaler.provider import Machine

    from .opened_cluster import OpenedCluster

_POLL_S = 0.5
_ASK_S = 30.0
_PATIENCE_S = 300.0
"""So long a machine that does not answer is asked again."""
_AGAIN_S = 2.0
_MOST_BYTES = 2**18
_NO_FILE = 3


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a file has from an offset on. `is_whole`: it ends with the end of a line."""

    name: str
    next_offset: int
    lines: Sequence[str]
    is_whole: bool


def command(pattern: str, offsets: Mapping[str, int], last_lines: int) -> tuple[str, Mapping[str, str]]:
    """Command and environment that print what is new in the files that fit: per file a head, `@OFFSET NAME`, its
    lines, each after a blank, and an empty line unless the last one is unfinished. Pure.

    A file without an offset is printed from its last lines on. One that has become shorter begins anew.
    """
    table = "".join(f"{name}\t{offset}\n" for name, offset in offsets.items())
    script = f"""\
cd "${{CLUSTERCTL_SESSION_DIR:-.}}/logs" 2>/dev/null && ls {pattern} >/dev/null 2>&1 || exit {_NO_FILE}
for file in {pattern}; do
  size=$(wc -c < "$file") || continue
  from=$(printf %s "$OFFSETS" | awk -F '\\t' -v name="$file" '$1 == name {{ print $2 }}')
  [ -n "$from" ] || from=$((size - $(tail -n {last_lines} "$file" | head -c "$size" | wc -c)))
  [ "$from" -le "$size" ] && [ "$from" -ge 0 ] || from=0
  count=$((size - from)); [ "$count" -le {_MOST_BYTES} ] || count={_MOST_BYTES}
  echo "@$((from + count)) $file"
  [ "$count" = 0 ] || {{ tail -c +$((from + 1)) "$file" | head -c "$count" | sed 's/^/ /'; echo; }}
done"""
    return script, {"OFFSETS": table}


def chunks(printed: str) -> Iterator[Chunk]:
    """Reads what `command` printed. Pure."""
    name, offset, lines, whole = "", 0, list[str](), False
    for line in printed.removesuffix("\n").split("\n"):
        if line.startswith("@"):
            if name:
                yield Chunk(name, offset, lines, whole)
            position, _, name = line[1:].partition(" ")
            offset, lines, whole = int(position), [], False
        elif line.startswith(" "):
            lines.append(line[1:])
        elif lines:
            whole = True
    if name:
        yield Chunk(name, offset, lines, whole)


@dataclass(slots=True)
class Joiner:
    """Puts lines together that came in parts, and says which file they are of."""

    rest: dict[str, str] = field(default_factory=dict)
    shown: str = ""

    def lines(self, chunk: Chunk) -> Iterator[str]:
        """Whole lines of a chunk, with a headline when another file begins."""
        if not chunk.lines:
            return
        whole = [self.rest.pop(chunk.name, "") + chunk.lines[0], *chunk.lines[1:]]
        if not chunk.is_whole:
            self.rest[chunk.name] = whole.pop()
        if whole and chunk.name != self.shown:
            yield from ((f"==> {chunk.name} <==",) if not self.shown else ("", f"==> {chunk.name} <=="))
            self.shown = chunk.name
        yield from whole


def follow_files(opened: OpenedCluster, machine: Machine, pattern: str, last_lines: int) -> None:
    """Prints what comes to a machine's log files, until Ctrl-C.

    Raises:
        NotFound: no file fits, or the machine is gone.
        CliError: it has not answered for long.
    """
    offsets: dict[str, int] = {}
    joiner = Joiner()
    answered = time.monotonic()
    while True:
        try:
            script, env = command(pattern, offsets, last_lines)
            result = opened.shell(machine).run(script, env=env, timeout_s=_ASK_S)
        except (ShellError, ProviderError) as error:
            if machine.id not in {other.id for other in opened.machines()}:
                raise NotFound(f"machine {machine.id} is gone") from error
            if time.monotonic() - answered > _PATIENCE_S:
                raise CliError(f"machine {machine.id} has not answered for long: {error}") from error
            output.warn(f"{error}; trying again")
            time.sleep(_AGAIN_S)
            continue
        if result.exit_status == _NO_FILE and not offsets:
            raise NotFound(f"machine {machine.id} has no such log file")
        answered = time.monotonic()
        for chunk in chunks(result.output):
            offsets[chunk.name] = chunk.next_offset
            for line in joiner.lines(chunk):
                output.say(line)
        time.sleep(_POLL_S)
