"""What is asked of a machine, in one command of a POSIX shell, and how its answer is read. Pure."""

from __future__ import annotations

import json
import shlex

from clusterctl.launcher import life
from clusterctl.launcher.runtimes.engine_nodes import READ_RECORD
from clusterctl.startup.record import NO_BOOT_ENTRY

from .facts import Entry, Seen

_LAST_LINES = 5
_MODULES = {"clusterctl.head": "head", "runtime._control": "control", "runtime._node": "node"}
_PYTHON = '"${CLUSTERCTL_PYTHON:-python3}"'
_VERSIONS = (
    "import sys; print('%d.%d' % sys.version_info[:2]); import clusterctl; print(clusterctl.__version__)"
)
_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).close()"


def command(control_address: str, is_head: bool) -> str:
    """Prints lines `KEY VALUE`. `control_address`: tried from a worker, where it is known."""
    host, _, port = control_address.rpartition(":")
    connect = ""
    if host and not is_head:
        words = shlex.join([_CONNECT, host.strip("[]"), port])
        connect = f"{_PYTHON} -c {words} 2>/dev/null && echo reaches yes || echo reaches no"
    return f"""\
echo now $(date +%s)
s=${{CLUSTERCTL_SESSION_DIR:-/nonexistent}}
[ -n "$CLUSTERCTL_SHARES_HOST" ] || echo fs $(stat -f -c %T "$s" 2>/dev/null)
set -- $(df -Pk "$HOME" 2>/dev/null | tail -n 1); echo disk $4
{_PYTHON} -c {shlex.quote(_VERSIONS)} 2>&1 | sed 's/^/python /'
{READ_RECORD}
for process in /proc/[0-9]*; do
  words=$(tr '\\0' ' ' 2>/dev/null < $process/cmdline) || continue
  case "$words" in
    *" clusterctl.head "*"$s"*) echo "process ${{process#/proc/}} clusterctl.head" ;;
    *" runtime._control "*"$s"*) echo "process ${{process#/proc/}} runtime._control" ;;
    *" runtime._node "*"$s"*) echo "process ${{process#/proc/}} runtime._node" ;;
  esac
done
while read -r _ local _ state _; do [ "$state" = 0A ] && echo "port ${{local##*:}}"; done \\
  < /proc/net/tcp
tail -n {_LAST_LINES} "$s/logs/{"head" if is_head else "agent"}.log" 2>/dev/null | sed 's/^/log /'
{connect}
true"""


def read(printed: str, here_s: float) -> Seen:
    """What a machine said.

    Args:
        here_s: unix time of this machine when it was asked.
    """
    said: dict[str, list[str]] = {}
    for line in printed.splitlines():
        key, _, value = line.partition(" ")
        said.setdefault(key, []).append(value)

    def first(key: str) -> str:
        return said.get(key, [""])[0].strip()

    running = [line.split(" ", 1)[1] for line in said.get("process", ())]
    python, *more = said.get("python") or [""]
    is_python = python.replace(".", "").isdigit()
    works = is_python and len(more) == 1
    reaches = first("reaches")
    return Seen(
        Entry.OPEN,
        skew_s=float(first("now")) - here_s if first("now").isdigit() else None,
        disk_bytes=float(first("disk")) * 1024 if first("disk").isdigit() else None,
        file_system=first("fs"),
        python=python if is_python else "",
        version=more[0] if works else "",
        runtime_error="" if works else (more or [python])[-1],
        started=bool(first("daemon")),
        is_alive=life.is_recorded(first("daemon"), first("stat"), first("boot")),
        daemons=frozenset(_MODULES[module] for module in running),
        listening=frozenset(int(port, 16) for port in said.get("port", ())),
        reaches_head={"yes": True, "no": False}.get(reaches),
        survives_reboot=_survives_reboot(first("daemon")),
        last_words=tuple(said.get("log", ())),
    )


def _survives_reboot(record: str) -> bool | None:
    try:
        kind = str(json.loads(record).get("boot_entry", ""))
    except (ValueError, AttributeError):
        return None
    return kind != NO_BOOT_ENTRY if kind else None
